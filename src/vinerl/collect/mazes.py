"""Maze episodes by waypoint following, some of them in lockstep so that a controller is asked once.

Every episode has a seed of its own, and a controller always sees as many rows as a full group has:
the arrays of an episode depend on its number and on nothing that was made before or beside it.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from vinerl.collect import controllers
from vinerl.collect.controllers import Controller
from vinerl.collect.recipes import Recipe
from vinerl.envs import ogbench

REACH = 4  # cells between start and goal of a stitch episode
TURN = 10  # steps between the directions of an explore episode

Cell = tuple[int, int]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))
Episode = tuple[dict[str, np.ndarray], dict[str, float]]  # its arrays, and what is told about it


class Guide:
    """Which way to go in a maze: the centre of the next cell on a shortest path to the goal."""

    def __init__(self, env: Any):
        inner = env.unwrapped
        self.map = inner.maze_map
        self.unit, self.offset = inner._maze_unit, np.array([inner._offset_x, inner._offset_y])
        self.free: list[Cell] = [(int(i), int(j)) for i, j in np.argwhere(self.map == 0)]
        self.corners = [cell for cell in self.free if not self._corridor(*cell)]
        self.far = {goal: self._distances(goal) for goal in self.free}
        self.towards = np.zeros((*self.map.shape, *self.map.shape, 2))  # [goal, cell] -> centre
        for goal in self.free:
            for cell in np.ndindex(self.map.shape):
                self.towards[(*goal, *cell)] = self.centre(self._next_cell(goal, cell))

    def direction(self, xy: np.ndarray, goal: np.ndarray) -> np.ndarray:
        """[E, 2] unit vectors; in the goal's cell, or cut off from it, to one's own centre."""
        step = self.towards[(*self.cell(goal), *self.cell(xy))] - xy
        return step / (np.linalg.norm(step, axis=1, keepdims=True) + 1e-6)

    def cell(self, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        column, row = ((xy + self.offset + 0.5 * self.unit) / self.unit).astype(int).T
        return row, column

    def centre(self, cell: Cell) -> np.ndarray:
        return np.array([cell[1], cell[0]]) * self.unit - self.offset

    def reach(self, start: Cell, steps: int) -> list[Cell]:
        """The cells that many steps away, or the start itself where there are none."""
        return [cell for cell, far in self.far[start].items() if far == steps] or [start]

    def _corridor(self, i: int, j: int) -> bool:
        """A cell between two opposite walls, open at both ends."""
        wall = self.map == 1
        across = wall[i, j - 1] and wall[i, j + 1] and not (wall[i - 1, j] or wall[i + 1, j])
        along = wall[i - 1, j] and wall[i + 1, j] and not (wall[i, j - 1] or wall[i, j + 1])
        return bool(across or along)

    def _distances(self, goal: Cell) -> dict[Cell, int]:
        far = {goal: 0}
        queue = deque([goal])
        while queue:
            i, j = queue.popleft()
            for near in ((i + di, j + dj) for di, dj in NEIGHBOURS):
                if self.map[near] == 0 and near not in far:
                    far[near] = far[(i, j)] + 1
                    queue.append(near)
        return far

    def _next_cell(self, goal: Cell, cell: Cell) -> Cell:
        """A neighbour nearest to the goal; the cell itself at the goal, or cut off from it."""
        far = self.far[goal]
        near = [(cell[0] + di, cell[1] + dj) for di, dj in NEIGHBOURS]
        if cell not in far:
            return cell
        return min([cell, *(n for n in near if n in far)], key=lambda n: far[n])


class Runner:
    """One episode under way: a robot in a maze, its dice and its goal."""

    def __init__(self, recipe: Recipe, guide: Guide, env: Any, number: int):
        seed = np.random.SeedSequence([recipe.seed, number])
        self.recipe, self.guide, self.env, self.goals = recipe, guide, env.unwrapped, 0
        self.draw, self.robot = np.random.default_rng(seed), recipe.robot
        start = self._pick(guide.free)
        ends = guide.reach(start, REACH) if recipe.kind == "stitch" else guide.corners
        cells = {"init_ij": start, "goal_ij": self._pick(ends)}
        ogbench.reset(env, int(seed.generate_state(1)[0]), options={"task_info": cells})
        self.goal = np.array(self.env.cur_goal_xy)
        shape = (recipe.rows, *self.env.action_space.shape)
        self.noise = self.draw.normal(0, recipe.noise, shape)
        turns = self.draw.normal(size=(-(-recipe.rows // TURN), 2))
        self.turns = turns / (np.linalg.norm(turns, axis=1, keepdims=True) + 1e-6)

    def move(self, action: np.ndarray) -> None:
        """As the environment's own step moves the robot."""
        model, data = self.env.model, self.env.data
        if self.robot == "humanoid":  # whose observation needs more than the state
            self.env.do_simulation(action, self.env.frame_skip)
            return
        if self.robot == "ant":
            data.ctrl[:] = action
        else:
            data.qpos[:] += 0.2 * action
            data.qvel[:] = 0
        mujoco.mj_step(model, data, nstep=self.env.frame_skip)  # pyright: ignore[reportAttributeAccessIssue]

    def arrive(self) -> None:
        """At the goal, which is another one from now on where goals follow each other."""
        if self.recipe.kind != "navigate":
            self.goals = 1
            return
        self.goals += 1
        spread = self.env._noise * self.guide.unit / 4
        centre = self.guide.centre(self._pick(self.guide.corners))
        self.goal = centre + self.draw.uniform(-spread, spread, 2)

    def _pick(self, cells: Sequence[Cell]) -> Cell:
        return cells[int(self.draw.integers(len(cells)))]


