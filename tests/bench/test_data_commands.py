"""vinerl data ... and vinerl controllers ...: messages, exit codes, and what is left behind."""

import json
from functools import partial

import numpy as np
import pytest

from vinerl.bench.run import datasets, progress, tasks
from vinerl.cli import main
from vinerl.collect import controllers, recipes, walking
from vinerl.data import download, examine, files
from vinerl.envs import ogbench
from vinerl.errors import InputError

ANT = "antmaze-large-navigate-v0"
POINT = "pointmaze-medium-navigate-v0"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder without data, and no way to the official ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VINERL_DATA", str(tmp_path / "data"))
    for module in (download, files):
        monkeypatch.setattr(module, "OFFICIAL", tmp_path / "official")
    monkeypatch.setattr(download, "MIRRORS", (f"file://{tmp_path}/nowhere",))


@pytest.fixture
def vinerl(capsys):
    """Exit code, output and errors of a command."""

    def run(line):
        code = 0
        try:
            main(line.split())
        except SystemExit as stop:
            code = stop.code or 0
        return code, *capsys.readouterr()

    return run


def arrays(rows=20, width=3, **changes):
    draw = np.random.default_rng(0)
    found = {
        "observations": draw.normal(size=(rows, width)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": draw.normal(size=rows).astype(np.float32),
        "masks": (np.arange(rows) != 8).astype(np.float32),
        "terminals": np.arange(rows) % 10 == 9,
    }
    return found | changes


# Help, and what is not there


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("data", ["make", "get", "check", "show", "Download the official files"]),
        ("data --help", ["make", "get", "check", "show"]),
        ("data make --help", ["--episodes", "of the training file", "--controller", "--seed"]),
        ("data get --help", ["--mirror", "addresses to try", "--dir"]),
        ("data check --help", ["or in each of a folder", "FILE"]),
        ("data show --help", ["--out", "beside the file"]),
        ("controllers --help", ["train", "walks where it is told"]),
        ("controllers train --help", ["--steps", "--mazes", "episodes in each maze"]),
    ],
)
def test_help_names_what_can_be_asked_for(vinerl, line, words):
    code, out, _ = vinerl(line)
    assert code == 0
    said = " ".join(out.replace("│", " ").split())
    assert not [word for word in words if word not in said], said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("data mend x", "unknown command data 'mend'; there are make, get, check, show"),
        ("controllers fly", "unknown command controllers 'fly'; there are train"),
        ("data make antmaze-huge-v0", "there is no recipe for 'antmaze-huge-v0'; there are:"),
        (f"data make {POINT} --episodes 0", "--episodes 0: expected a whole number, 1 or more"),
        (f"data make {POINT} --controller x", f"--controller x: {POINT} has no use for one"),
        (f"data make {ANT} --controller x", "x: not a readable controller"),
        ("data make humanoidmaze-large-navigate-v0", "Give one with --controller FILE"),
        ("data get antmaze-huge-v0", "there is no official dataset 'antmaze-huge-v0'"),
        (f"data get {ANT} --mirror nowhere", "--mirror nowhere: not an address"),
        (f"data get {ANT} --dir official", "belongs to OGBench and is only read"),
        ("controllers train dog", "dog: only the ant can be taught here"),
        ("controllers train ant --steps 63", "--steps 63: 64 ants walk at once"),
        ("controllers train ant --mazes 0", "--mazes 0: expected a whole number, 1 or more"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(vinerl, tmp_path, line, message):
    code, _, error = vinerl(line)
    assert code == 2
    assert error.startswith("vinerl: ")
    assert message in error
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize(
    ("dataset", "makes"),
    [
        ("pointmaze-large-navigate-v0", True),
        (ANT, True),
        ("cube-double-play-v0", True),
        ("humanoidmaze-large-navigate-v0", False),
        ("cube-double-noisy-v0", False),
    ],
)
def test_a_missing_dataset_is_to_be_made_only_where_making_is_not_refused(vinerl, dataset, makes):
    """Nobody has a controller of a humanoid, and some datasets have no recipe."""
    task = next(name for name in ogbench.TASKS if tasks.named(name).dataset == dataset)
    code, _, error = vinerl(f"train --task {task}")
    assert (code, f"vinerl data get {dataset} " in error) == (2, True)
    assert (f"vinerl data make {dataset} " in error) == ("--make-data" in error) == makes


def test_without_a_controller_the_official_file_is_named(vinerl):
    task = "humanoidmaze-large-navigate-singletask-task1-v0"
    code, _, error = vinerl(f"train --task {task} --make-data")
    assert (code, "vinerl data get humanoidmaze-large-navigate-v0" in error) == (2, True)


def test_an_unknown_dataset_is_answered_with_all_names(vinerl):
    _, _, error = vinerl("data make cube")
    assert [line.strip() for line in error.splitlines()[1:]] == list(recipes.OFFICIAL)


# data make


def test_a_dataset_is_made_where_it_is_asked_for(vinerl, tmp_path):
    code, out, _ = vinerl(f"data make {POINT} --episodes 1 --seed 3 --workers 1 --dir here")
    assert code == 0
    made = {p.name for p in (tmp_path / "here").iterdir()}
    assert made == {f"{POINT}.npz", f"{POINT}-val.npz", f"{POINT}.json"}
    assert len(files.read(tmp_path / "here" / f"{POINT}.npz")["actions"]) == 1001
    card = json.loads((tmp_path / "here" / f"{POINT}.json").read_text())
    assert (card["recipe"]["episodes"], card["recipe"]["seed"]) == (1, 3)
    assert f"here/{POINT}.npz (0 MB; in an episode: " in out
    assert "making data 2/2" in out

    code, _, error = vinerl(f"data make {POINT} --episodes 1 --dir here")
    assert code == 2
    assert "exists and is not overwritten" in error


# data get


class Bar:
    """In the place of rich's display: what it was told."""

    running = 0

    def __init__(self, log):
        self.log = log

    def start(self):
        Bar.running += 1
        assert Bar.running == 1, "rich shows one at a time"

    def stop(self):
        Bar.running -= 1

    def add_task(self, what, total, completed, note):
        self.log.append((what, total))
        return 0

    def update(self, task, completed, total, note):
        self.log.append(completed)


def test_every_file_has_a_bar_of_its_own_size(vinerl, monkeypatch):
    """2.5 MB, then 0.4 MB: the megabyte that is begun counts when all is here."""

    def fetch(dataset, folder, mirrors, show):
        for done in (1_000_000, 2_499_999, 2_500_000):
            show(done, 2_500_000)
        for done in (300_000, 400_000):
            show(done, 400_000)
        return [folder / f"{dataset}.npz"]

    log = []
    monkeypatch.setattr(progress, "_live", lambda: Bar(log))
    monkeypatch.setattr(download, "fetch", fetch)
    code, out, _ = vinerl(f"data get {ANT} --dir here")
    assert (code, out) == (0, f"here/{ANT}.npz\n")
    assert log == [("MB", 3), 1, 2, 3, ("MB", 1), 0, 1]
    assert Bar.running == 0


def test_a_bar_is_taken_away_when_a_download_fails(vinerl, monkeypatch):
    def fetch(dataset, folder, mirrors, show):
        show(1, 2)
        raise InputError("gone")

    monkeypatch.setattr(progress, "_live", lambda: Bar([]))
    monkeypatch.setattr(download, "fetch", fetch)
    code, _, error = vinerl(f"data get {ANT}")
    assert (code, error) == (2, "vinerl: gone\n")
    assert Bar.running == 0


def test_official_files_come_from_a_mirror_with_a_card(vinerl, tmp_path):
    assert ANT in ogbench.DATASETS
    (tmp_path / "mirror").mkdir()
    named = {k: x for k, x in arrays().items() if k not in ("rewards", "masks")}
    for name in (f"{ANT}.npz", f"{ANT}-val.npz"):
        np.savez(tmp_path / "mirror" / name, **named)
    code, out, _ = vinerl(f"data get {ANT} --mirror file://{tmp_path}/mirror")
    assert code == 0
    paths = [tmp_path / "data" / f"{ANT}{part}.npz" for part in ("", "-val")]
    assert out.splitlines()[-2:] == list(map(str, paths))
    assert out.count("MB 1/1") >= 1
    for path in paths:
        np.testing.assert_array_equal(files.read(path)["actions"], named["actions"])
    assert json.loads((tmp_path / "data" / f"{ANT}.json").read_text())["origin"] == "official"


def test_a_mirror_without_the_file_is_named_with_the_other_ways(vinerl, tmp_path):
    code, _, error = vinerl(f"data get {ANT} --mirror file://{tmp_path}/nothing")
    assert code == 2
    assert f"file://{tmp_path}/nothing/{ANT}.npz" in error
    assert f"vinerl data make {ANT}" in error


# data check, data show


def test_a_good_file_is_described_and_read_once(vinerl, monkeypatch):
    np.savez("good.npz", **arrays())
    reads, read = [], files.read
    monkeypatch.setattr(files, "read", lambda path: reads.append(path) or read(path))
    code, out, _ = vinerl("data check good.npz")
    assert code == 0
    assert "2 episodes, 18 transitions" in out
    assert "nothing wrong" in out.splitlines()[-1]
    assert len(reads) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.full((20, 2), 3.0)}, "actions leave [-1, 1] in 20 of 20 rows"),
        ({"rewards": np.zeros(19)}, "rewards has shape (19,), expected [rows]"),
        ({"observations": np.full((20, 3), np.nan)}, "observations is NaN or infinite in 20"),
    ],
)
def test_a_file_that_training_would_refuse_exits_with_one(vinerl, changes, message):
    np.savez("bad.npz", **arrays(**changes))
    code, out, _ = vinerl("data check bad.npz")
    assert code == 1
    assert f"wrong  {message}" in out


