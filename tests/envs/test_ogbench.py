"""OGBench's environments: names, labels, seeds."""

import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from ogbench.relabel_utils import relabel_dataset

from vinerl.data import files
from vinerl.envs import ogbench
from vinerl.errors import InputError

MAZE = "pointmaze-medium-navigate-singletask-task1-v0"
PUZZLE = "puzzle-3x3-play-singletask-task2-v0"

# The arm's environments make their action space anew, with a warning, at every look at it.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


@pytest.fixture(scope="module")
def maze():
    return ogbench.make(ogbench.env_id(MAZE))


# Names


@pytest.mark.parametrize(
    ("task", "dataset", "env"),
    [
        (MAZE, "pointmaze-medium-navigate-v0", "pointmaze-medium-singletask-task1-v0"),
        (PUZZLE, "puzzle-3x3-play-v0", "puzzle-3x3-singletask-task2-v0"),
        (
            "antmaze-giant-stitch-singletask-task5-v0",
            "antmaze-giant-stitch-v0",
            "antmaze-giant-singletask-task5-v0",
        ),
    ],
)
def test_names_of_a_task_its_data_and_its_environment(task, dataset, env):
    ogbench.check_task(task)
    assert ogbench.dataset_of(task) == dataset
    assert ogbench.env_id(task) == env


def test_every_task_has_a_registered_environment_and_a_dataset():
    for task in ogbench.TASKS:
        ogbench.check_task(task)
        assert ogbench.env_id(task) in gymnasium.registry, task
        assert ogbench.dataset_of(task) in ogbench.DATASETS, task
    assert len(set(ogbench.TASKS)) == len(ogbench.TASKS) == 5 * len(ogbench.DATASETS)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("pointmaze-medium-navigate-singletask-task9-v0", "pointmaze-medium-navigate-"),
        ("antmaze-large-navigate-v0", "antmaze-large-navigate-singletask-task"),
        ("antmaze", "antmaze-medium-navigate-singletask-task1-v0"),
        ("puzzle-3x3-sparse", "puzzle-3x3-play-singletask-task"),
        ("", "-singletask-task"),
        ("qqq", "-singletask-task"),
    ],
)
def test_an_unknown_task_gets_the_nearest_names(wrong, near):
    with pytest.raises(InputError) as error:
        ogbench.check_task(wrong)
    first, *names = str(error.value).splitlines()
    assert first == f"unknown task {wrong!r}; the nearest names are:"
    assert len(names) == 3
    assert all(name.strip() in ogbench.TASKS for name in names)
    assert near in names[0]


# Labels


def rows_around(goal, tolerance):
    """Positions on, just inside, just outside and far from the goal; two episodes."""
    away = np.array([0.0, 0.99, 1.01, 5.0, 0.5, 3.0]) * tolerance
    qpos = (goal + away[:, None] * np.array([0.6, 0.8])).astype(np.float32)
    actions, terminals = np.zeros((6, 2), np.float32), np.array([0, 0, 1, 0, 0, 1], bool)
    return {"observations": qpos, "actions": actions, "terminals": terminals, "qpos": qpos}


def test_a_maze_rewards_where_the_goal_is_near(maze):
    ogbench.reset(maze, 0)
    arrays = rows_around(maze.unwrapped.cur_goal_xy, maze.unwrapped._goal_tol)
    labelled = ogbench.label(MAZE, arrays)
    assert labelled["rewards"].tolist() == [0, 0, -1, -1, 0, -1]
    assert labelled["masks"].tolist() == [0, 0, 1, 1, 0, 1]
    assert "rewards" not in arrays, "the caller's arrays are left alone"

    theirs = dict(arrays)
    relabel_dataset(MAZE, maze, theirs)
    for name, array in theirs.items():
        np.testing.assert_array_equal(labelled[name], array)


