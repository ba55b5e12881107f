"""Manipulation datasets, an episode at a time: an arm that does one errand after another."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from ogbench.manipspace.envs.manipspace_env import ManipSpaceEnv
from ogbench.manipspace.oracles.plan.button_plan import ButtonPlanOracle
from ogbench.manipspace.oracles.plan.cube_plan import CubePlanOracle
from ogbench.manipspace.oracles.plan.drawer_plan import DrawerPlanOracle
from ogbench.manipspace.oracles.plan.window_plan import WindowPlanOracle

from vinerl.collect.recipes import Recipe

SMOOTHING = 0.5  # of the oracles' noise, in steps

# The chance that a cube is to be put on another one lies in here, and is drawn once an episode.
STACKING = {
    "cube-single-v0": (0.0, 0.0),
    "cube-double-v0": (0.0, 0.25),
    "cube-triple-v0": (0.05, 0.35),
    "cube-quadruple-v0": (0.1, 0.5),
}

Arrays = dict[str, np.ndarray]


class Play:
    """Episodes of OGBench's scripted oracles: a new target when a plan is over, no early end.

    Everything in an episode follows from the recipe's seed and the episode's number.
    """

    def __init__(self, recipe: Recipe):
        self.recipe, self.env = recipe, lean(recipe.env)
        common = {"env": self.env, "noise": recipe.noise, "noise_smoothing": SMOOTHING}
        closed = recipe.env.startswith("puzzle")  # with nothing to grasp the gripper stays shut
        self.oracles = {
            "cube": CubePlanOracle(**common),
            "button": ButtonPlanOracle(gripper_always_closed=closed, **common),
            "drawer": DrawerPlanOracle(**common),
            "window": WindowPlanOracle(**common),
        }

    def episode(self, number: int) -> tuple[Arrays, dict[str, float]]:
        """Its arrays; the targets done with in it, and how often it was drawn again."""
        draw = np.random.default_rng([self.recipe.seed, number])
        redrawn = 0
        while True:
            seed = int(draw.integers(2**31))
            stacking = draw.uniform(*STACKING.get(self.recipe.env, (0.5, 0.5)))
            arrays, goals = self._attempt(seed, stacking)
            if not self.recipe.env.startswith("scene") or healthy(arrays["qpos"]):
                return arrays, {"goals": goals, "redrawn": redrawn}
            redrawn += 1

    def _attempt(self, seed: int, stacking: float) -> tuple[Arrays, int]:
        np.random.seed(seed)  # the oracles draw from NumPy's global generator
        obs, info = self.env.reset(seed=seed)
        oracle = self._oracle(obs, info)
        rows, goals = [], 0
        for _ in range(self.recipe.rows):
            action = np.clip(oracle.select_action(obs, info), -1, 1)
            after, _, _, _, info = self.env.step(action)
            buttons = info.get("prev_button_states")
            rows.append((obs, action, info["prev_qpos"], info["prev_qvel"], buttons))
            obs = after
            if oracle.done:
                goals += 1
                oracle = self._oracle(*self.env.set_new_target(p_stack=stacking))

        *columns, buttons = zip(*rows, strict=True)
        names = ("observations", "actions", "qpos", "qvel")
        floats = (np.asarray(column, np.float32) for column in columns)
        arrays: Arrays = dict(zip(names, floats, strict=True))
        arrays["terminals"] = np.arange(self.recipe.rows) == self.recipe.rows - 1
        if buttons[0] is not None:
            arrays["button_states"] = np.asarray(buttons, np.int64)
        return arrays, goals

    def _oracle(self, obs: np.ndarray, info: dict) -> Any:
        """The one for the current target, with a new plan."""
        oracle = self.oracles[info["privileged/target_task"]]
        oracle.reset(obs, info)
        return oracle


def healthy(qpos: np.ndarray) -> bool:
    """Whether a scene's cube stayed on the table, or in the drawer where it left it."""
    y, z = qpos[:, 15], qpos[:, 16]
    lost = (y >= 0.29) | (y <= -0.3) & ((z < 0.06) | (z > 0.08))
    return not lost.any()


class Lean(ManipSpaceEnv):
    """Comes before an environment's class: nothing is painted, no state is described twice."""

    _known: dict | None = None  # the description, until the physics or a new target changes it

    def compute_ob_info(self) -> dict:
        if self._known is None:
            self._known = super().compute_ob_info()
        return self._known

    def pre_step(self) -> None:
        super().pre_step()
        self._known = None

    def set_new_target(self, *args, **kwargs) -> Any:
        self._known = None
        return super().set_new_target(*args, **kwargs)

    def post_compilation_objects(self) -> None:
        super().post_compilation_objects()
        for name in ("_cube_geom_ids_list", "_cube_target_geom_ids_list", "_button_geom_ids_list"):
            setattr(self, name, [[] for _ in getattr(self, name, ())])


def lean(name: str) -> Any:
    """OGBench's environment for making data, without wrappers: the same motion, bit for bit."""
    spec = gymnasium.spec(name)
    whole: Any = load_env_creator(str(spec.entry_point))
    env: Any = type("LeanEnv", (Lean, whole), {})
    return env(mode="data_collection", **spec.kwargs)