def test_what_is_merely_odd_exits_with_zero(vinerl):
    np.savez("odd.npz", **arrays(rewards=np.zeros(20, np.float32)))
    assert {f.level for f in examine.report(files.Path("odd.npz")).findings} == {"odd"}
    assert vinerl("data check odd.npz")[0] == 0


def test_each_file_of_a_folder_is_checked(vinerl, tmp_path):
    for name in ("a", "b", "c-val"):
        np.savez(tmp_path / f"{name}.npz", **arrays())
    code, out, _ = vinerl("data check .")
    assert code == 0
    assert [line for line in out.splitlines() if line.endswith(".npz")] == ["a.npz", "b.npz"]
    assert out.splitlines()[-1] == "2 files, none with something wrong"

    np.savez(tmp_path / "b.npz", **arrays(actions=np.full((20, 2), 3.0)))
    code, out, _ = vinerl("data check .")
    assert code == 1
    assert out.splitlines()[-1] == "2 files, 1 with something wrong"
    assert out.count("wrong  actions leave [-1, 1]") == 1


def test_files_of_a_folder_that_do_not_fit_together_are_refused(vinerl, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays())
    np.savez(tmp_path / "b.npz", **arrays(width=4))
    code, _, error = vinerl("data check .")
    assert code == 2
    assert "b.npz has observations [4], but a.npz has observations [3]" in error


