"""Making a dataset: the same files whoever makes them, however often they are interrupted."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ogbench.utils import load_dataset

from vinerl import disk
from vinerl.collect import make, recipes
from vinerl.collect.mazes import Maze
from vinerl.data import files
from vinerl.envs.workers import Workers
from vinerl.errors import InputError, WorkerError

RECIPE = replace(recipes.official("pointmaze-medium-navigate-v0"), episodes=24, rows=21)
NAMES = ["pointmaze-medium-navigate-v0.json", "pointmaze-medium-navigate-v0.npz"]
NAMES = ["pointmaze-medium-navigate-v0-val.npz", *NAMES]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files of a tiny recipe, made by two processes, and what was shown meanwhile."""
    folder, shown = tmp_path_factory.mktemp("data") / "new", []
    train = make.make(RECIPE, folder, 2, lambda *progress: shown.append(progress))
    card = json.loads(train.with_suffix(".json").read_text())
    return SimpleNamespace(train=train, folder=folder, shown=shown, card=card)


def content(folder):
    return json.loads((folder / NAMES[1]).read_text())["content"]


@pytest.mark.parametrize("processes", [1, 5])
def test_any_number_of_processes_makes_the_same_files(made, tmp_path, processes):
    make.make(RECIPE, tmp_path, processes)
    assert content(tmp_path) == made.card["content"]
    for name in (NAMES[0], NAMES[2]):
        assert (tmp_path / name).read_bytes() == (made.folder / name).read_bytes()


def test_the_files_hold_the_episodes_in_order(made):
    parts = [files.read(made.folder / name) for name in (NAMES[2], NAMES[0])]
    assert [len(part["actions"]) for part in parts] == [24 * 21, 2 * 21]
    maze = Maze(RECIPE)
    for number in (0, 13, 23, 24, 25):
        part, first = (parts[0], 21 * number) if number < 24 else (parts[1], 21 * (number - 24))
        for name, expected in maze.episodes([number])[0][0].items():
            assert part[name].dtype == expected.dtype
            np.testing.assert_array_equal(part[name][first : first + 21], expected)


def test_ogbench_itself_loads_them(made):
    for name, episodes in ((NAMES[2], 24), (NAMES[0], 2)):
        data, arrays = (
            load_dataset(made.folder / name, add_info=True),
            files.read(made.folder / name),
        )
        files.check(arrays, made.folder / name)
        assert data["observations"].shape == data["next_observations"].shape == (episodes * 20, 2)
        used = ~arrays["terminals"]
        np.testing.assert_array_equal(data["actions"], arrays["actions"][used])
        np.testing.assert_array_equal(data["qpos"], arrays["qpos"][used])


def test_a_card_says_how_they_were_made(made):
    card = made.card
    assert card["origin"] == "regenerated"
    assert card["recipe"] == asdict(RECIPE)
    assert card["sha256"] == {n: disk.sha256(made.folder / n) for n in (NAMES[2], NAMES[0])}
    assert set(card["versions"]) == {"mujoco", "dm-control", "ogbench", "numpy", "python"}
    goals = [Maze(RECIPE).episodes([n])[0][1]["goals"] for n in range(24)]
    assert card["per_episode"] == {"goals": np.mean(goals)}
    assert made.shown[0] == (0, 26)
    assert made.shown[-1] == (26, 26)
    assert sorted(p.name for p in made.folder.iterdir()) == NAMES, "and nothing else is left"


@pytest.mark.parametrize("name", NAMES)
def test_an_existing_file_is_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(InputError, match=f"{name} exists and is not overwritten"):
        make.make(RECIPE, tmp_path, 1)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, "precious")]


class Enough(Exception):
    pass


def interrupted(folder, after):
    """A making that ends once so many episodes are there."""

    def show(done, _):
        if done >= after:
            raise Enough

    with pytest.raises(Enough):
        make.make(RECIPE, folder, 1, show)


