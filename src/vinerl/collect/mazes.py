"""Maze datasets, an episode at a time: python -m vinerl.collect.mazes RECIPE answers requests.

Every episode has its own seed, so any number of processes makes the same file.
"""

import json
import sys
from dataclasses import asdict, dataclass

import numpy as np

from vinerl.collect.controllers import Guide, point_controller
from vinerl.envs import ogbench
from vinerl.envs.workers import serve


@dataclass(frozen=True)
class Recipe:
    """All that decides what is in a dataset, the simulator's version apart."""

    dataset: str
    env: str
    episodes: int  # of the training file; a tenth of it, at least one, for validation
    rows: int  # of an episode, the final observation among them
    noise: float  # standard deviation of the noise on actions
    seed: int = 0
    generator: int = 1  # counts changes that alter the arrays

    @property
    def validation(self) -> int:
        return max(1, self.episodes // 10)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def pointmaze(dataset: str, episodes: int) -> Recipe:
    """The official recipe of the navigate sets but for the number of episodes."""
    _, size, _, version = dataset.split("-")
    rows = 2001 if size == "giant" else 1001
    return Recipe(dataset, f"pointmaze-{size}-{version}", episodes, rows, noise=0.5)


class Maze:
    """Episodes of waypoint following: a new goal whenever one is reached, no early end."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        limit = {"terminate_at_goal": False, "max_episode_steps": recipe.rows}
        self.env = ogbench.make(recipe.env, **limit)
        self.guide = Guide(self.env)

    def episode(self, number: int) -> tuple[dict[str, np.ndarray], int]:
        """The arrays of one episode, and how many goals were reached in it."""
        seed = np.random.SeedSequence([self.recipe.seed, number])
        draw, inner = np.random.default_rng(seed), self.env.unwrapped
        pick = lambda cells: cells[draw.integers(len(cells))]
        cells = {"init_ij": pick(self.guide.free), "goal_ij": pick(self.guide.corners)}
        first = int(seed.generate_state(1)[0])
        obs = ogbench.reset(self.env, first, options={"task_info": cells})

        rows, goals = [], 0
        for _ in range(self.recipe.rows):
            action = point_controller(obs, self.guide.direction(inner.get_xy(), inner.cur_goal_xy))
            action = action + draw.normal(0, self.recipe.noise, action.shape)
            action = np.clip(action, -1, 1).astype(np.float32)
            after, _, _, _, info = self.env.step(action)
            rows.append((obs, action, info["prev_qpos"], info["prev_qvel"]))
            obs = after
            if info["success"]:
                goals += 1
                inner.set_goal(goal_xy=inner.add_noise(inner.ij_to_xy(pick(self.guide.corners))))

        columns = (np.asarray(column, np.float32) for column in zip(*rows, strict=True))
        names = ("observations", "actions", "qpos", "qvel")
        arrays: dict[str, np.ndarray] = dict(zip(names, columns, strict=True))
        arrays["terminals"] = np.arange(self.recipe.rows) == self.recipe.rows - 1
        return arrays, goals

    def answer(self, header: dict, _) -> tuple[dict, list[np.ndarray]]:
        arrays, goals = self.episode(header["episode"])
        return {"goals": goals, "names": list(arrays)}, list(arrays.values())


if __name__ == "__main__":
    serve(Maze(Recipe(**json.loads(sys.argv[1]))).answer)
