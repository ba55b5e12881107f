"""Checkpoints of a run: written beside the training, restored only when they are whole."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vinerl.bench.run.runs import Run, stem
from vinerl.errors import InputError
from vinerl.train import checkpoint
from vinerl.train.loop import Moment
from vinerl.train.offline import Stack
from vinerl.types import Metrics, Params

KEEP = 2  # states, and their policies

copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))  # the next block takes the original


class Restored(NamedTuple):
    """Where a run goes on."""

    step: int
    stack: Stack  # not on a device yet
    window: list[Metrics]  # blocks since the last log
    metrics_bytes: int  # of metrics.jsonl when it was saved
    replay: Params = None  # of the online phase, once it has begun


class Saver:
    """Writes in a thread; one checkpoint at a time, the training never waits for the disk.

    every  of steps that are a multiple of it the policies are kept for good
    """

    def __init__(self, folder: Path, every: int = 1, **facts: Any):
        self.folder, self.every, self.facts = folder, every, facts
        self.thread = ThreadPoolExecutor(1)
        self.pending: Future | None = None
        self.failed: OSError | None = None  # why the last one is not on disk

    def save(self, moment: Moment, policies: Params, replay: Params = None) -> None:
        """Take a copy of everything now, write it soon."""
        self.wait()
        log = self.folder / "metrics.jsonl"
        facts = self.facts | {"metrics_bytes": log.stat().st_size if log.exists() else 0}
        stack, window = copy(moment.stack), list(moment.window)
        self.pending = self.thread.submit(
            self._write, moment.step, stack, window, policies, replay, facts, log
        )

    def wait(self) -> None:
        """Until the last checkpoint is on disk; where it is not, say so and go on."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        try:
            pending.result()
        except OSError as error:
            free = shutil.disk_usage(self.folder).free / 2**20
            print(
                f"could not save a checkpoint in {self.folder}: {error} ({free:.0f} MB free). The "
                "last good one is still there and the run goes on; make room before the next.",
                flush=True,
            )
            self.failed = error
        else:
            self.failed = None

    def close(self) -> None:
        self.wait()
        self.thread.shutdown()

    def _write(self, step, stack, window, policies, replay, facts, log) -> None:
        folder = self.folder / "checkpoints"
        exact = lambda x: [
            v.hex() for v in np.asarray(x, float).tolist()
        ]  # JSON has no inf, no NaN
        seen = [{n: exact(x) for n, x in block.items()} for block in window]
        if log.exists():
            with log.open("r+b") as file:  # a checkpoint counts on these lines
                os.fsync(file.fileno())
        checkpoint.save(folder / stem("policy", step), policies, step=step)
        if replay is not None:
            checkpoint.save(folder / stem("replay", step), replay, step=step)
        checkpoint.save(folder / stem("state", step), stack, step=step, window=seen, **facts)
        newest = stem("state", step)
        later = [card for card in states(self.folder) if card.stem > newest]  # were no good
        earlier = [card for card in states(self.folder) if card.stem <= newest]
        for old in later + earlier[:-KEEP]:
            passing = int(old.stem.split("-")[1]) % self.every
            for kind in ("state", "replay", *(["policy"] if passing else [])):
                file = old.with_stem(old.stem.replace("state", kind))
                file.with_suffix(".safetensors").unlink(missing_ok=True)
                file.unlink(missing_ok=True)


def states(folder: Path) -> list[Path]:
    """The cards of all states of a run, oldest first."""
    return sorted((folder / "checkpoints").glob("state-*.json"))


def restore(
    run: Run, like: Stack, replay: Callable[[int], Params] = lambda step: None, **facts: Any
) -> Restored | None:
    """The newest good state; what is damaged is passed over and named.

    replay  from a step to what its state comes with, in shape
    """
    folder = run.path / "checkpoints"
    for part in folder.glob("*.part"):
        part.unlink()
    for card in reversed(states(run.path)):
        path = card.with_suffix("")
        try:
            saved = checkpoint.card(path)
            for name, value in facts.items():
                if saved.get(name) != value:
                    raise InputError(f"{card}: of another {name} than the manifest's")
            stack, own = checkpoint.load(path, like), replay(saved["step"])
            if own is not None:
                own = checkpoint.load(folder / stem("replay", saved["step"]), own)
        except InputError as error:
            print(f"passed over a checkpoint: {error}", flush=True)
            continue
        exact = lambda x: jnp.float32([float.fromhex(v) for v in x])
        window = [{n: exact(x) for n, x in block.items()} for block in saved["window"]]
        return Restored(saved["step"], stack, window, saved["metrics_bytes"], own)
    return None


def cut_back(log: Path, size: int) -> None:
    """metrics.jsonl as it was when the checkpoint was made."""
    if log.exists() and log.stat().st_size > size:
        with log.open("r+b") as file:
            file.truncate(size)
