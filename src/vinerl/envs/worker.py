"""A process that owns some environments and steps them: python -m vinerl.envs.worker NAME.

NAME is a Gymnasium id or module:Class. What it answers:

{"do": "describe"}                                  -> facts
{"do": "reset", "slots": [..], "seeds": [..]}       -> first observations
{"do": "step", "slots": [..]} actions [N, h, A]     -> observations; what finished
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from vinerl.envs import ogbench, wire
from vinerl.envs.workers import serve


def make(name: str) -> Any:
    if ":" in name:
        module, attribute = name.split(":")
        return getattr(importlib.import_module(module), attribute)()
    return ogbench.make(name)


class Slot:
    """One environment, and the episode that runs in it."""

    def __init__(self, name: str):
        self.env = make(name)
        self.rewards: list[float] = []
        self.path: list[list[float]] = []
        # A teleporter throws NumPy's global dice, which the other slots of this worker share.
        self.throws = getattr(self.env.unwrapped, "_teleport_info", None) is not None
        self.dice = np.random.get_state()

    def reset(self, seed: int) -> Any:
        self.rewards, self.path = [], []
        self.obs = ogbench.reset(self.env, seed)
        ogbench.unstable(self.env)  # what it met before is another episode's
        self.dice = np.random.get_state()
        return self.obs

    def step(self, chunk: np.ndarray) -> tuple[Any, dict | None]:
        """Execute a chunk [h, A] open loop; a report once the episode is over."""
        if not self.throws:
            return self._step(chunk)
        np.random.set_state(self.dice)
        outcome = self._step(chunk)
        self.dice = np.random.get_state()
        return outcome

    def _step(self, chunk: np.ndarray) -> tuple[Any, dict | None]:
        for action in chunk:
            if not np.isfinite(action).all():  # MuJoCo would begin anew, perhaps at the goal
                return self.obs, self._report(0.0, broken=True)
            self.obs, reward, terminated, truncated, info = self.env.step(action)
            self.rewards.append(float(reward))
            if "xy" in info:
                self.path.append([float(x) for x in info["xy"]])
            broken = not sound(self.env, self.obs, reward)
            if terminated or truncated or broken:
                success = 0.0 if broken else float(info.get("success", terminated))
                return self.obs, self._report(success, broken)
        return self.obs, None

    def _report(self, success: float, broken: bool) -> dict[str, Any]:
        told = {"success": success, "rewards": self.rewards, "path": self.path}
        return told | {"broken": broken}


def sound(env: Any, obs: Any, reward: float) -> bool:
    """Whether a step brought numbers, and the simulator went on from where it was."""
    finite = all(np.isfinite(x).all() for x in (*wire.leaves(obs), reward))
    return not ogbench.unstable(env) and finite


class Slots:
    """The environments of one worker, made when they are first used."""

    def __init__(self, name: str):
        self.name = name
        self.slots: dict[int, Slot] = {}

    def answer(self, header: dict, arrays: list[np.ndarray]) -> tuple[dict, list[np.ndarray]]:
        if header["do"] == "describe":
            env = make(self.name)
            ogbench.reset(env, 0)
            return ogbench.describe(env), []
        numbers = header["slots"]
        if header["do"] == "reset":
            for i in numbers:
                self.slots[i] = self.slots.get(i) or Slot(self.name)
            pairs = zip(numbers, header["seeds"], strict=True)
            return {}, columns([self.slots[i].reset(seed) for i, seed in pairs])
        outcomes = [self.slots[i].step(c) for i, c in zip(numbers, arrays[0], strict=True)]
        over = {i: report for i, (_, report) in zip(numbers, outcomes, strict=True) if report}
        reply = {"over": list(over), "reports": list(over.values())}
        return reply, columns([obs for obs, _ in outcomes])


def columns(observed: Sequence[Any]) -> list[np.ndarray]:
    """Observations leaf by leaf, each [N, ...]."""
    return [np.stack(leaf) for leaf in zip(*map(wire.leaves, observed), strict=True)]


if __name__ == "__main__":
    serve(Slots(sys.argv[1]).answer)
