"""Whole things, as a newcomer meets them: the default job, and the wheel."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from vinerl.bench.run.runs import Run

ROOT = Path(__file__).resolve().parents[1]


def call(*command, cwd, **variables):
    """Its output; a command that fails shows it. It may draw, as a newcomer's may."""
    env = os.environ | {"HOME": str(cwd), "JAX_PLATFORMS": "cpu"} | variables
    env.pop("MUJOCO_GL", None)
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_default_job_learns_on_every_seed_it_is_given(tmp_path):
    """No arguments: data made here, VINE with K = 10, mean success of 0.8 or more."""
    said = call(sys.executable, "-m", "vinerl", "train", cwd=tmp_path)
    (folder,) = (tmp_path / "runs").iterdir()
    run = Run(folder)
    assert run.manifest["agent"]["config"]["flow_steps"] == 10
    assert run.manifest["run"]["final_episodes"] == 50
    assert len(run.success) >= 2
    assert sum(run.success) / len(run.success) >= 0.8
    for member in run.manifest["members"]:
        assert f"seed {member['seed']} " in said
    assert f"look at {Path('runs') / folder.name / 'curve.png'}" in said


@pytest.mark.slow
def test_a_wheel_installs_into_a_fresh_environment_and_runs(tmp_path):
    """The dependencies are those of the test's own environment, the package is the wheel's."""
    build = ("build", "--wheel", "--outdir", str(tmp_path / "dist"), str(ROOT))
    call(sys.executable, "-m", *build, cwd=tmp_path, HOME=os.environ["HOME"])
    call(sys.executable, "-m", "venv", "fresh", cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("vinerl-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        held = set(packed.namelist())
    files = [path.relative_to(ROOT / "src") for path in (ROOT / "src/vinerl").rglob("*.*")]
    kept = {str(path) for path in files if path.suffix != ".pyc"}
    assert kept - held == set(), "controllers, published numbers, pages"
    python = str(tmp_path / "fresh/bin/python")
    call(python, "-m", "pip", "install", "-q", "--no-deps", str(wheel), cwd=tmp_path)

    dependencies = {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
    where = call(python, "-c", "import vinerl; print(vinerl.__file__)", cwd=tmp_path, PYTHONPATH="")
    assert where.startswith(str(tmp_path / "fresh"))
    vinerl = str(tmp_path / "fresh/bin/vinerl")
    assert "ok   ten steps" in call(vinerl, "doctor", cwd=tmp_path, **dependencies)
