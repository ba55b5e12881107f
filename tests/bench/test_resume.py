"""A run that is killed and resumed ends as the run that was left alone, bit for bit."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from vinerl import disk
from vinerl.bench.run.runs import Run
from vinerl.train import metrics

pytestmark = pytest.mark.slow

STEPS, EVERY = 120, 40
# Two seeds x two alphas, chunks of two, evaluation on.
JOB = f"--seeds 0,1 --agent.alpha 0.4,1 --steps {STEPS} --eval-every {EVERY} --block 4"
JOB += " --log-every 8 --eval-episodes 1 --final-episodes 1 --agent.horizon 2 --agent.chunk True"
JOB += " --agent.actor-hidden 8 8 --agent.critic-hidden 8 8 --agent.batch-size 16"

# The command line, with a disk on which every sync takes a while.
SLOW_DISK = """
import os, time
from vinerl import cli, disk
sync = os.fsync
disk.os.fsync = lambda number: (time.sleep(0.3), sync(number))
cli.main()
"""


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    """The run that nobody disturbs, and how long it takes once its programs are compiled."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("first", "alone"):
        begin = time.monotonic()
        assert start(data, "train", *JOB.split(), "--out", str(folder / name)).wait() == 0
    assert_same(folder / "alone", folder / "first")
    return folder / "alone", time.monotonic() - begin


def start(data: Path, *words: str, slow_disk: bool = False) -> subprocess.Popen:
    env = os.environ | {"VINERL_DATA": str(data), "HOME": str(data), "PYTHONUNBUFFERED": "1"}
    how = ("-c", SLOW_DISK) if slow_disk else ("-m", "vinerl")
    with (data / "said.log").open("w") as said:
        command = (sys.executable, *how, *words)
        return subprocess.Popen(command, env=env, stdout=said, stderr=subprocess.STDOUT)


def state(folder: Path, step: int = STEPS) -> dict[str, np.ndarray]:
    path = folder / f"checkpoints/state-{step:09d}.safetensors"
    return safetensors.numpy.load(path.read_bytes())


def assert_same(folder: Path, other: Path) -> None:
    """The whole state: parameters, targets, moments, step. And the log; and no torn file.

    The lines of the log are compared as read: an evaluation beside the training (more than two
    cores) comes in when it is done.
    """
    ours, theirs = state(folder), state(other)
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    assert metrics.read(folder / "metrics.jsonl") == metrics.read(other / "metrics.jsonl")
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line)
    for card in [folder / "manifest.json", *(folder / "checkpoints").glob("*.json")]:
        disk.read_sealed(card, schema=1)
    assert not list(folder.rglob("*.part"))
    assert Run(folder).manifest["ended"]


def parts(folder: Path) -> set[tuple[str, int]]:
    """Files that are being written, or were when a process died."""
    found = set()
    for path in folder.glob("checkpoints/*.part"):
        with suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_mtime_ns))
    return found


def phase(data: Path) -> str:
    """Where a run was, for the log of kills."""
    lines = (data / "said.log").read_text().splitlines()
    return lines[-1][:60] if lines else "importing"


def test_twenty_five_kills_change_nothing(data, alone, tmp_path):
    """Twenty at moments uniform over a run's life, five while a checkpoint is being written."""
    whole, life = alone
    chance, kills, finished = random.Random(0), [], 0
    moments = [chance.uniform(0, life) for _ in range(20)] + ["save"] * 5
    chance.shuffle(moments)
    folder = tmp_path / "run0"
    while moments:
        begun = (folder / "manifest.json").exists()
        words = ("resume", str(folder)) if begun else ("train", *JOB.split(), "--out", str(folder))
        moment = moments[0]
        left = parts(folder)  # by the kill before
        process = start(data, *words, slow_disk=moment == "save")
        begin = time.monotonic()
        while process.poll() is None:
            in_a_save = bool(parts(folder) - left)
            if in_a_save if moment == "save" else time.monotonic() - begin > moment:
                process.kill()
                break
            time.sleep(0.002)
        if process.wait() == -signal.SIGKILL:
            saving = " (saving)" if parts(folder) - left else ""
            kills.append(f"{time.monotonic() - begin:6.2f} s  {phase(data)}{saving}")
            moments.pop(0)
        else:
            assert process.returncode == 0, (data / "said.log").read_text()
            if moment != "save":  # it was over before: draw another moment
                moments[0] = chance.uniform(0, time.monotonic() - begin)
        if (folder / "manifest.json").exists() and Run(folder).manifest["ended"]:
            assert_same(folder, whole)
            finished, folder = finished + 1, tmp_path / f"run{finished + 1}"
    print("\n".join(["", "kills:", *kills]))
    assert sum("(saving)" in kill for kill in kills) >= 5

    begun = (folder / "manifest.json").exists()
    words = ("resume", str(folder)) if begun else ("train", *JOB.split(), "--out", str(folder))
    assert start(data, *words).wait() == 0, (data / "said.log").read_text()
    assert_same(folder, whole)