def test_a_puzzle_counts_buttons_and_sparse_does_not():
    """Rows with 0, 1 and 9 of the nine buttons right, and a final row."""
    env = ogbench.make(ogbench.env_id(PUZZLE))
    ogbench.reset(env, 0)
    goal = env.unwrapped._target_button_states.copy()
    env.close()
    one_right = np.where(np.arange(9) == 4, goal, 1 - goal)
    arrays = {
        "observations": np.zeros((4, 3), np.float32),
        "actions": np.zeros((4, 5), np.float32),
        "terminals": np.array([0, 0, 0, 1]),
        "qpos": np.zeros((4, 14), np.float32),
        "button_states": np.stack([1 - goal, one_right, goal, goal]),
    }
    labelled = ogbench.label(PUZZLE, arrays)
    assert labelled["rewards"].tolist() == [-9, -8, 0, 0]
    path = Path("puzzle.npz")
    assert files.to_transitions(labelled, path).reward.tolist() == [-9, -8, 0]
    sparse = files.to_transitions(labelled, path, sparse=True)
    assert sparse.reward.tolist() == [-1, -1, 0]
    assert sparse.mask.tolist() == [1, 1, 0], "masks do not change"


@pytest.mark.parametrize(
    ("task", "present", "missing"),
    [
        (MAZE, [], "qpos"),
        (PUZZLE, ["qpos"], "button_states"),
        ("scene-play-singletask-task1-v0", [], "qpos and button_states"),
    ],
)
def test_labels_need_what_the_simulator_stored(task, present, missing):
    with pytest.raises(InputError, match=f"rewards of {task} need {missing}, which the file lacks"):
        ogbench.label(task, {name: np.zeros((3, 30)) for name in present})


# Making and seeding


def episode(env, seed):
    """The first observation, and where ten random actions lead."""
    first = ogbench.reset(env, seed)
    draw = np.random.default_rng(0)
    for _ in range(10):
        last, *_ = env.step(draw.uniform(-1, 1, 2))
    return np.stack([first, last])


def test_an_episode_repeats_under_its_seed_alone(maze):
    one, other = episode(maze, 5), episode(maze, 6)
    np.testing.assert_array_equal(episode(maze, 5), one)
    np.testing.assert_array_equal(episode(ogbench.make(ogbench.env_id(MAZE)), 5), one)
    assert np.abs(other[0] - one[0]).max() > 0.01


def test_making_an_environment_leaves_no_file_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = ogbench.make(ogbench.env_id(MAZE))
    assert list(tmp_path.iterdir()) == []
    assert tempfile.tempdir == str(tmp_path)
    assert ogbench.reset(env, 0).shape == (2,)


def test_two_threads_make_theirs_one_after_the_other(monkeypatch):
    """A shard is labelled beside the training; a folder for both, already gone, could be left."""
    at_once, most = [], []

    def slow(name, **_):
        at_once.append(name)
        most.append(len(at_once))
        time.sleep(0.05)
        at_once.remove(name)

    before = tempfile.tempdir
    monkeypatch.setattr("gymnasium.make", slow)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ogbench.make, ["one", "another"]))
    assert most == [1, 1]
    assert tempfile.tempdir == before


def test_a_failure_to_make_one_leaves_no_file_behind_either(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TypeError):
        ogbench.make(ogbench.env_id(MAZE), no_such_option=1)
    assert list(tmp_path.iterdir()) == []
    assert tempfile.tempdir == str(tmp_path)


def test_an_arm_is_reset_without_a_word_about_its_bounds():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ogbench.reset(ogbench.make("cube-single-singletask-task1-v0"), 0)
    assert not [one for one in said if "precision" in str(one.message)]


def test_what_pictures_need_to_know(maze):
    ogbench.reset(maze, 0)
    facts = ogbench.describe(maze)
    assert facts["limit"] == 1000
    assert np.shape(facts["maze"]["map"]) == (8, 8)
    assert (facts["maze"]["unit"], facts["maze"]["offset"]) == (4.0, [4.0, 4.0])
    assert facts["maze"]["goal"] == list(maze.unwrapped.cur_goal_xy)
