"""Maze episodes: the way through the maze, and arrays that depend on the episode's number alone."""

from dataclasses import replace
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from vinerl.collect import mazes, recipes
from vinerl.collect.mazes import Guide, Maze
from vinerl.envs import ogbench

POINT = replace(recipes.official("pointmaze-medium-navigate-v0"), episodes=3, rows=21)
HUMANOID = replace(recipes.official("humanoidmaze-medium-navigate-v0"), episodes=3, rows=21)
ANT = replace(recipes.official("antmaze-medium-navigate-v0"), episodes=3, rows=21)


# The way through a maze


class Drawn:
    """A maze from a drawing, with cells of 1 and (0, 0) in the middle of the first."""

    _maze_unit, _offset_x, _offset_y = 1.0, 0.0, 0.0

    def __init__(self, *rows):
        self.maze_map = np.array([[int(c == "#") for c in row] for row in rows])

    @property
    def unwrapped(self):
        return self


SMALL = Guide(
    Drawn(
        "######",
        "#   ##",
        "# #  #",
        "# ####",
        "######",
    )
)


def direction(guide, xy, goal):
    return guide.direction(np.array([xy], float), np.array([goal], float))[0]


def test_corners_are_where_one_turns_or_must_stop():
    """A corridor is a free cell between two walls that leads on at both ends."""
    assert set(SMALL.free) == {(1, 1), (1, 2), (1, 3), (2, 1), (2, 3), (2, 4), (3, 1)}
    assert set(SMALL.free) - set(SMALL.corners) == {(1, 2), (2, 1)}


@pytest.mark.parametrize(
    ("xy", "goal", "expected"),
    [
        ((1, 3), (4, 2), (0, -1)),  # up, out of the dead end
        ((1, 1), (4, 2), (1, 0)),
        ((3, 1), (4, 2), (0, 1)),
        ((3, 2), (1, 3), (0, -1)),
        ((1.2, 3), (1, 3), (-1, 0)),  # in the goal's cell, to its middle
        ((1, 2.7), (4, 2), (0, -1)),  # from anywhere in a cell to the middle of the next
    ],
)
def test_directions_by_hand(xy, goal, expected):
    np.testing.assert_allclose(direction(SMALL, xy, goal), expected, atol=1e-5)


def test_in_the_middle_of_the_goal_there_is_nowhere_to_go():
    assert direction(SMALL, (1, 1), (1, 1)).tolist() == [0, 0]


def test_a_goal_that_cannot_be_reached_leaves_one_where_one_is():
    apart = Guide(Drawn("#####", "# # #", "#####"))
    np.testing.assert_allclose(direction(apart, (1.2, 1), (3, 1)), [-1, 0], atol=1e-5)


def test_cells_some_steps_away():
    assert SMALL.reach((3, 1), 4) == [(1, 3)]
    assert SMALL.reach((3, 1), 6) == [(2, 4)]
    assert SMALL.reach((3, 1), 7) == [(3, 1)], "the start itself where there is none"


@pytest.mark.parametrize("size", ["medium", "large", "giant"])
def test_directions_are_those_of_ogbench(size):
    env = ogbench.make(f"pointmaze-{size}-v0").unwrapped
    guide, draw = Guide(env), np.random.default_rng(0)
    somewhere = lambda: env.ij_to_xy(guide.free[draw.integers(len(guide.free))])
    for _ in range(300):
        xy = somewhere() + draw.uniform(-1.9, 1.9, 2)
        goal = somewhere() + draw.uniform(-1.9, 1.9, 2)
        step = env.get_oracle_subgoal(xy, goal)[0] - xy
        expected = step / (np.linalg.norm(step) + 1e-6)
        np.testing.assert_allclose(direction(guide, xy, goal), expected, atol=1e-9)


# Episodes


@pytest.fixture(scope="module", params=[POINT, ANT, HUMANOID], ids=lambda recipe: recipe.env)
def maze(request, untrained):
    return Maze(request.param, untrained.get(request.param.robot))


def same(one, other):
    return all(np.array_equal(one[0][n], other[0][n]) for n in one[0]) and one[1] == other[1]


def test_an_episode_depends_on_its_number_alone(maze):
    """Not on what was made before, nor on what is made beside it."""
    together = maze.episodes([0, 1, 2])
    alone = [maze.episodes([number])[0] for number in (2, 0, 1)]
    assert all(map(same, together, (alone[1], alone[2], alone[0])))
    starts = [arrays["observations"][0] for arrays, _ in together]
    assert len(np.unique(starts, axis=0)) == 3