def test_pieces_that_are_there_are_not_made_again(made, tmp_path):
    interrupted(tmp_path, after=10)
    making = tmp_path / "pointmaze-medium-navigate-v0.making"
    (piece,) = making.glob("0*.npz")
    before, shown = piece.stat().st_mtime_ns, []

    def show(done, total):
        shown.append(done)
        assert piece.stat().st_mtime_ns == before

    make.make(RECIPE, tmp_path, 2, show)
    assert shown[0] == 10
    assert content(tmp_path) == made.card["content"]
    assert sorted(p.name for p in tmp_path.iterdir()) == NAMES


def test_a_damaged_piece_is_made_again(made, tmp_path):
    interrupted(tmp_path, after=20)
    making = tmp_path / "pointmaze-medium-navigate-v0.making"
    first, second = sorted(making.glob("0*.npz"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-100])
    make.make(RECIPE, tmp_path, 1)
    assert content(tmp_path) == made.card["content"]


def test_the_beginning_of_another_recipe_is_refused_with_what_differs(tmp_path):
    interrupted(tmp_path, after=10)
    with pytest.raises(
        InputError, match=r"another dataset: seed was 0, now 1\. Remove that folder"
    ):
        make.make(replace(RECIPE, seed=1), tmp_path, 1)


def test_an_interrupted_move_goes_on(made, tmp_path, monkeypatch):
    """Killed after the validation file got its name: the training file follows."""
    replace_, moved = os.replace, []

    def once(source, target):
        if "making" in str(source) and str(target).endswith("v0.npz"):
            raise Enough
        moved.append(target)
        replace_(source, target)

    monkeypatch.setattr(os, "replace", once)
    with pytest.raises(Enough):
        make.make(RECIPE, tmp_path, 2)
    monkeypatch.undo()
    assert (tmp_path / NAMES[0]).exists()
    assert not (tmp_path / NAMES[2]).exists()
    make.make(RECIPE, tmp_path, 2)
    assert content(tmp_path) == made.card["content"]
    assert disk.sha256(tmp_path / NAMES[2]) == made.card["sha256"][NAMES[2]]
    assert sorted(p.name for p in tmp_path.iterdir()) == NAMES


def test_a_worker_that_fails_ends_it_and_nothing_is_lost(tmp_path):
    lost = replace(RECIPE, env="pointmaze-nowhere-v0")
    with pytest.raises(WorkerError, match=r"vinerl\.collect\.worker"):
        make.make(lost, tmp_path, 2)
    assert not list(tmp_path.glob("*.npz"))


@pytest.mark.parametrize(
    ("changes", "processes", "message"),
    [({}, 0, "--workers 0: expected"), ({"seed": -1}, 1, "--seed -1: expected")],
)
def test_what_cannot_be_made_is_refused_before_anything_is_written(
    tmp_path, changes, processes, message
):
    with pytest.raises(InputError, match=message):
        make.make(replace(RECIPE, **changes), tmp_path, processes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part", ["000010.npz", "json"])
def test_a_full_disk_is_said_and_nothing_is_lost(made, tmp_path, monkeypatch, part):
    """While pieces are made, and while the files are assembled."""
    write = disk.write

    def full(path, data):
        if path.name.endswith(part) and path.name != "recipe.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(
        InputError, match=r"the disk is full\. Make room and ask for the same again"
    ):
        make.make(RECIPE, tmp_path, 1)
    monkeypatch.undo()
    shown = []
    make.make(RECIPE, tmp_path, 1, lambda done, _: shown.append(done))
    assert shown[0] == (10 if part == "000010.npz" else 26)
    assert content(tmp_path) == made.card["content"]