def test_without_evaluation_the_parameters_are_the_same_and_kills_change_nothing(
    data, alone, tmp_path
):
    whole, life = alone
    job = f"{JOB} --eval-every 0 --final-episodes 0".split()
    folder, chance = tmp_path / "run", random.Random(1)
    words = ("train", *job, "--out", str(folder))
    for _ in range(4):
        process = start(data, *words)
        time.sleep(chance.uniform(0.3, 0.6) * life)
        process.kill()
        process.wait()
        words = ("resume", str(folder)) if (folder / "manifest.json").exists() else words
    if not Run(folder).manifest["ended"]:
        assert start(data, *words).wait() == 0, (data / "said.log").read_text()
    for name, value in state(whole).items():
        np.testing.assert_array_equal(state(folder)[name], value, err_msg=name)


def test_a_run_in_groups_is_killed_and_goes_on_as_one_stack(data, alone, tmp_path):
    """Close, not equal: a product of another number of members may be rounded otherwise."""
    folder = tmp_path / "run"
    process = start(data, "train", *JOB.split(), "--stack", "3", "--out", str(folder))
    while process.poll() is None and not list(folder.glob("checkpoints/state-*.json")):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL, (data / "said.log").read_text()
    assert start(data, "resume", str(folder)).wait() == 0, (data / "said.log").read_text()
    for name, value in state(alone[0]).items():
        np.testing.assert_allclose(state(folder)[name], value, 1e-3, 1e-4, err_msg=name)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_finishes_the_block_saves_and_exits_with_its_code(
    data, alone, tmp_path, number, code
):
    whole, _ = alone
    folder = tmp_path / "run"
    process = start(data, "train", *JOB.split(), "--out", str(folder))
    log = folder / "metrics.jsonl"
    while process.poll() is None and not (log.exists() and log.read_text().count("\n") >= 3):
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait() == code
    assert "vinerl resume" in (data / "said.log").read_text()
    assert not (folder / "lock.json").exists()
    assert start(data, "resume", str(folder)).wait() == 0
    assert_same(folder, whole)


def test_a_run_that_is_lengthened_equals_one_that_was_long_from_the_start(data, alone, tmp_path):
    whole, _ = alone
    folder, short = tmp_path / "run", JOB.replace(f"--steps {STEPS}", f"--steps {2 * EVERY}")
    assert start(data, "train", *short.split(), "--out", str(folder)).wait() == 0
    assert start(data, "resume", str(folder), "--steps", str(STEPS)).wait() == 0
    assert_same(folder, whole)
    assert start(data, "resume", str(folder)).wait() == 2
    assert "has ended" in (data / "said.log").read_text()


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(data, alone, tmp_path):
    whole, _ = alone
    folder = tmp_path / "run"
    short = JOB.replace(f"--steps {STEPS}", f"--steps {2 * EVERY}")
    assert start(data, "train", *short.split(), "--out", str(folder)).wait() == 0
    newest = folder / f"checkpoints/state-{2 * EVERY:09d}.safetensors"
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    assert start(data, "resume", str(folder), "--steps", str(STEPS)).wait() == 0
    said = (data / "said.log").read_text()
    assert "passed over a checkpoint" in said
    assert newest.name in said
    assert f"going on from step {EVERY}" in said
    assert_same(folder, whole)


def test_another_dataset_is_refused_on_resuming(data, alone, tmp_path):
    own = tmp_path / "data"
    shutil.copytree(data, own)
    folder, short = tmp_path / "run", JOB.replace(f"--steps {STEPS}", f"--steps {2 * EVERY}")
    assert start(own, "train", *short.split(), "--out", str(folder)).wait() == 0
    file = own / "pointmaze-medium-navigate-v0.npz"
    shutil.copy(own / "pointmaze-medium-navigate-v0-val.npz", file)
    assert start(own, "resume", str(folder), "--steps", str(STEPS)).wait() == 2
    said = (own / "said.log").read_text()
    assert f"{file} is not the file this run began with" in said
    assert not Run(folder).manifest["resumed"]