@pytest.mark.parametrize("line", ["data check nothing.npz", "data show nothing.npz"])
def test_a_file_that_is_not_there_is_no_success(vinerl, line):
    code, out, error = vinerl(line)
    assert code in (1, 2)
    assert "there is no such file" in out + error


def test_an_empty_folder_is_refused(vinerl, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, error = vinerl("data check empty")
    assert code == 2
    assert "there is no .npz file in this folder" in error


def test_a_picture_is_drawn_beside_the_file_or_where_it_is_asked_for(vinerl, tmp_path):
    np.savez("good.npz", **arrays())
    for line, name in {"": "good.png", "--out other.png": "other.png"}.items():
        code, out, _ = vinerl(f"data show good.npz {line}")
        assert (code, out.strip()) == (0, name)
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


# controllers train

SHORT = {"ants": 8, "updates": 1, "random_steps": 16, "hidden": 8, "batch_size": 4}


def test_a_controller_is_left_with_a_card(vinerl, tmp_path, monkeypatch):
    """How well it walks is another test's: here it is who is sent into which maze, how often."""
    sent = []
    trial = lambda path, size, episodes: sent.append((path, size, episodes)) or {"goals": 0.5}
    monkeypatch.setattr(datasets, "trial", trial)
    monkeypatch.setattr(walking, "look", lambda *_, **__: (0.125, 3))
    monkeypatch.setattr(walking, "Lesson", partial(walking.Lesson, **SHORT))
    code, out, _ = vinerl("controllers train ant --out made --steps 32 --seed 5 --mazes 2")
    assert code == 0
    path = tmp_path / "made" / "ant.safetensors"
    weights = controllers.read(path, "ant")
    assert weights["0.w"].shape == (29, 8)
    card = json.loads(path.with_suffix(".json").read_text())
    assert (card["lesson"]["steps"], card["lesson"]["seed"], card["lesson"]["ants"]) == (32, 5, 8)
    assert (card["metres_a_step"], card["falls"]) == (0.125, "3 in 12800 steps")
    assert card["mazes"] == {s: {"goals": 0.5} for s in ("medium", "large", "giant")}
    assert [(p.resolve(), *rest) for p, *rest in sent] == [
        (path, size, 2) for size in ("medium", "large", "giant")
    ]
    assert out.splitlines()[-1] == "made/ant.safetensors"
    assert "walking 32/32" in out

    code, _, error = vinerl("controllers train ant --out made --steps 32")
    assert code == 2
    assert "made/ant.safetensors exists and is not overwritten" in error


@pytest.mark.slow
def test_a_trial_sends_the_controller_through_a_maze(tmp_path):
    draw = np.random.default_rng(0)
    size = {"0.w": (29, 8), "0.b": (8,), "mean.w": (8, 8), "mean.b": (8,)}
    weights = {name: draw.normal(size=s).astype(np.float32) for name, s in size.items()}
    controllers.save(tmp_path / "ant.safetensors", weights, "ant")
    found = datasets.trial(tmp_path / "ant.safetensors", "medium", 1)
    assert found
    assert all(np.isfinite(value) for value in found.values())
