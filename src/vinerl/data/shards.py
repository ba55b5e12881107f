"""Datasets larger than memory: a folder of .npz files that take turns.

step   |  0 ..  |  every ..  |  2 every ..  |  3 every ..  |
shard  |  1        2            0           |  0        ..      every shard once, in an order drawn
epoch  |  0                                 |  1        ..      anew for each epoch

Which shard has its turn is a function of the step alone, so a resumed run gets the same, and so
does a seed in another stack. All are padded to one length, so another shard compiles nothing.
"""

import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from numpy.lib import format as npy

from vinerl.data import archive
from vinerl.data.fold import Transitions
from vinerl.errors import InputError

EVERY = 1000  # steps on one shard
OPTIONAL = ("rewards", "masks", "next_observations")


class Size(NamedTuple):
    """What is known of a file without reading it."""

    transitions: int
    episodes: int
    rows: int  # of observations
    shapes: dict[str, tuple[int | str, ...]]  # of one observation and one action; images say so
    others: frozenset[str]  # of what need not be in a file that which is in it


def find(folder: Path) -> list[Path]:
    """The shards of a folder, in the order of their names; NAME-val.npz is for validation."""
    paths = sorted(p for p in folder.glob("*.npz") if not p.stem.endswith("-val"))
    if not paths:
        raise InputError(f"{folder}: there is no .npz file in this folder")
    return paths


def measure(path: Path) -> Size:
    """From the arrays' headers, and from `terminals`."""
    try:
        with zipfile.ZipFile(path) as file:
            names = [name.removesuffix(".npy") for name in file.namelist()]
            with file.open("terminals.npy") as raw:
                ends = npy.read_array(raw, allow_pickle=False).astype(bool).reshape(-1)
            parts = [n for n in names if n.split("/")[0] in ("observations", "actions")]
            shapes = {name: _shape(file, name) for name in parts}
    except (*archive.UNREADABLE, KeyError) as error:
        raise InputError(
            f"{path}: not readable as a part of a dataset ({error}). It may be truncated or "
            "damaged: get or make it again, or take it out of the folder."
        ) from error
    count, episodes = len(ends), int(ends.sum())
    others = frozenset(name.split("/")[0] for name in names) & {*OPTIONAL}
    if "next_observations" in others:
        return Size(count, episodes, count + episodes, shapes, others)
    return Size(count - episodes, episodes, count, shapes, others)


def alike(paths: Sequence[Path]) -> list[Size]:
    """The size of each file, all of one kind or refused."""
    sizes = [measure(path) for path in paths]
    for path, size in zip(paths, sizes, strict=True):
        here, there = _kind(size), _kind(sizes[0])
        if names := sorted(name for name in here | there if here.get(name) != there.get(name)):
            words = lambda kind: ", ".join(kind.get(name, f"no {name}") for name in names)
            raise InputError(
                f"{path} has {words(here)}, but {paths[0]} has {words(there)}: "
                "keep only files of one kind in a folder"
            )
    return sizes


def _kind(size: Size) -> dict[str, str]:
    """What is in a file, by name, in words."""
    shaped = {name: f"{name} [{', '.join(map(str, of))}]" for name, of in size.shapes.items()}
    return shaped | {name: name for name in size.others}


def _shape(file: zipfile.ZipFile, name: str) -> tuple[int | str, ...]:
    """Of a row."""
    with file.open(f"{name}.npy") as raw:
        old = npy.read_magic(raw) == (1, 0)
        shape, _, kind = (npy.read_array_header_1_0 if old else npy.read_array_header_2_0)(raw)
    return (*shape[1:], *(["uint8"] if kind == np.uint8 else []))


def pad(data: Transitions, transitions: int, rows: int) -> Transitions:
    """The same data in longer arrays; what is new is 0, and `count` stays."""

    def to(length):
        return lambda x: np.pad(x, [(0, length - len(x))] + [(0, 0)] * (x.ndim - 1))

    names = ("row", "action", "reward", "mask", "terminal")
    columns = {name: to(transitions)(getattr(data, name)) for name in names}
    return data._replace(obs=jax.tree.map(to(rows), data.obs), **columns)


def turn(step: int, every: int, shards: int, seed: int = 0) -> int:
    """The number of the shard that `step` learns from."""
    epoch, place = divmod(step // every, shards)
    return int(np.random.default_rng((seed, epoch)).permutation(shards)[place])


class Shards:
    """From a step to what it learns from, on the device.

    The next shard is read in a thread while one is trained on: at most two are in memory, and two
    on the device only while one takes over. None is read that only steps from `until` on need.
    """

    def __init__(
        self,
        load: Callable[[Path], Transitions],
        paths: Sequence[Path],
        until: int,
        every: int,
        seed: int = 0,
    ):
        self.load, self.paths, self.until, self.every, self.seed = load, paths, until, every, seed
        self.sizes = alike(paths)
        self.transitions = max(size.transitions for size in self.sizes)
        self.rows = max(size.rows for size in self.sizes)
        self.thread = ThreadPoolExecutor(1)
        self.now: dict[int, Transitions] = {}  # one at most
        self.coming: dict[int, Future[Transitions]] = {}  # likewise

    def __call__(self, step: int) -> Transitions:
        wanted = self.number(step)
        if wanted not in self.now:
            read = self.coming.pop(wanted, None) or self._begin(wanted)
            self.now, self.coming = {}, {}
            self.now = {wanted: jax.device_put(read.result())}
        after = step - step % self.every + self.every
        following = self.number(after)
        if after < self.until and following != wanted and following not in self.coming:
            self.coming = {following: self._begin(following)}
        return self.now[wanted]

    def number(self, step: int) -> int:
        return turn(step, self.every, len(self.paths), self.seed)

    def _begin(self, i: int) -> Future[Transitions]:
        read = lambda: pad(self.load(self.paths[i]), self.transitions, self.rows)
        return self.thread.submit(read)
