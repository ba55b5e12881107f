"""Making maze datasets: the way through the maze, and files that do not depend on who made them."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from ogbench.utils import load_dataset

from vinerl import disk
from vinerl.collect import make, mazes
from vinerl.collect.controllers import Guide, point_controller
from vinerl.data import files
from vinerl.envs import ogbench
from vinerl.errors import InputError

RECIPE = mazes.Recipe("tiny-navigate-v0", "pointmaze-medium-v0", episodes=3, rows=21, noise=0.5)


# The way through a maze


class Drawn:
    """A maze from a drawing, with cells of 1 and (0, 0) in the middle of the first."""

    def __init__(self, *rows):
        self.maze_map = np.array([[int(c == "#") for c in row] for row in rows])

    @property
    def unwrapped(self):
        return self

    def xy_to_ij(self, xy):
        return round(float(xy[1])), round(float(xy[0]))

    def ij_to_xy(self, ij):
        return ij[1], ij[0]


SMALL = Guide(
    Drawn(
        "######",
        "#   ##",
        "# #  #",
        "# ####",
        "######",
    )
)


def test_corners_are_where_one_turns_or_must_stop():
    """A corridor is a free cell between two walls that leads on at both ends."""
    assert set(SMALL.free) == {(1, 1), (1, 2), (1, 3), (2, 1), (2, 3), (2, 4), (3, 1)}
    assert set(SMALL.free) - set(SMALL.corners) == {(1, 2), (2, 1)}


@pytest.mark.parametrize(
    ("xy", "goal", "direction"),
    [
        ((1, 3), (4, 2), (0, -1)),  # up, out of the dead end
        ((1, 1), (4, 2), (1, 0)),
        ((3, 1), (4, 2), (0, 1)),
        ((3, 2), (1, 3), (0, -1)),
        ((1.2, 3), (1, 3), (-1, 0)),  # in the goal's cell, to its middle
        ((1, 2.7), (4, 2), (0, -1)),  # from anywhere in a cell to the middle of the next
    ],
)
def test_directions_by_hand(xy, goal, direction):
    found = SMALL.direction(np.array(xy, float), np.array(goal, float))
    np.testing.assert_allclose(found, direction, atol=1e-5)


def test_in_the_middle_of_the_goal_there_is_nowhere_to_go():
    assert SMALL.direction(np.array([1.0, 1.0]), np.array([1.0, 1.0])).tolist() == [0, 0]


def test_a_goal_that_cannot_be_reached_leaves_one_where_one_is():
    apart = Guide(Drawn("#####", "# # #", "#####"))
    found = apart.direction(np.array([1.2, 1.0]), np.array([3.0, 1.0]))
    np.testing.assert_allclose(found, [-1, 0], atol=1e-5)


@pytest.mark.parametrize("size", ["medium", "large", "giant", "teleport"])
def test_directions_are_those_of_ogbench(size):
    env = ogbench.make(f"pointmaze-{size}-v0").unwrapped
    guide, draw = Guide(env), np.random.default_rng(0)
    somewhere = lambda: env.ij_to_xy(guide.free[draw.integers(len(guide.free))])
    for _ in range(300):
        xy = somewhere() + draw.uniform(-1.9, 1.9, 2)
        goal = somewhere() + draw.uniform(-1.9, 1.9, 2)
        step = env.get_oracle_subgoal(xy, goal)[0] - xy
        expected = step / (np.linalg.norm(step) + 1e-6)
        np.testing.assert_allclose(guide.direction(xy, goal), expected, atol=1e-9)


def test_the_point_moves_where_it_is_told():
    direction = np.array([0.6, -0.8])
    assert np.array_equal(point_controller(np.zeros(2), direction), direction)


# The dataset


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files of a tiny recipe, made by two processes, and what was shown meanwhile."""
    folder, shown = tmp_path_factory.mktemp("data") / "new", []
    train = make.make(RECIPE, folder, 2, lambda *progress: shown.append(progress))
    return SimpleNamespace(train=train, folder=folder, shown=shown)


