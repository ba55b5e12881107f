"""What a run was made with."""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import pytest
from test_results import PUBLISHED, changed

from vinerl.bench.run import jobs, provenance, running
from vinerl.bench.run.runs import Run
from vinerl.errors import DeviceError, InputError

HERE = Path(__file__)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """The package's sources somewhere else, where there is no git."""
    ignore = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(provenance.PACKAGE, tmp_path / "vinerl", ignore=ignore)
    original = provenance.source_hash()
    monkeypatch.setattr(provenance, "PACKAGE", package)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.source_hash() == original, "wherever the package is"
    return package


def test_the_source_hash_changes_with_one_byte(copy):
    before = provenance.source_hash()
    file = copy / "rl" / "losses.py"
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)
    assert provenance.source_hash() != before


def test_the_source_hash_changes_with_a_name(copy):
    before = provenance.source_hash()
    (copy / "rl" / "losses.py").rename(copy / "rl" / "losses2.py")
    assert provenance.source_hash() != before


def test_without_git_the_commit_is_from_the_environment(copy, monkeypatch):
    monkeypatch.setenv("VINERL_COMMIT", "abc123")
    assert provenance.commit() == "abc123"
    monkeypatch.delenv("VINERL_COMMIT")
    assert provenance.commit() == "unknown"


def test_without_the_git_program_too(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("VINERL_COMMIT", "abc123")
    assert provenance.commit() == "abc123"


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_in_a_checkout_the_commit_is_gits_and_says_when_sources_changed(copy, monkeypatch):
    monkeypatch.setenv("VINERL_COMMIT", "not asked")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]

    def git(*words):
        command = ["git", "-C", str(copy.parent), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    assert provenance.commit() == "not asked", "a folder inside some other checkout"
    git("add", ".")
    git("commit", "-q", "-m", "x")
    assert provenance.commit() == git("rev-parse", "HEAD")
    (copy / "errors.py").write_text("")
    assert provenance.commit() == git("rev-parse", "HEAD") + "-dirty"


def test_versions_and_hardware_are_known():
    assert {"python", "jax", "mujoco", "ogbench", "numpy"} <= set(provenance.versions())
    assert "unknown" not in provenance.versions().values()
    assert provenance.hardware()["backend"] == "cpu"
    assert provenance.cores() >= 1


@pytest.fixture
def unseen(monkeypatch, tmp_path):
    """A GPU that JAX does not use, on a machine with these packages of JAX's."""
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(provenance, "_device", lambda: tmp_path / "nvidia0")
    monkeypatch.setattr(provenance, "_wants_cpu", lambda: False)
    known = provenance.version

    def version(name, there):
        if name.startswith("jax-cuda") and name != there:
            raise provenance.PackageNotFoundError
        return "1" if name == there else known(name)

    return lambda there="": monkeypatch.setattr(
        provenance, "version", partial(version, there=there)
    )


def test_a_gpu_that_jax_has_no_build_for_is_mentioned(unseen, capsys):
    unseen()
    provenance.check_gpu()
    said = capsys.readouterr().out
    assert "vinerl[cuda]" in said
    assert "vinerl[cuda12]" in said


@pytest.mark.parametrize("plugin", ["jax-cuda12-plugin", "jax-cuda13-plugin"])
def test_a_gpu_that_failed_is_not_made_up_for_by_the_cpu(plugin, unseen, tmp_path):
    unseen(plugin)
    job = jobs.resolve(jobs.request("vine", {"data": "x.npz", "out": tmp_path / "a"}))
    with pytest.raises(DeviceError, match=r"JAX could not begin with it.* JAX_PLATFORMS=cpu"):
        running.train(job)
    begun = changed(Run(PUBLISHED), tmp_path / "b", ended=None)
    with pytest.raises(DeviceError, match="JAX could not begin with it"):
        running.resume(begun.path)


@pytest.mark.parametrize("asked", ["JAX_PLATFORMS=cpu", "CUDA_VISIBLE_DEVICES=", None])
def test_who_asks_for_the_cpu_gets_it(asked):
    """So does who has JAX's build where the driver is seen and no device is, as in a container."""
    code = f"""
from pathlib import Path
from vinerl.bench.run import provenance
provenance.jax.default_backend = lambda: "cpu"  # also where JAX would find a GPU
provenance.has_gpu, provenance._built_for_gpu = lambda: True, lambda: True
provenance._device = lambda: Path({str(HERE if asked else HERE / "none")!r})
provenance.check_gpu()
"""
    plain = {
        k: v for k, v in os.environ.items() if k not in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES")
    }
    given = dict([asked.split("=")]) if asked else {}
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, env=plain | given, capture_output=True, text=True, check=True)
    assert ("could not begin" in found.stdout) == (asked is None)


ASK, USE = "provenance.deterministic()", "jax.devices()"
BY_HAND = "os.environ['XLA_FLAGS'] = '--xla_gpu_deterministic_ops=true'"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((ASK, USE), "bit-exact"),
        ((BY_HAND, USE, ASK), "bit-exact"),
        ((USE,), "not bit-exact"),
        ((USE, BY_HAND), "not bit-exact"),
    ],
)
def test_exact_is_what_xla_heard_before_its_first_use(lines, said, monkeypatch):
    """It is told as on a GPU; what XLA has read of its flags is the same on a CPU."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    begin = ("import os, jax", "from vinerl.bench.run import provenance")
    begin += ("jax.default_backend = lambda: 'gpu'",)
    code = "\n".join([*begin, *lines, "print(provenance.exactness())"])
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith(said)


@pytest.fixture
def late(monkeypatch):
    """A GPU that JAX has been used on already."""
    jax.devices()
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def test_the_same_bits_are_refused_where_xla_no_longer_listens(late, tmp_path):
    request = jobs.request("vine", {"data": "x.npz", "deterministic": True, "out": tmp_path / "a"})
    job = jobs.resolve(request)  # whoever only plans may have used JAX
    with pytest.raises(InputError, match="--deterministic: JAX was used before"):
        running.train(job)
    assert not (tmp_path / "a").exists()
    begun = changed(Run(PUBLISHED), tmp_path / "b", run__deterministic=True, ended=None)
    with pytest.raises(InputError, match="--deterministic: JAX was used before"):
        running.resume(begun.path)
    assert provenance.os.environ["XLA_FLAGS"] == "", "other runs of this process do not ask for it"


def test_planning_leaves_the_flags_of_other_runs_alone(late):
    jobs.resolve(jobs.Request(deterministic=True))
    assert provenance.os.environ["XLA_FLAGS"] == ""


def test_a_cpu_gives_the_same_bits_whenever_it_is_asked(monkeypatch):
    jax.devices()
    monkeypatch.setenv("XLA_FLAGS", "")
    provenance.deterministic()
    assert provenance.exactness() == "bit-exact for the same versions and number of cores"