def test_another_seed_makes_other_episodes():
    first, other = (Maze(replace(POINT, seed=s)).episodes([0])[0][0] for s in (0, 1))
    assert not np.array_equal(first["observations"], other["observations"])


def test_the_robot_moves_as_in_the_benchmarks_environment(maze):
    """From the first state on, the stored actions lead to the stored rows."""
    arrays, _ = maze.episodes([5])[0]
    env = ogbench.make(maze.recipe.env)
    mazes.Runner(maze.recipe, maze.guide, env, 5)
    obs = env.unwrapped.get_ob()
    for row, action in enumerate(arrays["actions"]):
        np.testing.assert_array_equal(arrays["observations"][row], obs.astype(np.float32))
        obs, *_, info = env.step(action)
        for name in ("qpos", "qvel"):
            np.testing.assert_array_equal(arrays[name][row], info[f"prev_{name}"].astype("f4"))


def test_the_layout_is_the_benchmarks(maze):
    arrays, _ = maze.episodes([0])[0]
    floats = {n: x.shape for n, x in arrays.items() if x.dtype == np.float32}
    assert set(floats) == {"observations", "actions", "qpos", "qvel"}
    assert all(len(x) == 21 for x in arrays.values())
    assert arrays["terminals"].tolist() == [False] * 20 + [True]
    sizes = [floats[name][1] for name in ("observations", "actions", "qpos", "qvel")]
    expected = {"ant": [29, 8, 15, 14], "humanoid": [69, 21, 28, 27], None: [2, 2, 2, 2]}
    assert sizes == expected[maze.recipe.robot]
    if maze.recipe.robot == "ant":
        whole = np.concatenate([arrays["qpos"], arrays["qvel"]], axis=1)
        np.testing.assert_array_equal(arrays["observations"], whole)


def test_noise_is_as_asked():
    """Around the direction, which without noise is the point's action itself."""
    quiet, loud = (Maze(replace(POINT, rows=201, noise=n)).episodes([1])[0][0] for n in (0.0, 0.5))
    norms = np.linalg.norm(quiet["actions"], axis=1)
    assert (norms < 1 + 1e-5).all()
    assert np.median(norms) > 0.99
    assert 0.3 < np.std(loud["actions"]) < 1
    assert np.abs(loud["actions"]).max() == 1


def test_the_guide_gets_there_and_goals_follow_each_other():
    """Without noise the point reaches goal after goal, and stays out of the walls."""
    maze = Maze(replace(POINT, rows=400, noise=0.0))
    arrays, facts = maze.episodes([0])[0]
    assert facts["goals"] >= 3
    rows, columns = maze.guide.cell(arrays["qpos"].astype(float))
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) <= set(maze.guide.free)


def test_a_goal_that_is_reached_is_replaced_before_the_next_step(monkeypatch):
    """Nobody is told the way to where it is already, but perhaps in the first row."""
    maze, told = Maze(replace(POINT, rows=300, noise=0.0)), []
    direction = maze.guide.direction

    def heard(xy, goal):
        told.append(np.linalg.norm(xy - goal, axis=1))
        return direction(xy, goal)

    monkeypatch.setattr(maze.guide, "direction", heard)
    ((_, facts),) = maze.episodes([0])
    assert facts["goals"] >= 2
    assert np.min(told[1:]) > maze.envs[0].unwrapped._goal_tol


def test_a_stitch_episode_goes_four_cells_and_stays():
    recipe = replace(recipes.official("pointmaze-large-stitch-v0"), noise=0.0)
    maze = Maze(recipe)
    for arrays, _ in maze.episodes([0, 1, 2]):
        row, column = (x.tolist() for x in maze.guide.cell(arrays["qpos"].astype(float)))
        first, last = (row[0], column[0]), (row[-1], column[-1])
        assert maze.guide.far[first][last] == mazes.REACH or first == last
        assert np.ptp(arrays["qpos"][-20:], axis=0).max() < 0.5


def test_a_stitch_episodes_goal_counts_once_however_long_one_stays():
    """The point stays in the middle of the goal's cell, from which the goal may be too far."""
    recipe = recipes.official("pointmaze-large-stitch-v0")
    maze, counted = Maze(replace(recipe, noise=0.0)), []
    for number, (arrays, facts) in enumerate(maze.episodes(range(8))):
        goal = mazes.Runner(recipe, maze.guide, maze.envs[0], number).goal
        near = np.linalg.norm(arrays["qpos"][:-1] - goal, axis=1) <= 1
        assert facts == {"goals": int(near.any())}
        counted.append(near.sum())
    assert min(counted) == 0
    assert max(counted) > 100


