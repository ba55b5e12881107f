"""Maze episodes: the way through the maze, and arrays that depend on the episode's number alone."""

from dataclasses import replace

import numpy as np
import pytest

from vinerl.collect import controllers, mazes, recipes
from vinerl.collect.mazes import Guide, Maze
from vinerl.envs import ogbench
from vinerl.errors import InputError

POINT = replace(recipes.official("pointmaze-medium-navigate-v0"), episodes=3, rows=21)
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


@pytest.fixture(scope="module")
def legs(tmp_path_factory):
    """A controller that was never trained: any motion will do."""
    draw = np.random.default_rng(0)
    sizes = {"0": (29, 16), "1": (16, 16), "mean": (16, 8)}
    weights = {f"{n}.w": draw.normal(0, 0.5, s).astype(np.float32) for n, s in sizes.items()}
    weights |= {f"{n}.b": draw.normal(0, 0.1, s[1]).astype(np.float32) for n, s in sizes.items()}
    path = tmp_path_factory.mktemp("legs") / "ant.safetensors"
    controllers.save(path, weights, "ant")
    return path


@pytest.fixture(scope="module", params=["point", "ant"])
def maze(request, legs):
    return Maze(POINT) if request.param == "point" else Maze(ANT, legs)


def same(one, other):
    return all(np.array_equal(one[0][n], other[0][n]) for n in one[0]) and one[1] == other[1]


def test_an_episode_depends_on_its_number_alone(maze):
    """Not on what was made before, nor on what is made beside it."""
    together = maze.episodes([0, 1, 2])
    alone = [maze.episodes([number])[0] for number in (2, 0, 1)]
    assert all(map(same, together, (alone[1], alone[2], alone[0])))
    starts = [arrays["observations"][0] for arrays, _ in together]
    assert len(np.unique(starts, axis=0)) == 3


def test_another_seed_makes_other_episodes(legs):
    first, other = (Maze(replace(ANT, seed=s), legs).episodes([0])[0][0] for s in (0, 1))
    assert not np.array_equal(first["observations"], other["observations"])


def test_the_robot_moves_as_in_the_benchmarks_environment(maze):
    """From the first stored state on, the stored actions lead to the stored observations."""
    arrays, _ = maze.episodes([5])[0]
    env = ogbench.make(maze.recipe.env)
    ogbench.reset(env, 0)
    state = maze.envs[0].unwrapped
    runner = mazes.Runner(maze.recipe, maze.guide, maze.envs[0], 5)
    env.unwrapped.set_state(state.data.qpos.copy(), state.data.qvel.copy())
    for row, action in enumerate(arrays["actions"][:-1]):
        runner.step(action)
        obs, *_ = env.step(action)
        np.testing.assert_array_equal(arrays["observations"][row + 1], obs.astype(np.float32))


def test_the_layout_is_the_benchmarks(maze):
    arrays, _ = maze.episodes([0])[0]
    floats = {n: x.shape for n, x in arrays.items() if x.dtype == np.float32}
    assert set(floats) == {"observations", "actions", "qpos", "qvel"}
    assert all(len(x) == 21 for x in arrays.values())
    assert arrays["terminals"].tolist() == [False] * 20 + [True]
    ant = maze.recipe is ANT
    assert floats["observations"][1] == (29 if ant else 2)
    if ant:
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


def test_a_stitch_episode_goes_four_cells_and_stays():
    recipe = replace(recipes.official("pointmaze-large-stitch-v0"), noise=0.0)
    maze = Maze(recipe)
    for arrays, _ in maze.episodes([0, 1, 2]):
        row, column = (x.tolist() for x in maze.guide.cell(arrays["qpos"].astype(float)))
        first, last = (row[0], column[0]), (row[-1], column[-1])
        assert maze.guide.far[first][last] == mazes.REACH or first == last
        assert np.ptp(arrays["qpos"][-20:], axis=0).max() < 0.5


def test_an_explore_episode_turns_every_ten_steps(legs):
    """The controller is told the same direction for ten steps, and no goal changes it."""
    maze = Maze(replace(recipes.official("antmaze-medium-explore-v0"), rows=31, noise=0.0), legs)
    told, act = [], maze.act
    maze.act = lambda obs, direction: told.append(direction[0].copy()) or act(obs, direction)
    maze.episodes([0])
    assert len(np.unique(told, axis=0)) == 4
    assert len(np.unique(told[:10], axis=0)) == len(np.unique(told[10:20], axis=0)) == 1
    np.testing.assert_allclose(np.linalg.norm(told, axis=1), 1, atol=1e-5)


def test_who_lies_on_its_back_is_counted():
    upright, turned, tilted = [1, 0, 0, 0], [0, 1, 0, 0], [np.cos(0.5), np.sin(0.5), 0, 0]
    qpos = np.zeros((4, 15))
    qpos[:, 3:7] = [upright, turned, turned, tilted]
    assert mazes._posture(qpos) == {"on_its_back": 0.5}
    assert mazes._posture(qpos[:, :2]) == {}


# Controllers


def test_a_controller_comes_back_from_its_file(legs):
    """Against the formula, written out for one row."""
    weights = controllers.read(legs, "ant")
    obs, told = np.random.default_rng(1).normal(size=(2, 29)), np.array([[1.0, 0], [0, 1.0]])
    h = np.concatenate([obs[1, 2:], told[1]])
    for layer in "01":
        x = h @ weights[f"{layer}.w"].astype(float) + weights[f"{layer}.b"]
        h = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    expected = np.tanh(h @ weights["mean.w"] + weights["mean.b"])
    np.testing.assert_allclose(controllers.load(legs, "ant")(obs, told)[1], expected, atol=1e-5)


def test_the_point_moves_where_it_is_told():
    told = np.array([[0.6, -0.8]])
    assert np.array_equal(controllers.point(np.zeros((1, 2)), told), told)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("1.b"), "expected weights and biases of"),
        (lambda w: w.update({"1.w": w["1.w"][:, :3]}), "layer 1 is not finite float32"),
        (lambda w: w.update({"0.w": w["0.w"] * np.float32("nan")}), "layer 0 is not finite"),
        (lambda w: w.update({"mean.w": w["mean.w"].astype(float)}), "layer mean is not"),
    ],
)
def test_a_controller_that_cannot_be_is_refused(legs, tmp_path, change, message):
    weights = controllers.read(legs, "ant")
    change(weights)
    controllers.save(tmp_path / "bad", weights, "ant")
    with pytest.raises(InputError, match=message):
        controllers.read(tmp_path / "bad", "ant")


def test_a_controller_of_another_robot_or_no_controller_is_refused(legs, tmp_path):
    with pytest.raises(
        InputError, match=r"expected a controller of 'humanoid'.*\"robot\": \"ant\""
    ):
        controllers.read(legs, "humanoid")
    (tmp_path / "text").write_text("walk!")
    with pytest.raises(InputError, match="not a readable controller"):
        controllers.read(tmp_path / "text", "ant")