class Maze:
    """Makes the episodes of a recipe, a group at a time."""

    def __init__(self, recipe: Recipe, controller: Path | None = None):
        self.recipe = recipe
        self.envs = [ogbench.make(recipe.env, terminate_at_goal=False)]
        self.guide = Guide(self.envs[0])
        self.act: Controller = controllers.point
        if recipe.robot:
            assert controller is not None
            self.act = controllers.load(controller, recipe.robot)

    def _look(self, runners: Sequence[Runner], xy: np.ndarray) -> None:
        """Whose step has led to the goal has a new one before the next, as in the official data."""
        goals = np.array([runner.goal for runner in runners])
        there = np.linalg.norm(xy - goals, axis=1) <= runners[0].env._goal_tol
        for runner in (runner for runner, near in zip(runners, there, strict=True) if near):
            runner.arrive()

    def episodes(self, numbers: Sequence[int]) -> list[Episode]:
        """In lockstep; a controller sees the rows of a full group even where there are fewer."""
        recipe, count, full = self.recipe, len(numbers), self.recipe.together
        self.envs += [
            ogbench.make(recipe.env, terminate_at_goal=False) for _ in range(count - len(self.envs))
        ]
        runners = [
            Runner(recipe, self.guide, env, n) for env, n in zip(self.envs, numbers, strict=False)
        ]
        inner = [runner.env for runner in runners]
        obs = np.zeros((recipe.rows, full, len(inner[0].get_ob())))
        direction = np.zeros((full, 2))
        action = np.zeros((recipe.rows, count, *inner[0].action_space.shape), np.float32)
        qpos = np.zeros((recipe.rows, count, inner[0].model.nq))
        qvel = np.zeros((recipe.rows, count, inner[0].model.nv))
        for t in range(recipe.rows):
            for e, env in enumerate(inner):
                obs[t, e], qpos[t, e], qvel[t, e] = env.get_ob(), env.data.qpos, env.data.qvel
            if t > 0:
                self._look(runners, qpos[t, :, :2])
            if recipe.kind == "explore":
                direction[:count] = [runner.turns[t // TURN] for runner in runners]
            else:
                goals = np.array([runner.goal for runner in runners])
                direction[:count] = self.guide.direction(qpos[t, :, :2], goals)
            mean = self.act(obs[t], direction)[:count]
            noise = np.array([runner.noise[t] for runner in runners])
            action[t] = np.clip(mean + noise, -1, 1)
            for e, runner in enumerate(runners):
                runner.move(action[t, e])

        terminals = np.arange(recipe.rows) == recipe.rows - 1
        columns = {"observations": obs, "actions": action, "qpos": qpos, "qvel": qvel}
        return [
            (
                {name: x[:, e].astype(np.float32) for name, x in columns.items()}
                | {"terminals": terminals},
                _progress(runner) | _posture(qpos[:, e]),
            )
            for e, runner in enumerate(runners)
        ]


def _progress(runner: Runner) -> dict[str, float]:
    """The goals that were reached; who explores has none."""
    return {} if runner.recipe.kind == "explore" else {"goals": runner.goals}


def _posture(qpos: np.ndarray) -> dict[str, float]:
    """Of a robot with a free torso: the share of rows in which it lies on its back."""
    if qpos.shape[1] < 7:
        return {}
    _, x, y, _ = qpos[:, 3:7].T
    return {"on_its_back": float(np.mean(1 - 2 * (x**2 + y**2) < 0))}
