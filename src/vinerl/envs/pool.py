"""Many environments in worker processes, stepped together."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from vinerl.envs.workers import Workers
from vinerl.errors import WorkerError


class Report(NamedTuple):
    """A finished episode."""

    success: float
    rewards: list[float]
    path: list[list[float]]  # positions, where the environment tells them
    broken: bool = False  # by NaN, from simulator or policy; counted as a failure


class Pool:
    """`slots` environments of one kind, dealt out to `workers` processes."""

    def __init__(self, name: str, slots: int, workers: int, patience: float = 300.0):
        self.name, self.slots = name, slots
        count = max(1, min(workers, slots))
        start = partial(Workers, "vinerl.envs.worker", name, count=count, patience=patience)
        self.start, self.workers, self.closed = start, start(), False

    def restart(self) -> None:
        """Fresh workers, after one of them has failed."""
        self.workers.close()
        if not self.closed:
            self.workers = self.start()
        if self.closed:  # perhaps only just now, by another thread
            self.workers.close()
            raise WorkerError("the pool is closed")

    def describe(self) -> dict:
        self.workers.send(0, {"do": "describe"})
        return self.workers.receive(0)[0]

    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> list[np.ndarray]:
        """First observations of new episodes, leaf by leaf, in the order of `slots`."""
        shares = self._deal(slots)
        for w, at in shares.items():
            chosen = {"slots": [slots[i] for i in at], "seeds": [int(seeds[i]) for i in at]}
            self.workers.send(w, {"do": "reset"} | chosen)
        return _gather({w: self.workers.receive(w)[1] for w in shares}, shares)

    def step(
        self, slots: Sequence[int], chunks: np.ndarray
    ) -> tuple[list[np.ndarray], dict[int, Report]]:
        """Execute chunks [N, h, A]; observations, and reports of the slots that are done."""
        shares = self._deal(slots)
        for w, at in shares.items():
            self.workers.send(w, {"do": "step", "slots": [slots[i] for i in at]}, [chunks[at]])
        replies = {w: self.workers.receive(w) for w in shares}
        over = {
            slot: Report(**report)
            for header, _ in replies.values()
            for slot, report in zip(header["over"], header["reports"], strict=True)
        }
        return _gather({w: arrays for w, (_, arrays) in replies.items()}, shares), over

    def close(self) -> None:
        self.closed = True
        self.workers.close()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _deal(self, slots: Sequence[int]) -> dict[int, list[int]]:
        """worker -> places in `slots` of the environments it owns."""
        shares: dict[int, list[int]] = {}
        for place, slot in enumerate(slots):
            shares.setdefault(slot % len(self.workers), []).append(place)
        return shares


def _gather(arrays: dict[int, list[np.ndarray]], shares: dict[int, list[int]]) -> list[np.ndarray]:
    """Leaves in the caller's order, from workers that each answered for a share."""
    order = np.argsort(np.concatenate([shares[w] for w in arrays]))
    return [np.concatenate(column)[order] for column in zip(*arrays.values(), strict=True)]
