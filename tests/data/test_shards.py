"""Shards: which one a step learns from, and that nothing else changes."""

import hashlib
import shutil
import threading
from dataclasses import replace

import jax
import numpy as np
import pytest

import vinerl
from tiny import SPEC, dataset
from vinerl import disk
from vinerl.bench.run import jobs, material, running
from vinerl.bench.run.runs import Run
from vinerl.cli import main
from vinerl.data import files, shards
from vinerl.data.fold import fold
from vinerl.data.shards import Shards
from vinerl.envs import ogbench
from vinerl.errors import InputError
from vinerl.types import Spec

LENGTHS = (4, 6, 5)  # transitions of the three shards


def arrays(lengths, mark=0.0, width=3, **more):
    """Episodes of so many transitions, a final row after each; the first action tells the shard."""
    rows = sum(lengths) + len(lengths)
    ends = np.isin(np.arange(rows), np.cumsum(np.array(lengths) + 1) - 1)
    obs = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    action = np.full((rows, 2), mark, np.float32)
    found = {"observations": obs, "actions": action, "terminals": ends}
    return found | {"rewards": np.ones(rows, np.float32)} | more


def load(path):
    return files.to_transitions(files.read(path), path)


@pytest.fixture
def paths(tmp_path):
    for i, length in enumerate(LENGTHS):
        np.savez(tmp_path / f"mine-{i:03d}.npz", **arrays([2, length - 2], mark=i / 10))
    np.savez(tmp_path / "mine-000-val.npz", **arrays([9]))
    (tmp_path / "mine-003.npz.part").write_bytes(b"half")
    return shards.find(tmp_path)


def mark(data):
    return round(float(data.action[0, 0]) * 10)


def test_a_folder_has_its_shards_in_order_without_validation_and_half_files(paths):
    assert [p.name for p in paths] == ["mine-000.npz", "mine-001.npz", "mine-002.npz"]


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"there is no \.npz file in this folder"):
        shards.find(tmp_path)


def test_a_shard_keeps_its_turn_and_every_epoch_has_each_shard_once():
    turns = [shards.turn(step, 10, 5) for step in range(500)]
    assert all(len(set(turns[i : i + 10])) == 1 for i in range(0, 500, 10))
    epochs = [tuple(turns[i : i + 50 : 10]) for i in range(0, 500, 50)]
    assert all(sorted(epoch) == [0, 1, 2, 3, 4] for epoch in epochs)
    assert len(set(epochs)) > 5, "each epoch has an order of its own"
    assert turns != [shards.turn(step, 10, 5, seed=1) for step in range(500)]


def test_the_order_is_the_same_for_ever():
    """A run that began with another version must find its shards again."""
    turns = [shards.turn(step, 1000, 4) for step in range(0, 12_000, 1000)]
    assert turns == [2, 0, 1, 3, 3, 0, 2, 1, 2, 1, 0, 3]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_shard_is_measured_without_reading_it(tmp_path, compressed):
    path = tmp_path / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, **arrays([3, 4, 1]))
    size = shards.measure(path)
    assert size == (8, 3, 11, {"observations": (3,), "actions": (2,)}, {"rewards"})
    data = load(path)
    assert (data.count, data.terminal.sum(), len(data.obs)) == size[:3]


def test_a_shard_with_next_observations_has_a_row_more_an_episode(tmp_path):
    found = arrays([3, 2])
    obs = found.pop("observations")
    image = np.zeros((7, 4, 4, 3), np.uint8)
    for name, x in {"joints": obs, "camera": image}.items():
        found |= {f"observations/{name}": x, f"next_observations/{name}": np.roll(x, -1, axis=0)}
    np.savez(tmp_path / "a.npz", **found)
    size = shards.measure(tmp_path / "a.npz")
    shapes = {"observations/joints": (3,), "observations/camera": (4, 4, 3, "uint8")}
    assert size == (7, 2, 9, shapes | {"actions": (2,)}, {"rewards", "next_observations"})
    data = load(tmp_path / "a.npz")
    assert (data.count, data.terminal.sum(), len(data.obs["joints"])) == size[:3]


@pytest.mark.parametrize("damage", ["cut", "empty", "without"])
def test_a_damaged_shard_is_named_before_anything_is_trained(paths, damage):
    if damage == "without":
        np.savez(paths[1], actions=np.zeros((3, 2)))
    else:
        paths[1].write_bytes(paths[1].read_bytes()[: -40 if damage == "cut" else 0])
    with pytest.raises(InputError, match=f"{paths[1].name}: not readable as a part of a dataset"):
        Shards(load, paths, until=100, every=4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"width": 4}, r"observations \[4\], but .*mine-000.npz has observations \[3\]: keep"),
        ({"masks": True}, "masks, but .*mine-000.npz has no masks: keep only files of one kind"),
        ({"observations": np.uint8}, r"observations \[3, uint8\], but .* has observations \[3\]:"),
        ({"rewards": None}, "no rewards, but .*mine-000.npz has rewards: keep"),
    ],
)
def test_shards_of_different_kinds_are_refused(paths, change, said):
    """In one without masks every mask would be 1; pictures would become numbers."""
    found = arrays([3], **{n: x for n, x in change.items() if n == "width"})
    if "masks" in change:
        found["masks"] = np.ones(len(found["rewards"]))
    if "observations" in change:
        found["observations"] = found["observations"].astype(np.uint8)
    if "rewards" in change:
        del found["rewards"]
    np.savez(paths[2], **found)
    with pytest.raises(InputError, match=f"mine-002.npz has {said}"):
        Shards(load, paths, until=100, every=4)


