"""What a run learns from: files of one's own, what is put right about them, and which it is."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import vinerl
from vinerl import disk
from vinerl.bench.run import (
    intervals,
    jobs,
    manifests,
    material,
    provenance,
    running,
    runs,
    tasks,
)
from vinerl.bench.run.policy import Policy
from vinerl.bench.run.runs import Run
from vinerl.cli import main
from vinerl.data import files, normalise
from vinerl.errors import InputError
from vinerl.train import evaluate

TINY = "--agent.actor-hidden 8 --agent.critic-hidden 8 --agent.batch-size 16 --agent.flow-steps 2"
TINY = [*TINY.split(), "--steps", "4", "--workers", "1"]


def episodes(rows=40, length=10):
    """Rows of an episode follow each other; the last of each is marked."""
    draw = np.random.default_rng(0)
    return {
        "observations": draw.normal(5.0, 3.0, (rows, 3)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": draw.normal(size=rows).astype(np.float32),
        "terminals": np.arange(rows) % length == length - 1,
    }


def train(folder, *options):
    files = ["--data", str(folder / "mine.npz"), "--out", str(folder / "run")]
    main(["train", *files, *TINY, *options])


@pytest.fixture(scope="module")
def rewarded(tmp_path_factory):
    """Trained on a file with rewards, one of its two members with an alpha that blows up."""
    folder = tmp_path_factory.mktemp("rewarded")
    np.savez(folder / "mine.npz", **episodes())
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
        train(folder, "--agent.alpha", "1,1e30")
    return Run(folder / "run"), "\n".join(said)


@pytest.fixture(scope="module")
def pictured(tmp_path_factory):
    """Trained on a file of pictures and numbers with next_observations, in chunks of two."""
    folder = tmp_path_factory.mktemp("pictured")
    arrays = episodes()
    obs = arrays.pop("observations")
    image = np.random.default_rng(1).integers(0, 256, (len(obs), 8, 8, 3), np.uint8)
    for name, x in {"joints": obs, "camera": image}.items():
        arrays[f"observations/{name}"] = x
        arrays[f"next_observations/{name}"] = np.roll(x, -1, axis=0)
    np.savez(folder / "mine.npz", **arrays)
    train(folder, "--agent.horizon", "2")
    return Run(folder / "run"), obs, image


def test_a_run_ends_with_manifest_and_curve_and_without_evaluation(rewarded):
    run, said = rewarded
    manifest = run.manifest
    assert manifest["ended"]
    assert manifest["task"] is None
    assert manifest["data"]["origin"] == "own"
    assert (manifest["data"]["transitions"], manifest["data"]["episodes"]) == (36, 4)
    assert 4 % manifest["block"] == 0
    assert (run.path / "curve.png").stat().st_size > 1000
    assert not (run.path / "final.json").exists()
    assert not any(name.startswith("eval/") for line in run.metrics for name in line)
    assert run.metrics[-1]["step"] == 4
    assert run.success is None
    assert "vinerl evaluate" not in said


def test_observations_are_standardised_by_default(rewarded):
    run, _ = rewarded
    assert run.manifest["run"]["normalise"] == "standard"
    assert run.manifest["from"]["normalise"] == "default for own data"
    mean = vinerl.load(run).subject.normaliser.mean
    np.testing.assert_allclose(mean, episodes()["observations"].mean(axis=0), rtol=1e-5)


def test_the_statistics_are_numpys_to_the_last_bit():
    """So that a run goes on with the same ones whatever they are computed from."""
    obs = {"a": episodes(rows=1000)["observations"], "b": np.full((1000, 2), 0.1, np.float32)}
    fitted = normalise.fit(obs | {"camera": np.zeros((1000, 8, 8, 3), np.uint8)})
    for name, x in obs.items():
        std = x.std(axis=0, dtype=np.float64)
        mean = x.mean(axis=0, dtype=np.float64).astype(np.float32)
        np.testing.assert_array_equal(fitted.mean[name], mean)
        np.testing.assert_array_equal(
            fitted.std[name], np.where(std > 1e-6, std, 1).astype(np.float32)
        )
        assert fitted.mean[name].dtype == fitted.std[name].dtype == np.float32
    assert (fitted.mean["camera"].shape, fitted.std["camera"].shape) == ((8, 8, 3), (8, 8, 3))
    assert fitted.mean["camera"].max() == 0
    assert fitted.std["camera"].min() == 1


def test_a_frozen_member_is_marked_and_said(rewarded):
    run, said = rewarded
    good, bad = run.manifest["members"]
    assert (good["alpha"], good["status"]) == (1, "learning")
    assert (bad["status"], bad["frozen_at"]) == ("not finite", 0)
    assert "member 1 (seed 0, alpha 1e+30) is frozen at step 0: not finite" in said
    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def test_a_picture_that_cannot_be_drawn_does_not_keep_a_run_from_ending(
    tmp_path, monkeypatch, capsys
):
    def fail(*_):
        raise ValueError("no such font")

    monkeypatch.setattr(runs, "draw", fail)
    np.savez(tmp_path / "mine.npz", **episodes())
    train(tmp_path, "--agent.alpha", "1,1e30")
    assert Run(tmp_path / "run").manifest["ended"]
    said = capsys.readouterr().out
    assert "its pictures could not be drawn (no such font); vinerl plot" in said


def test_a_file_with_next_observations_uses_every_row(pictured):
    run, *_ = pictured
    assert (run.manifest["data"]["transitions"], run.manifest["data"]["episodes"]) == (40, 4)
    assert run.manifest["spec"]["obs"] == {
        "camera": {"shape": [8, 8, 3], "dtype": "uint8"},
        "joints": {"shape": [3], "dtype": "float32"},
    }
    assert run.manifest["members"][0]["status"] == "learning"


def test_a_policy_for_trees_takes_trees_and_gives_chunks(pictured):
    run, obs, image = pictured
    policy = vinerl.load(run)
    assert policy({"camera": image[0], "joints": obs[0]}).shape == (2, 2)
    assert policy({"camera": image[:5], "joints": obs[:5]}).shape == (5, 2, 2)
    first, other = (vinerl.load(run)({"camera": x, "joints": obs[0]}) for x in image[:2])
    assert not np.array_equal(first, other)


@pytest.fixture
def moved(rewarded, tmp_path):
    """A copy of a run, and of its file under another name; where that was, there is nothing."""
    run = Run(shutil.copytree(rewarded[0].path, tmp_path / "run"))
    manifest = run.manifest
    file = Path(shutil.copy(manifest["data"]["path"], tmp_path / "other-name.npz"))
    manifest["data"]["path"] = str(tmp_path / "cluster" / "mine.npz")
    disk.write_sealed(run.path / "manifest.json", manifest)
    return run, file


def test_a_moved_run_goes_on_with_its_data_where_they_are_now(moved):
    run, file = moved
    with pytest.raises(InputError, match=rf"mine.npz: .*resume {run.path} --data FILE says where"):
        running.resume(run.path, 8)
    assert not run.manifest["resumed"]
    main(["resume", str(run.path), "--steps", "8", "--data", str(file)])
    manifest = run.manifest
    assert manifest["ended"]
    assert run.metrics[-1]["step"] == 8
    assert manifest["data"]["path"] == str(file)
    assert manifests.again(manifest, run.path, None).data == file, "the next time without asking"


def test_a_moved_run_does_not_go_on_with_other_data(moved, tmp_path):
    run, file = moved
    before = (run.path / "manifest.json").read_bytes()
    np.savez(file.with_name("changed.npz"), **episodes() | {"rewards": np.zeros(40)})
    (tmp_path / "folder").mkdir()
    shutil.copy(file, tmp_path / "folder")
    for other in ("changed.npz", "folder"):
        with pytest.raises(InputError, match=f"{other} is not the file this run began with"):
            running.resume(run.path, 8, data=tmp_path / other)
    with pytest.raises(InputError, match=r"nothing.npz: there is no such file or folder"):
        running.resume(run.path, 8, data=tmp_path / "nothing.npz")
    assert (run.path / "manifest.json").read_bytes() == before


def test_there_is_nothing_to_evaluate_in(rewarded, capsys):
    run, _ = rewarded
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", str(run.path)])
    assert stop.value.code == 2
    assert "was trained on a file and has no environment" in capsys.readouterr().err


def test_stopping_on_a_bad_member_keeps_what_there_is(tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", **episodes())
    with pytest.raises(SystemExit) as stop:
        train(tmp_path, "--agent.alpha", "1,1e30", "--stop-on-bad", "--block", "1")
    assert stop.value.code == 2
    assert "--stop-on-bad: seed 0, alpha 1e+30 is not finite" in capsys.readouterr().err
    run = Run(tmp_path / "run")
    assert run.manifest["members"][1]["status"] == "not finite"
    assert run.manifest["ended"] is None
    assert vinerl.load(run)(np.zeros(3)).shape == (2,)


def test_a_horizon_longer_than_every_episode_is_refused(tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", **episodes())
    with pytest.raises(SystemExit):
        train(tmp_path, "--agent.horizon", "500")
    assert "no episode is as long as --agent.horizon 500" in capsys.readouterr().err


def test_a_number_a_row_is_an_observation_too(tmp_path):
    """Also through a checkpoint: its shape is ()."""
    arrays = episodes() | {"observations": episodes()["observations"][:, 0]}
    np.savez(tmp_path / "flat.npz", **arrays)
    main(["train", "--data", str(tmp_path / "flat.npz"), *TINY, "--out", str(tmp_path / "run")])
    assert vinerl.load(tmp_path / "run")(np.float32(0.3)).shape == (2,)


# What is put right

LOW, HIGH = np.array([0.0, -3.0]), np.array([10.0, 1.0])


def out_of_the_box(low=LOW, high=HIGH, bad_row=None):
    """Actions from low to high, both of which are taken.

    The one of the last row is not taken and has no say, and so with a bad observation in `bad_row`
    have the one there and the one before.
    """
    arrays = episodes()
    unit = (arrays["actions"] + 1) / 2
    unit[3], unit[4] = 0, 1
    arrays["actions"] = (low + unit * (high - low)).astype(np.float32)
    arrays["actions"][-1] = 99
    if bad_row:
        arrays["observations"][bad_row, 1] = np.nan
        arrays["actions"][bad_row - 1 : bad_row + 1] = [[1000, 1000], [-1000, -1000]]
    return arrays


def into_the_box(actions, low=LOW, high=HIGH):
    return 2 * (actions - low) / (high - low) - 1


def resolve(path, **options):
    return jobs.resolve(jobs.request("vine", {"data": path} | options))


@pytest.fixture(scope="module")
def repaired(tmp_path_factory):
    """Trained in chunks of two on a file with a bad row and with actions in [0, 10] x [-3, 1]."""
    folder, said = tmp_path_factory.mktemp("repaired"), []
    np.savez(folder / "mine.npz", **out_of_the_box(bad_row=14))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
        train(
            folder, "--agent.horizon", "2", "--drop-bad-rows", "--rescale-actions", "--block", "2"
        )
    return Run(folder / "run"), "\n".join(said)


def test_the_manifest_says_what_was_put_right(repaired):
    """Rows 10 to 19 are an episode: without row 14 it is rows 10 to 13, and 15 to 19."""
    run, said = repaired
    data = run.manifest["data"]
    assert (data["dropped"], data["transitions"], data["episodes"]) == (1, 34, 5)
    assert data["actions"] == {"low": LOW.tolist(), "high": HIGH.tolist()}
    assert "nothing NaN or infinite is learned from; rows left out: 1" in said


def test_without_asking_nothing_is_put_right(rewarded):
    data = rewarded[0].manifest["data"]
    assert (data["dropped"], data["actions"]) == (0, None)


def test_actions_are_learned_in_the_box(repaired):
    """Also by a run that is taken up again, whose manifest has what was asked for."""
    run, _ = repaired
    job = manifests.again(run.manifest, run.path, steps=None)
    assert (job.drop_bad_rows, job.rescale_actions) == (True, True)
    data = material.data_of(job).data
    taken = [row for row in range(40) if row % 10 != 9 and row not in (13, 14)]
    expected = into_the_box(out_of_the_box()["actions"][taken])
    assert (expected.min(), expected.max()) == (-1, 1)
    np.testing.assert_allclose(data.action, expected, atol=2e-5)


def test_a_policy_acts_in_the_units_of_the_data(repaired):
    """Every step of a chunk; without the map the same policy acts in [-1, 1]."""
    trained = runs.load(repaired[0])
    inside = Policy(trained._replace(subject=trained.subject._replace(box=None)), 0)
    obs = np.random.default_rng(2).normal(5, 3, (200, 3)).astype(np.float32)
    action, raw = vinerl.load(repaired[0])(obs), inside(obs)
    assert action.shape == (200, 2, 2)
    assert np.abs(raw).max() <= 1
    assert raw.std() > 0.1
    np.testing.assert_allclose(into_the_box(action), raw, atol=1e-5)
    assert (action >= LOW).all()
    assert (action <= HIGH).all()
    assert action[..., 0].max() > 5, "which no action in [-1, 1] is"


def test_an_action_at_the_edge_does_not_leave_the_data(repaired):
    """In float32 low + (high - low) is not always high."""
    low, high = np.random.default_rng(0).uniform([[-1], [0]], [[0], [1]], (2, 1000))
    low, high = low.astype(np.float32), high.astype(np.float32)
    assert (low + (high - low) > high).any()
    subject = runs.load(repaired[0]).subject
    make = lambda cfg, spec: subject.make(cfg, spec)._replace(act=lambda policy, obs, key: policy)
    edges = subject._replace(make=make, box=runs.Box(low, high))
    act = edges.agent_of()(jax.tree.map(lambda x: x[0], subject.members)).act
    for edge, expected in ((-1, low), (1, high)):
        found = np.asarray(act(np.full((1, 2000), edge, np.float32), None, None))
        np.testing.assert_allclose(found, np.tile(expected, (1, 2)), atol=1e-6)
        assert (found >= np.tile(low, 2)).all()
        assert (found <= np.tile(high, 2)).all()


def test_an_environment_gets_the_units_of_the_data_too(repaired):
    """Through what evaluations and films act with."""
    trained = runs.load(repaired[0])
    obs, zeros = np.zeros((1, 5, 3), np.float32), np.zeros((1, 5), np.int32)
    how = (trained.subject.members, trained.policies, np.int32(1), obs, zeros, zeros)
    action, raw = (
        np.asarray(evaluate.acting(subject.agent_of())(*how)).reshape(5, 2, 2)
        for subject in (trained.subject, trained.subject._replace(box=None))
    )
    np.testing.assert_allclose(into_the_box(action), raw, atol=1e-5)


@pytest.fixture
def folder(tmp_path):
    """Two files: the second has another range, a bad reward in row 3, and two bad states."""
    (tmp_path / "parts").mkdir()
    second = out_of_the_box(low=np.array([-5.0, -2.0]), high=np.array([4.0, 5.0]))
    second["rewards"][3] = np.inf
    second["actions"][5] = second["actions"][3]
    second["observations"][25:27] = np.nan
    np.savez(tmp_path / "parts" / "a.npz", **out_of_the_box(bad_row=14))
    np.savez(tmp_path / "parts" / "b.npz", **second)
    return tmp_path / "parts"


def test_all_files_of_a_folder_share_one_map(folder, capsys):
    options = {"drop_bad_rows": True, "rescale_actions": True, "shard_every": 2}
    found = material.data_of(resolve(folder, horizon=1, **options))
    facts = material.facts_of(found)
    assert facts["dropped"] == 1 + 2, "the row with the bad reward is still a final observation"
    assert facts["actions"] == {"low": [-5, -3], "high": [10, 5]}
    assert facts["shards"]["every"] == 2
    assert "looking through 2 files" in capsys.readouterr().out
    lost = {"a": (13, 14), "b": (3, 24, 25, 26)}
    for step in (0, 2):
        name = "ab"[found.turns.number(step)]
        data = found.turns(step)
        rows = [row for row in range(40) if row % 10 != 9 and row not in lost[name]]
        actions = np.load(folder / f"{name}.npz")["actions"][rows]
        assert int(data.count) == len(rows)
        expected = into_the_box(actions, np.array([-5, -3]), np.array([10, 5]))
        np.testing.assert_allclose(data.action[: len(rows)], expected, atol=2e-5)
    assert found.turns.number(0) != found.turns.number(2)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"actions": 3.0}, r"b.npz: actions leave \[-1, 1\].*Give --rescale-actions"),
        ({"observations": np.nan}, "b.npz: observations is NaN or infinite in .*--drop-bad-rows"),
        ({"terminals": True}, "b.npz: the episode that ends in row 0 has no transition"),
    ],
)
def test_every_file_of_a_folder_is_looked_at_before_anything_begins(tmp_path, spoil, message):
    (tmp_path / "parts").mkdir()
    np.savez(tmp_path / "parts" / "a.npz", **episodes())
    second = episodes()
    for name, value in spoil.items():
        second[name][:7] = value
    np.savez(tmp_path / "parts" / "b.npz", **second)
    with pytest.raises(InputError, match=message):
        material.data_of(resolve(tmp_path / "parts", horizon=1))


def test_a_file_of_too_short_episodes_is_named_before_its_turn(tmp_path):
    (tmp_path / "parts").mkdir()
    np.savez(tmp_path / "parts" / "a.npz", **episodes())
    np.savez(tmp_path / "parts" / "b.npz", **episodes(length=4))
    with pytest.raises(InputError, match=r"b.npz: no episode is as long as --agent.horizon 5"):
        material.data_of(resolve(tmp_path / "parts", horizon=5))


def test_a_block_must_divide_the_steps_on_a_file(folder):
    options = {"steps": 12, "log_every": 3, "eval_every": 0, "block": 3, "horizon": 1}
    options |= {"drop_bad_rows": True, "rescale_actions": True}
    assert material.data_of(resolve(folder, shard_every=6, **options)).turns
    with pytest.raises(InputError, match=r"--block 3 must divide 4, .* 2 files .*--shard-every"):
        material.data_of(resolve(folder, shard_every=4, **options))


def test_files_that_do_not_fit_together_are_refused_before_they_are_put_right(folder):
    arrays = episodes()
    np.savez(folder / "c.npz", **arrays | {"actions": np.zeros((40, 3), np.float32)})
    with pytest.raises(
        InputError, match=r"c.npz has actions \[3\].* but .*a.npz has actions \[2\]"
    ):
        material.data_of(resolve(folder, horizon=1, rescale_actions=True))


@pytest.mark.parametrize(
    ("spoil", "options", "message"),
    [
        ({"bad_row": 14}, ["--rescale-actions"], "leave such rows out with --drop-bad-rows"),
        ({}, [], "Give --rescale-actions, or map them yourself"),
        ({}, ["--drop-bad-rows"], "Give --rescale-actions, or map them yourself"),
        ({}, ["--rescale-actions", "--shard-every", "2"], "mine.npz is one file"),
    ],
)
def test_what_is_not_put_right_is_refused(tmp_path, capsys, spoil, options, message):
    np.savez(tmp_path / "mine.npz", **out_of_the_box(**spoil))
    with pytest.raises(SystemExit) as stop:
        train(tmp_path, *options)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_file_of_which_nothing_is_left_is_refused(tmp_path):
    np.savez(tmp_path / "mine.npz", **episodes() | {"rewards": np.full(40, np.nan)})
    with pytest.raises(InputError, match=r"mine.npz: --drop-bad-rows leaves nothing"):
        material.data_of(resolve(tmp_path / "mine.npz", horizon=1, drop_bad_rows=True))


# Which file it is


@pytest.fixture
def found(tmp_path, monkeypatch):
    """What the default job says about its data; they are in the places that are asked for."""
    monkeypatch.setattr(files, "OFFICIAL", tmp_path / "official")
    name = "pointmaze-medium-navigate-v0"
    arrays = episodes()
    del arrays["rewards"]

    def run(capsys, *places, card=None):
        for place in places:
            (tmp_path / place).mkdir(parents=True)
            np.savez(tmp_path / place / f"{name}.npz", **arrays, qpos=arrays["observations"][:, :2])
        if card:
            (tmp_path / places[-1] / f"{name}.json").write_text(json.dumps(card))
        job = jobs.resolve(jobs.request("vine", {"dir": tmp_path / "ours", "horizon": 1}))
        source = material.data_of(job).source
        paths = [tmp_path / place / f"{name}.npz" for place in places]
        return source, paths, capsys.readouterr().out.splitlines()

    return run


@pytest.mark.parametrize("ours", ["ours", "ours/demo"])
def test_where_there_are_both_the_official_file_is_used_and_both_are_named(found, capsys, ours):
    source, (official, other), said = found(capsys, "official", ours)
    assert (source.path, source.origin) == (official, "official")
    assert said == [
        f"data: {official} (official)",
        f"there is {other}, too; the official file is the one used",
    ]


@pytest.mark.parametrize("place", ["official", "ours"])
def test_where_there_is_one_it_alone_is_named(found, capsys, place):
    source, (path,), said = found(capsys, place)
    assert source.path == path
    assert len(said) == 1


def test_the_official_place_is_not_named_twice(tmp_path, found, capsys, monkeypatch):
    monkeypatch.setattr(files, "OFFICIAL", tmp_path / "ours")
    assert len(found(capsys, "ours")[2]) == 1


def test_another_simulator_than_the_datas_is_said(found, capsys):
    card = {"origin": "regenerated", "versions": {"mujoco": "2.1.5"}}
    source, (path,), said = found(capsys, "ours", card=card)
    assert source.facts == card
    here = provenance.versions()["mujoco"]
    assert said == [
        f"data: {path} (regenerated)",
        f"the data were made with MuJoCo 2.1.5; evaluation here has {here}",
    ]


def test_a_file_without_what_the_rewards_are_made_from_is_named(tmp_path):
    rows = {"observations": np.zeros((3, 2)), "actions": np.zeros((3, 2))}
    arrays = rows | {"terminals": np.array([0, 0, 1])}
    with pytest.raises(InputError, match=f"{tmp_path}: rewards of pointmaze.* need qpos, which"):
        tasks.load(arrays, tmp_path, tasks.named(tasks.DEFAULT), None)


def test_the_same_simulator_is_not_worth_a_word(found, capsys):
    card = {"origin": "regenerated", "versions": {"mujoco": provenance.versions()["mujoco"]}}
    assert len(found(capsys, "ours", card=card)[2]) == 1


def test_a_run_goes_on_from_between_its_evaluations(tmp_path, monkeypatch):
    """Saved every 2 steps and lost after 7 of 8, it goes on from 6 and ends the same."""
    monkeypatch.setattr(intervals, "SAVE", 2)
    np.savez(tmp_path / "mine.npz", **episodes())
    often = ["--steps", "8", "--eval-every", "4", "--log-every", "1", "--block", "1"]
    data = ["--data", str(tmp_path / "mine.npz")]
    main(["train", *data, *TINY, *often, "--out", str(tmp_path / "whole")])

    class Lost(Exception):
        pass

    def lose(self, moment):
        if moment.step == 7:
            self.saver.wait()
            raise Lost

    with monkeypatch.context() as patch:
        patch.setattr(running._Running, "_mark", lose)
        with pytest.raises(Lost):
            main(["train", *data, *TINY, *often, "--out", str(tmp_path / "lost")])
    there = lambda kind: sorted(int(p.stem[-9:]) for p in tmp_path.glob(f"lost/*/{kind}-*.json"))
    assert (there("state"), there("policy")) == ([4, 6], [4, 6])
    main(["resume", str(tmp_path / "lost")])
    whole, lost = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "lost"))
    assert whole == lost
