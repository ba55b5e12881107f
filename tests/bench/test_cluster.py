"""A sweep on a Ray cluster whose node dies, in an environment of its own."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from vinerl.bench.plans import entries, sweep

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
PLACE = HERE.parents[1] / ".cache" / "ray-env"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # as /proc/net/tcp writes 127.0.0.1
STEPS = 6000  # some seconds, so that a death can fall into them


@pytest.fixture(scope="module")
def python():
    """One that has Ray, and for everything else the packages of this one."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the death of a node is staged with /proc")
    found = PLACE / "bin" / "python"
    if not (PLACE / "installed").exists():
        venv.create(PLACE, clear=True, with_pip=True)
        pip = [found, "-m", "pip", "install", "-q", "ray>=2.60"]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"pip cannot fetch ray: {done.stderr[-200:]}")
        (PLACE / "installed").touch()
    (site,) = PLACE.glob("lib/python*/site-packages")
    packages = [sysconfig.get_paths()["purelib"], str(HERE.parents[1] / "src")]
    (site / "ours.pth").write_text(
        "".join(f"import site; site.addsitedir({p!r})\n" for p in packages)
    )
    return str(found)


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """Ray's files in a folder of their own; its sockets cannot have long names."""
    home, short = tmp_path_factory.mktemp("home"), tempfile.mkdtemp(prefix="ray", dir="/tmp")
    chosen = {"HOME": str(home), "RAY_TMPDIR": short, "JAX_PLATFORMS": "cpu"}
    yield os.environ | chosen
    shutil.rmtree(short, ignore_errors=True)


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """Four cells of one program, which is compiled once: a file of one's own, no evaluation."""
    folder = tmp_path_factory.mktemp("spec")
    draw, rows = np.random.default_rng(0), 100
    np.savez(
        folder / "mine.npz",
        observations=draw.normal(size=(rows, 3)).astype(np.float32),
        actions=draw.uniform(-1, 1, (rows, 2)).astype(np.float32),
        rewards=draw.normal(size=rows).astype(np.float32),
        terminals=np.arange(rows) % 10 == 9,
    )
    path = folder / "four.toml"
    path.write_text(
        f"data = '{folder / 'mine.npz'}'\nseeds = [0]\nsteps = {STEPS}\n"
        "run = { block = 4, eval_every = 600 }\n"  # no task, so no evaluation, but checkpoints
        "common = { actor_hidden = [8], critic_hidden = [8], batch_size = 16, flow_steps = 2 }\n"
        "grid = [{ alpha = 1.0 }, { alpha = 2.0 }, { alpha = 3.0 }, { alpha = 4.0 }]\n"
    )
    return path


@pytest.fixture(scope="module")
def alone(spec, env, tmp_path_factory):
    """The sweep that nobody disturbs, without Ray."""
    out = tmp_path_factory.mktemp("alone")
    command = (sys.executable, "-m", "vinerl", "sweep", str(spec), "--out", str(out))
    subprocess.run([*command, "--jobs", "2"], env=env, check=True)
    return out


def halfway(folder: Path) -> bool:
    """Is running, has a checkpoint, and its last one is of its first half."""
    saved = [int(p.stem[-9:]) for p in (folder / "checkpoints").glob("state-*.json")]
    return bool(saved) and max(saved) <= STEPS // 2 and (folder / "lock.json").exists()


def states(out: Path) -> dict[str, dict[str, np.ndarray]]:
    found = sorted(out.glob(f"*/checkpoints/state-{STEPS:09d}.safetensors"))
    return {str(p.relative_to(out)): safetensors.numpy.load(p.read_bytes()) for p in found}


def test_a_node_that_dies_costs_what_its_cell_did_since_its_checkpoint(
    python, env, spec, alone, tmp_path
):
    loopback = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    nodes = subprocess.Popen(
        [python, str(HERE / "three_nodes.py")],
        env=env | loopback,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert nodes.stdin
    assert nodes.stdout
    cells = [tmp_path / cell.name for cell in sweep.read(spec)]
    address = nodes.stdout.readline().strip()
    command = (python, "-m", "vinerl", "sweep", spec, "--ray", address, "--out", tmp_path)
    driver = subprocess.Popen(list(map(str, command)), env=env)
    try:
        ready: list[Path] = []
        while not (ready and any(map(entries.ended, cells))):
            assert driver.poll() is None, "it was over before a node could die"
            time.sleep(0.02)
            ready = list(filter(halfway, cells))
        lost = ready[0]
        print(json.loads((lost / "lock.json").read_text())["process"], file=nodes.stdin, flush=True)
        assert nodes.stdout.readline() == "killed\n"
        assert not entries.ended(lost)
        assert driver.wait(180) == 0
    finally:
        driver.kill()
        nodes.communicate()
    logs = {cell: (cell / "log.txt").read_text() for cell in cells}
    starts = {cell: said.count("vinerl train") for cell, said in logs.items()}
    again = {cell: said.count("vinerl resume") for cell, said in logs.items()}
    assert starts == dict.fromkeys(cells, 1)
    assert again == dict.fromkeys(cells, 0) | {lost: 1}
    (step,) = (x.split()[-1] for x in logs[lost].splitlines() if x.startswith("going on from step"))
    assert 0 < int(step) < STEPS
    expected, found = states(alone), states(tmp_path)
    assert set(expected) == set(found)
    assert len(found) == 4
    for name, tree in expected.items():
        for leaf, value in tree.items():
            np.testing.assert_array_equal(found[name][leaf], value, err_msg=f"{name} {leaf}")
    assert (tmp_path / "table.csv").read_text() == (alone / "table.csv").read_text()


ONE = """
import os, sys
from pathlib import Path
from vinerl.bench.plans import cluster, crew, sweep
spec, out, tests = map(Path, sys.argv[1:])
sys.path.append(str(tests))
from family import addresses
cell = sweep.read(spec)[0]
with cluster.nodes("") as submit:
    done = submit(crew.finish, cell, out / cell.name, out)
    print(repr(done.result()), *addresses(os.getpid()))
"""


def test_without_an_address_it_listens_on_this_machine_only(python, env, spec, alone):
    """The cell has ended already: asking for it again is quick."""
    command = (python, "-c", ONE, spec, alone, HERE)
    done = subprocess.run(list(map(str, command)), env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer, *listening = done.stdout.split()
    assert answer == "''"
    assert listening
    assert set(listening) <= LOOPBACK