def test_padding_changes_nothing_that_is_drawn():
    image = jax.ShapeDtypeStruct((4, 4, 3), np.uint8)
    data = dataset(spec=Spec({"image": image, "state": SPEC.obs}, 2))
    padded = shards.pad(data, 70, 90)
    assert [len(x) for x in jax.tree.leaves(padded)[:-1]] == [90, 90, 70, 70, 70, 70, 70]
    assert padded.count == 60
    assert padded.obs["image"].dtype == np.uint8
    starts = np.arange(60 - 4 + 1)
    batch, other = (fold(jax.device_put(x), starts, 4, 0.9) for x in (data, padded))
    jax.tree.map(np.testing.assert_array_equal, batch, other)
    assert shards.pad(data, 60, 64).action.tobytes() == data.action.tobytes()


def test_every_step_gets_its_shard_in_arrays_of_one_shape(paths):
    at = Shards(load, paths, until=40, every=4)
    shapes = set()
    for step in range(0, 40, 2):
        data, i = at(step), shards.turn(step, 4, 3)
        assert (mark(data), int(data.count)) == (i, LENGTHS[i])
        expected = load(paths[i])
        np.testing.assert_array_equal(data.obs[: len(expected.obs)], expected.obs)
        np.testing.assert_array_equal(data.row[: len(expected.row)], expected.row)
        shapes.add(tuple(x.shape for x in jax.tree.leaves(data)))
    assert shapes == {((8, 3), (6,), (6, 2), (6,), (6,), (6,), ())}


def test_a_run_that_goes_on_in_the_middle_gets_what_it_would_have_got(paths):
    whole = Shards(load, paths, until=60, every=4, seed=3)
    marks = {step: mark(whole(step)) for step in range(0, 60, 2)}
    for first in (2, 10, 26, 48):
        at = Shards(load, paths, until=60, every=4, seed=3)
        assert {step: mark(at(step)) for step in range(first, 60, 2)} == {
            step: found for step, found in marks.items() if step >= first
        }


class Watched:
    """Loading that notes what was read and can be held up."""

    def __init__(self):
        self.read, self.free = [], threading.Semaphore(0)

    def __call__(self, path):
        assert self.free.acquire(timeout=10)
        self.read.append((path.stem[-1], threading.current_thread() is threading.main_thread()))
        return load(path)


def test_the_next_shard_is_read_while_one_is_trained_on_and_none_after_the_last(paths):
    watched = Watched()
    at = Shards(watched, paths, until=10, every=4)
    order = [str(shards.turn(step, 4, 3)) for step in (0, 4, 8)]
    watched.free.release()
    at(0)
    at(2)  # the second is begun and not waited for
    assert [name for name, _ in watched.read] == order[:1]
    watched.free.release(9)
    next(iter(at.coming.values())).result(timeout=10)
    assert [name for name, _ in watched.read] == order[:2]
    for step in (4, 6, 8):
        at(step)
    assert [name for name, _ in watched.read] == order, "each once"
    assert not at.coming
    assert not any(main for _, main in watched.read)


def test_one_shard_is_read_once(paths):
    watched = Watched()
    watched.free.release(9)
    at = Shards(watched, paths[:1], until=40, every=4)
    assert {int(at(step).count) for step in range(0, 40, 4)} == {LENGTHS[0]}
    assert len(watched.read) == 1


def test_what_is_wrong_with_a_shard_is_said_when_its_turn_comes(paths):
    second = shards.turn(4, 4, 3)

    def checked(path):
        if path == paths[second]:
            raise InputError(f"{path}: actions leave [-1, 1]")
        return load(path)

    at = Shards(checked, paths, until=40, every=4)
    at(0)
    at(2)
    with pytest.raises(InputError, match=f"{paths[second].name}: actions leave"):
        at(4)


JOB = "--agent.actor-hidden 8 --agent.critic-hidden 8 --agent.batch-size 16 --agent.flow-steps 2"
JOB += " --agent.horizon 2 --log-every 2 --eval-every 0 --block 2"


def train(folder, out, *options):
    main(["train", "--data", str(folder), "--out", str(out), *JOB.split(), *options])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three files of a user's own, four steps on each."""
    folder, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for i, length in enumerate((12, 20, 16)):
        found = arrays([length, 7], mark=i / 10)
        normal = draw.normal(i, 1 + i, (len(found["actions"]), 3)).astype(np.float32)
        np.savez(folder / f"part{i}.npz", **found | {"observations": normal})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "EVERY", 4)
        yield folder


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    train(folder, out, "--steps", "12")
    return Run(out)