def test_any_number_of_processes_makes_the_same_data(made):
    parts = [files.read(made.train), files.read(made.folder / "tiny-navigate-v0-val.npz")]
    for processes in (1, 3):
        episodes, _ = make.collect(RECIPE, processes, lambda *_: None)
        for name in parts[0]:
            ours = np.concatenate([part[name] for part in parts])
            np.testing.assert_array_equal(ours, np.concatenate([e[name] for e in episodes]))


def test_another_seed_makes_other_data_and_no_two_episodes_are_alike(made):
    arrays = files.read(made.train)
    first = mazes.Maze(replace(RECIPE, seed=1)).episode(0)[0]
    assert not np.array_equal(first["observations"], arrays["observations"][:21])
    starts = arrays["observations"][::21]
    assert len(np.unique(starts, axis=0)) == 3


def test_the_files_have_the_shape_of_ogbenchs(made):
    arrays = files.read(made.train)
    files.check(arrays, made.train)
    kinds = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    floats = ("observations", "actions", "qpos", "qvel")
    assert kinds == dict.fromkeys(floats, ((63, 2), np.float32)) | {"terminals": ((63,), bool)}
    assert np.flatnonzero(arrays["terminals"]).tolist() == [20, 41, 62]
    assert np.abs(arrays["actions"]).max() <= 1
    np.testing.assert_array_equal(arrays["observations"], arrays["qpos"])
    assert len(files.read(made.folder / "tiny-navigate-v0-val.npz")["actions"]) == 21


def test_ogbench_itself_loads_them(made):
    data = load_dataset(made.train, add_info=True)
    assert data["observations"].shape == data["next_observations"].shape == (60, 2)
    arrays = files.read(made.train)
    used = ~arrays["terminals"]
    np.testing.assert_array_equal(data["observations"], arrays["observations"][used])
    np.testing.assert_array_equal(data["actions"], arrays["actions"][used])


def test_the_stored_actions_are_the_ones_that_were_executed(made):
    """From a stored state a stored action leads to the next stored state."""
    arrays, env = files.read(made.train), ogbench.make(RECIPE.env)
    ogbench.reset(env, 0)
    for row in (0, 7, 40):
        env.unwrapped.set_state(*(np.float64(arrays[name][row]) for name in ("qpos", "qvel")))
        obs, *_ = env.step(arrays["actions"][row])
        if not arrays["terminals"][row]:
            np.testing.assert_allclose(obs, arrays["observations"][row + 1], atol=1e-4)


def test_a_card_says_how_they_were_made(made):
    card = json.loads((made.folder / "tiny-navigate-v0.json").read_text())
    assert card["origin"] == "regenerated"
    assert mazes.Recipe(**card["recipe"]) == RECIPE
    for path in made.folder.glob("*.npz"):
        assert card["sha256"][path.name] == disk.sha256(path)
    assert set(card["versions"]) == {"mujoco", "ogbench", "numpy", "python"}
    assert made.shown == [(2, 4), (4, 4)]
    assert sorted(p.suffix for p in made.folder.iterdir()) == [".json", ".npz", ".npz"]


@pytest.mark.parametrize("name", ["tiny-navigate-v0.npz", "tiny-navigate-v0-val.npz"])
def test_an_existing_file_is_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(InputError, match=f"{name} exists and is not overwritten"):
        make.make(RECIPE, tmp_path, 1)
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, "precious")]


def test_the_guide_gets_there_and_goals_follow_each_other():
    """Without noise the point reaches goal after goal, and stays out of the walls."""
    maze = mazes.Maze(replace(RECIPE, rows=400, noise=0.0))
    arrays, goals = maze.episode(0)
    assert goals >= 3
    cells = {maze.env.unwrapped.xy_to_ij(xy) for xy in arrays["qpos"]}
    assert cells <= set(maze.guide.free)


@pytest.mark.parametrize(("size", "rows"), [("medium", 1001), ("large", 1001), ("giant", 2001)])
def test_the_official_recipe(size, rows):
    recipe = mazes.pointmaze(f"pointmaze-{size}-navigate-v0", episodes=200)
    assert recipe == mazes.Recipe(
        f"pointmaze-{size}-navigate-v0", f"pointmaze-{size}-v0", 200, rows, noise=0.5
    )
    assert recipe.validation == 20
