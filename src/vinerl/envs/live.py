"""Environments to learn in, in worker processes: python -m vinerl.envs.live NAME.

Evaluation needs to know how an episode went; who learns must be told every step. What it answers:

{"do": "reset", "slots": [..], "seeds": [..]}       -> first observations
{"do": "step", "slots": [..]} actions [N, 1, A]     -> observations; what each step brought
"""

import copy
import sys
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from vinerl.envs.worker import Slot, Slots, sound
from vinerl.envs.workers import Workers, serve

FAILED = -1.0  # what most of the benchmark's tasks give for a step without success


class Said(NamedTuple):
    """What N environments answered to an action each."""

    obs: list[np.ndarray]  # leaf by leaf, [N, ...]
    reward: np.ndarray  # [N]
    terminated: np.ndarray  # [N], by the task itself
    truncated: np.ndarray  # [N], for any other reason; what would have followed still counts


class Live:
    """`slots` environments of one kind, dealt out to `workers` processes."""

    def __init__(self, name: str, slots: int, workers: int):
        count = max(1, min(workers, slots))
        self.workers = Workers("vinerl.envs.live", name, count=count)

    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> list[np.ndarray]:
        """First observations of new episodes, leaf by leaf, in the order of `slots`."""
        give = lambda at: ({"do": "reset", "seeds": np.array(seeds)[at].tolist()}, [])
        return self._ask(slots, give)[0]

    def step(self, slots: Sequence[int], actions: np.ndarray) -> Said:
        """One action [N, A] each; an environment that is over is to be reset."""
        give = lambda at: ({"do": "step"}, [actions[at, None]])
        obs, said = self._ask(slots, give)
        column = lambda name, kind: np.array([one[name] for one in said], kind)
        ends = (column(name, bool) for name in ("terminated", "truncated"))
        return Said(obs, column("reward", np.float32), *ends)

    def close(self) -> None:
        self.workers.close()

    def _ask(self, slots: Sequence[int], give: Callable) -> tuple[list[np.ndarray], list[dict]]:
        """All workers at once, each for the places in `slots` it owns."""
        owners = np.array(slots) % len(self.workers)
        shares = [(w, np.flatnonzero(owners == w)) for w in np.unique(owners).tolist()]
        for w, at in shares:
            header, arrays = give(at)
            self.workers.send(w, header | {"slots": np.array(slots)[at].tolist()}, arrays)
        replies = [self.workers.receive(w) for w, _ in shares]
        order = np.argsort(np.concatenate([at for _, at in shares]))
        leaves = zip(*(arrays for _, arrays in replies), strict=True)
        said = [one for header, _ in replies for one in header.get("reports", [])]
        obs = [np.concatenate(column)[order] for column in leaves]
        return obs, [said[i] for i in order.tolist()] if said else []


class Lane(Slot):
    """An environment that reports every step.

    Where the simulator gives NaN or infinity, or begins anew, the episode is cut off and stays
    where it was, with the lowest reward of any episode, so that nobody learns from such a number.
    """

    least = inf

    def reset(self, seed: int) -> Any:
        obs = super().reset(seed)
        self.seen = copy.deepcopy(obs)  # an environment may go on to write into its own
        return obs

    def _step(self, chunk: np.ndarray) -> tuple[Any, dict]:
        obs, reward, terminated, truncated, _ = self.env.step(chunk[0])
        if not sound(self.env, obs, reward):
            least = self.least if self.least < inf else FAILED
            return self.seen, {"terminated": False, "truncated": True, "reward": least}
        self.seen = copy.deepcopy(obs)
        self.least = min(self.least, float(reward))
        ends = {"terminated": bool(terminated), "truncated": bool(truncated)}
        return obs, ends | {"reward": float(reward)}


class Lanes(Slots):
    def answer(self, header: dict, arrays: list[np.ndarray]) -> tuple[dict, list[np.ndarray]]:
        for i in header["slots"]:
            self.slots[i] = self.slots.get(i) or Lane(self.name)
        return super().answer(header, arrays)


if __name__ == "__main__":
    serve(Lanes(sys.argv[1]).answer)