def test_another_trouble_of_the_disk_is_not_called_a_full_one(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make.make(RECIPE, tmp_path / "file", 1)


def test_who_is_killed_while_clearing_up_is_done_when_asked_again(made, tmp_path, monkeypatch):
    unlink = Path.unlink

    def once(path, **options):
        if path.name == "000010.npz":
            raise Enough
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", once)
    with pytest.raises(Enough):
        make.make(RECIPE, tmp_path, 2)
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 4
    make.make(RECIPE, tmp_path, 2, lambda *_: pytest.fail("nothing is left to be made"))
    assert content(tmp_path) == made.card["content"]
    assert sorted(p.name for p in tmp_path.iterdir()) == NAMES


def test_files_that_another_process_made_meanwhile_are_not_made_again(tmp_path, monkeypatch):
    """It had the folder when we looked for its files, and gave it back before we took it."""
    begin = make._begin

    def late(making, recipe):
        (tmp_path / NAMES[2]).write_text("precious")
        begin(making, recipe)

    monkeypatch.setattr(make, "_begin", late)
    monkeypatch.setattr(make, "collect", lambda *_: pytest.fail("is made again"))
    with pytest.raises(InputError, match="exists and is not overwritten"):
        make.make(RECIPE, tmp_path, 1)
    assert (tmp_path / NAMES[2]).read_text() == "precious"


def test_a_worker_that_is_killed_ends_it_and_it_goes_on(made, tmp_path, monkeypatch):
    """Out of memory, say. What the first request brought stays."""
    send, sent = Workers.send, []

    def deadly(workers, w, header, arrays=()):
        send(workers, w, header, arrays)
        sent.append(header)
        if len(sent) == 2:
            workers.kill()

    monkeypatch.setattr(Workers, "send", deadly)
    with pytest.raises(WorkerError, match="has gone, exit code -9"):
        make.make(RECIPE, tmp_path, 1)
    monkeypatch.undo()
    shown = []
    make.make(RECIPE, tmp_path, 1, lambda done, _: shown.append(done))
    assert shown[0] == 10
    assert content(tmp_path) == made.card["content"]


def command(recipe, folder):
    """To make it in another process."""
    code = "import sys, json; from pathlib import Path; from vinerl.collect import make, recipes\n"
    # Whoever runs the tests in the background ignores Ctrl-C, and so would this process.
    code += "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "make.make(recipes.Recipe(**json.loads(sys.argv[1])), Path(sys.argv[2]), 2)"
    return [sys.executable, "-c", code, recipe.to_json(), str(folder)]


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [0, 1])
def test_ctrl_c_ends_it_soon_and_quietly(tmp_path, pieces):
    """A worker that stayed would hold the pipe open; one that was disturbed would complain."""
    making = tmp_path / "pointmaze-medium-navigate-v0.making"
    endless = replace(RECIPE, episodes=10_000, rows=1001)
    process = subprocess.Popen(
        command(endless, tmp_path), stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    while not (making / "recipe.json").exists() or len(list(making.glob("0*.npz"))) < pieces:
        time.sleep(0.01)
    time.sleep(0.1)
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - begin < 10
    assert said.count("KeyboardInterrupt") == 1, said
    assert not (making / "lock.json").exists()


@pytest.mark.slow
def test_killed_in_the_middle_and_asked_again_gives_the_same_files(made, tmp_path):
    """kill -9 of everything, early and with one and two pieces there; then it goes on."""
    slow, making = replace(RECIPE, rows=801), tmp_path / "pointmaze-medium-navigate-v0.making"
    for pieces in (0, 1, 2):
        process = subprocess.Popen(command(slow, tmp_path), start_new_session=True)
        while len(list(making.glob("0*.npz"))) < pieces or not making.exists():
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / NAMES[2]).exists()
    subprocess.run(command(slow, tmp_path), check=True)
    again = tmp_path / "again"
    make.make(slow, again, 2)
    assert content(tmp_path) == content(again)
    shutil.rmtree(again)
    assert sorted(p.name for p in tmp_path.iterdir()) == NAMES