def test_a_run_on_a_folder_says_what_it_learned_from(folder, run):
    data = run.manifest["data"]
    assert (data["path"], data["origin"]) == (str(folder), "own")
    assert (data["transitions"], data["episodes"]) == (19 + 27 + 23, 6)
    told = data["shards"]
    assert (told["every"], told["seed"], told["normalised_by"]) == (4, 0, "part0.npz")
    lengths = {file["name"]: file["transitions"] for file in told["files"]}
    assert lengths == {"part0.npz": 19, "part1.npz": 27, "part2.npz": 23}
    for file in told["files"]:
        raw = (folder / file["name"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(raw), hashlib.sha256(raw).hexdigest())
    first = np.load(folder / "part0.npz")["observations"]
    np.testing.assert_allclose(vinerl.load(run).subject.normaliser.mean, first.mean(0), rtol=1e-5)


def test_a_folder_that_has_changed_is_refused_on_resuming(folder, run, capsys):
    (folder / "part2.npz").rename(folder / "part3.npz")
    with pytest.raises(SystemExit):
        main(["resume", str(run.path), "--steps", "16"])
    (folder / "part3.npz").rename(folder / "part2.npz")
    assert "the files this run began with: part2.npz, part3.npz differ" in capsys.readouterr().err
    assert not run.manifest["resumed"]


def test_a_run_on_a_folder_that_has_moved_goes_on_where_it_is_now(folder, run, tmp_path):
    copy, now = Run(shutil.copytree(run.path, tmp_path / "run")), tmp_path / "now"
    manifest = copy.manifest
    manifest["data"]["path"] = str(tmp_path / "gone")
    disk.write_sealed(copy.path / "manifest.json", manifest)
    with pytest.raises(InputError, match=r"gone: there is no such file or folder.* --data FILE"):
        running.resume(copy.path, 16)
    main(["resume", str(copy.path), "--steps", "16", "--data", str(shutil.copytree(folder, now))])
    assert copy.metrics[-1]["step"] == 16
    assert copy.manifest["data"] == manifest["data"] | {"path": str(now)}


def test_a_block_must_divide_the_steps_on_a_shard(folder, tmp_path, capsys):
    with pytest.raises(SystemExit):
        train(folder, tmp_path / "run", "--steps", "12", "--block", "6", "--log-every", "6")
    assert "--block 6 must divide 4, the steps on each of the 3 files" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_task_finds_its_folder_of_many_files_unless_there_is_the_one_file(tmp_path, monkeypatch):
    """Each is labelled: at the goal the reward is 0, elsewhere -1."""
    monkeypatch.setattr(files, "OFFICIAL", tmp_path / "official")
    many = tmp_path / "official/pointmaze-medium-navigate-100m-v0"
    many.mkdir(parents=True)
    job = jobs.resolve(jobs.Request(dir=tmp_path, fields={"horizon": 1}))
    env = ogbench.make(job.task.env)
    ogbench.reset(env, seed=0)
    goal = np.array(env.unwrapped.cur_goal_xy)
    env.close()
    for i, at_goal in enumerate((1, 3)):
        found = arrays([5, 4])
        del found["rewards"]
        place = np.where(np.arange(11)[:, None] == at_goal, goal, goal + 5)
        np.savez(many / f"pointmaze-medium-navigate-v0-{i:03d}.npz", **found, qpos=place)
    np.savez(many / "pointmaze-medium-navigate-v0-000-val.npz", **arrays([2]))

    found = material.data_of(job)
    assert (found.source.path, found.source.origin) == (many, "official")
    assert found.data.reward.tolist() == [-1, 0, -1, -1, -1, -1, -1, -1, -1]
    assert found.turns.every == shards.EVERY
    first = {shards.turn(step, shards.EVERY, 2): found.turns(step) for step in (0, shards.EVERY)}
    assert [first[i].reward.argmax() for i in range(2)] == [1, 3]
    resumed = material.data_of(replace(job, data=many))
    assert [resumed.turns(step).reward.argmax() for step in (0, shards.EVERY)] == [
        found.turns(step).reward.argmax() for step in (0, shards.EVERY)
    ]

    (many / "pointmaze-medium-navigate-v0-001.npz").rename(many.parent / f"{job.task.dataset}.npz")
    single = material.data_of(job)
    assert single.turns is None
    assert single.data.reward.argmax() == 3


@pytest.mark.slow
def test_a_run_that_is_taken_up_in_the_middle_of_a_shard_ends_the_same(folder, tmp_path):
    train(folder, tmp_path / "whole", "--steps", "22")
    train(folder, tmp_path / "run", "--steps", "6")
    for steps in ("10", "22"):
        main(["resume", str(tmp_path / "run"), "--steps", steps])
    whole, run = (Run(tmp_path / name) for name in ("whole", "run"))
    state = "checkpoints/state-000000022.safetensors"
    assert (whole.path / state).read_bytes() == (run.path / state).read_bytes()
    assert [line["step"] for line in run.metrics] == list(range(2, 23, 2))
    assert run.metrics == whole.metrics
