"""vinerl train --data FILE: no task, no environment."""

import json

import numpy as np
import pytest

import vinerl
from vinerl.bench.runs import Run
from vinerl.cli import main

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


def test_a_frozen_member_is_marked_and_said(rewarded):
    run, said = rewarded
    good, bad = run.manifest["members"]
    assert (good["alpha"], good["status"]) == (1, "learning")
    assert (bad["status"], bad["frozen_at"]) == ("not finite", 0)
    assert "member 1 (seed 0, alpha 1e+30) is frozen at step 0: not finite" in said
    for line in (run.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


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