def test_an_explore_episode_turns_every_ten_steps(untrained):
    """The controller is told the same direction for ten steps, and no goal changes it."""
    maze = Maze(
        replace(recipes.official("antmaze-medium-explore-v0"), rows=31, noise=0.0), untrained["ant"]
    )
    told, act = [], maze.act
    maze.act = lambda obs, direction: told.append(direction[0].copy()) or act(obs, direction)
    ((_, facts),) = maze.episodes([0])
    assert set(facts) == {"on_its_back"}, "there is no goal to count"
    assert len(np.unique(told, axis=0)) == 4
    assert len(np.unique(told[:10], axis=0)) == len(np.unique(told[10:20], axis=0)) == 1
    np.testing.assert_allclose(np.linalg.norm(told, axis=1), 1, atol=1e-5)


# What is drawn


def evenly(points, cells, guide):
    """Whether points are spread evenly over the cells, and over [-1, 1]^2 around each centre."""
    found = list(zip(*(x.tolist() for x in guide.cell(points)), strict=True))
    assert set(found) <= set(cells)
    assert stats.chisquare([found.count(cell) for cell in cells]).pvalue > 1e-3
    offsets = points - [guide.centre(cell) for cell in found]
    assert all(stats.kstest(x, stats.uniform(-1, 2).cdf).pvalue > 1e-3 for x in offsets.T)


@pytest.fixture(scope="module")
def drawn():
    """Where a thousand episodes of a maze with corridors begin, and their first goals."""
    env = ogbench.make("pointmaze-large-v0")
    guide, recipe = Guide(env), recipes.official("pointmaze-large-navigate-v0")
    starts, goals = [], []
    for number in range(1000):
        runner = mazes.Runner(replace(recipe, rows=1), guide, env, number)
        starts.append(runner.env.data.qpos.copy())
        goals.append(runner.goal)
    return SimpleNamespace(env=env, guide=guide, starts=np.array(starts), goals=np.array(goals))


def test_episodes_start_anywhere(drawn):
    evenly(drawn.starts, drawn.guide.free, drawn.guide)


def test_goals_are_in_corners_and_so_are_those_that_follow(drawn):
    assert len(drawn.guide.corners) < len(drawn.guide.free)
    evenly(drawn.goals, drawn.guide.corners, drawn.guide)
    runner = mazes.Runner(
        recipes.official("pointmaze-large-navigate-v0"), drawn.guide, drawn.env, 0
    )
    following = [(runner.arrive(), runner.goal)[1] for _ in range(1000)]
    evenly(np.array(following), drawn.guide.corners, drawn.guide)
    assert runner.goals == 1000


def test_start_and_goal_have_nothing_to_do_with_each_other(drawn):
    both = np.concatenate([drawn.starts, drawn.goals], axis=1)
    assert np.abs(np.corrcoef(both.T)[:2, 2:]).max() < 0.1  # three deviations


@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_the_noise_is_gaussian_around_the_direction(drawn, noise):
    """Where the box is too far away to cut it off; a stitch episode keeps its goal."""
    recipe = replace(recipes.official("pointmaze-large-stitch-v0"), noise=noise)
    maze, left = Maze(recipe), []
    groups = (maze.episodes(range(first, first + 10)) for first in range(0, 40, 10))
    for number, (arrays, _) in enumerate(chain.from_iterable(groups)):
        goal = mazes.Runner(recipe, drawn.guide, drawn.env, number).goal
        told = drawn.guide.direction(arrays["qpos"].astype(float), goal[None])
        left.append((arrays["actions"] - told)[np.abs(told) < 1 - 4 * noise])
    left = np.concatenate(left)
    assert len(left) > 2000
    assert np.std(left) == pytest.approx(noise, rel=0.05)  # three deviations
    assert stats.kstest(left, stats.norm(0, noise).cdf).pvalue > 1e-3


# The card


def test_who_lies_on_its_back_is_counted():
    upright, turned, tilted = [1, 0, 0, 0], [0, 1, 0, 0], [np.cos(0.5), np.sin(0.5), 0, 0]
    qpos = np.zeros((4, 15))
    qpos[:, 3:7] = [upright, turned, turned, tilted]
    assert mazes._posture(qpos) == {"on_its_back": 0.5}
    assert mazes._posture(qpos[:, :2]) == {}
