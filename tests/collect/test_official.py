"""Every dataset that can be made here, small, through OGBench's own loader and our labels."""

import urllib.request
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import ogbench as benchmark
import pytest

from vinerl.collect import controllers, make, recipes
from vinerl.data import files
from vinerl.envs import ogbench

QUICK = ("pointmaze-medium-navigate-v0", "antmaze-medium-stitch-v0")
ROWS, TRAIN, VAL = 15, 2, 1
SLOW = [pytest.param(n, marks=pytest.mark.slow) for n in recipes.OFFICIAL if n not in QUICK]


def tasks(dataset):
    stem = dataset.removesuffix("-v0")
    return [f"{stem}-singletask-task{i}-v0" for i in range(1, 6)]


def load(task, folder, monkeypatch):
    """By OGBench, which must not download anything."""

    def refuse(*_):
        raise AssertionError("a file is missing")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded: Any = benchmark.make_env_and_datasets(task, dataset_dir=str(folder), add_info=True)
        env, train, val = loaded
        env.close()
        return (env.observation_space.shape, env.action_space.shape), train, val


def goals_of(maze):
    return [task["goal_xy"] for task in ogbench.make(maze).unwrapped.task_infos]


def visit(path, places):
    """Put the robot on each of these places in a row of its own."""
    arrays = files.read(path)
    for row, place in enumerate(places, 1):
        arrays["qpos"][row, :2] = place
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


@pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision")
@pytest.mark.parametrize("dataset", [*QUICK, *SLOW])
def test_ogbench_loads_it_and_labels_it_as_we_do(dataset, untrained, tmp_path, monkeypatch):
    recipe = replace(recipes.official(dataset), rows=ROWS, episodes=TRAIN)
    legs = controllers.shipped(recipe.robot or "") or untrained.get(recipe.robot)
    train = make.make(recipe, tmp_path, 1, controller=legs)
    val = train.with_name(f"{train.stem}-val.npz")
    assert val.is_file()
    goals = goals_of(recipe.env) if "maze" in dataset else []
    visit(train, goals)

    for i, task in enumerate(tasks(dataset)):
        spaces, *loaded = load(task, tmp_path, monkeypatch)
        for path, episodes, theirs in zip((train, val), (TRAIN, VAL), loaded, strict=True):
            arrays = files.read(path)
            files.check(arrays, path)
            ours, used = ogbench.label(task, arrays), ~arrays["terminals"]
            expected = {"observations", "actions", "qpos", "qvel", "terminals"}
            expected |= {"button_states"} if dataset.startswith(("scene", "puzzle")) else set()
            assert set(arrays) == expected
            assert set(theirs) == expected | {"next_observations", "rewards", "masks"}
            for name, x in theirs.items():
                assert len(x) == episodes * (ROWS - 1)
                assert x.dtype == (np.int64 if name == "button_states" else np.float32)
                if name not in ("terminals", "next_observations"):
                    np.testing.assert_array_equal(x, ours[name][used], err_msg=name)
            after = arrays["observations"][np.append(False, used[:-1])]
            np.testing.assert_array_equal(theirs["next_observations"], after)
            assert np.flatnonzero(theirs["terminals"]).tolist() == [
                (ROWS - 1) * (e + 1) - 1 for e in range(episodes)
            ]
            assert theirs["observations"].shape[1:] == spaces[0]
            assert theirs["actions"].shape[1:] == spaces[1]
            if goals:
                far = np.linalg.norm(theirs["qpos"][:, :2] - goals[i], axis=1)
                there = far <= (1.0 if recipe.robot is None else 0.5)
                np.testing.assert_array_equal(theirs["rewards"], there - 1.0)
                assert there[1 + i] or path is val
            np.testing.assert_array_equal(theirs["masks"], theirs["rewards"] != 0)
