"""Stored transitions: reading, checking, and where the files are.

Two layouts of an .npz file are read. Rows of an episode follow each other, and `terminals` is 1 on
the last of them.

OGBench's     observations, actions, terminals (and qpos, qvel, button_states): the last row of an
              episode is its final observation, and that row's action is not used
with rewards  the same and `rewards`, perhaps `masks` (0 where the task itself ended): a file of
              your own; with `next_observations` every row is a transition

Observations that are a tree have one key a leaf: observations/camera, observations/joints.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from vinerl.data import archive
from vinerl.data.fold import Transitions, transitions
from vinerl.errors import InputError

Arrays = dict[str, np.ndarray]

CLIP = 1 - 1e-5  # the benchmark keeps data actions this far inside the box
OFFICIAL = Path("~/.ogbench/data")  # only ever read

HOW = "examples/own_data.py shows how to write one"
OTHERS = {b"\x89HDF": "an HDF5 file", b"PAR1": "a Parquet file", b"\x93NUM": "one array, an .npy"}


class Fault(NamedTuple):
    key: str  # of an array, or "file"
    message: str  # with rows and counts, and what to do


def folder(given: Path | None = None) -> Path:
    """Where datasets are made: `given`, else $VINERL_DATA, else ~/.cache/vinerl/data."""
    default = os.environ.get("VINERL_DATA") or "~/.cache/vinerl/data"
    return Path(given or default).expanduser()


def read(path: Path) -> Arrays:
    """Every array of an .npz file, in memory."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        with path.open("rb") as file:
            return archive.read(file)
    except archive.UNREADABLE as error:
        raise InputError(f"{path}: not a readable .npz file{_why(path, error)}") from error


def _why(path: Path, error: Exception) -> str:
    """Why a file cannot be read, and what to do."""
    with path.open("rb") as file:
        other = OTHERS.get(file.read(4))
    if other:
        return f", but {other}; {HOW}"
    if isinstance(error, archive.HasObjects):
        return f" ({error}). Put all episodes into one array, one after the other; {HOW}."
    return f" ({error}). It may be truncated or damaged: get or make it again."


def observations(arrays: Arrays, name: str = "observations") -> Any:
    """The tree stored under `name`: one array, or a dict of the keys below it."""
    if name in arrays:
        return arrays[name]
    return {k.removeprefix(f"{name}/"): v for k, v in arrays.items() if k.startswith(f"{name}/")}


def check(arrays: Arrays, path: Path) -> None:
    """Refuse what would spoil a training run, by key, row and count."""
    for _, message in faults(arrays):
        raise InputError(f"{path}: {message}")


def check_shapes(arrays: Arrays, path: Path) -> None:
    """Refuse only what cannot be computed with: missing arrays, wrong shapes and types."""
    for _, message in misshapen(arrays):
        raise InputError(f"{path}: {message}")


def faults(arrays: Arrays) -> Iterator[Fault]:
    """Everything that would spoil a training run. A misshapen array is not looked at further."""
    bad = set()
    for key, message in misshapen(arrays):
        bad.add(key)
        yield Fault(key, message)
    sound = {name: x for name, x in relevant(arrays).items() if name not in bad}
    for name, x in sound.items():
        if len(rows := np.flatnonzero(~finite(x))):
            yield Fault(
                name,
                f"{name} is NaN or infinite in {len(rows)} of {len(x)} rows, first in row "
                f"{rows[0]}. Repair the values, or leave such rows out with --drop-bad-rows.",
            )
    if "actions" in sound:
        yield from _outside(sound["actions"])
    for name in ("masks", "terminals"):
        if name in sound:
            yield from _no_flag(name, sound[name])
    if "terminals" in sound:
        yield from _endless(sound["terminals"].astype(bool), spelled_out(arrays))
    if spelled_out(arrays) and not bad:
        yield from _unfollowed(arrays, ~sound["terminals"].astype(bool))


def misshapen(arrays: Arrays) -> Iterator[Fault]:
    """Arrays that are missing, have another shape than they must, or hold no numbers."""
    seen = relevant(arrays)
    missing = [n for n in ("observations", "actions", "terminals") if not _has(seen, n)]
    if missing:
        found = ", ".join(sorted(arrays)) or "nothing"
        yield Fault("file", f"no {' and no '.join(missing)} in it; it has {found}. {HOW}")
    for tree in ("observations", "next_observations"):
        if tree in seen and (parts := sorted(n for n in seen if n.startswith(f"{tree}/"))):
            yield Fault(
                tree,
                f"{tree} stands beside {', '.join(parts)}, of which one alone would be used: give "
                f"all parts a name below it, as {tree}/state",
            )
    actions = seen.get("actions", np.zeros(0))
    count = len(actions) if actions.ndim == 2 and actions.size else 0
    for name, x in seen.items():
        shape = "[rows, A]" if name == "actions" else "[rows]" if name in _FLAT else "[rows, ...]"
        wrong_rank = (name == "actions" and x.ndim != 2) or (name in _FLAT and x.ndim != 1)
        if wrong_rank or not x.ndim or not x.size or len(x) != (count or len(x)):
            rows = f" with {count} rows, as actions have" if count else ""
            empty = "; it is empty" if x.ndim and not x.size else ""
            said = f"{name} has shape {x.shape}, expected {shape}{rows}{empty or _hint(name, x)}"
            yield Fault(name, said)
        elif x.dtype.kind not in "fiub":
            yield Fault(name, f"{name} holds {x.dtype}, expected numbers")
        elif x.dtype == np.uint8 and "observations" in name and x.ndim != 4:
            yield Fault(
                name,
                f"{name} is uint8 of shape {x.shape}; such a part is taken for images, "
                "[rows, height, width, channels]. Store anything else as float32.",
            )


def relevant(arrays: Arrays) -> Arrays:
    """The arrays that are ever used, actions first."""
    seen = {name: x for name, x in arrays.items() if name.split("/")[0] in _NAMES}
    return dict(sorted(seen.items(), key=lambda item: item[0] != "actions"))


def spelled_out(arrays: Arrays) -> bool:
    """With next_observations every row is a transition."""
    return _has(arrays, "next_observations")


def used(arrays: Arrays) -> np.ndarray:
    """[rows], whether a transition starts in a row."""
    ends = arrays["terminals"].astype(bool)
    return np.ones(len(ends), bool) if spelled_out(arrays) else ~ends


def finite(x: np.ndarray) -> np.ndarray:
    """[rows], whether all of a row's numbers are finite once they are float32."""
    if x.dtype.kind != "f":
        return np.ones(len(x), bool)
    with np.errstate(over="ignore"):
        return _each_row(np.isfinite(x.astype(np.float32, copy=False)))


def exact(x: np.ndarray) -> np.ndarray:
    """Images as they are, everything else in float32."""
    return x if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def to_transitions(arrays: Arrays, path: Path, sparse: bool = False) -> Transitions:
    """Checked arrays, with rewards, as a dataset. `sparse` makes every reward -1 or 0."""
    if "rewards" not in arrays:
        raise InputError(
            f"{path}: no rewards in it. Data of your own need an array `rewards`; a file of "
            "OGBench gets them from a task: put it under its own name into a folder, and give "
            f"--task NAME --dir {path.parent}"
        )
    ends, taken = arrays["terminals"].astype(bool), used(arrays)
    obs = jax.tree.map(exact, observations(arrays))
    if spelled_out(arrays):
        # Each observation once: an episode's own and, after its last, the one that followed.
        after = lambda x, y: np.insert(x, np.flatnonzero(ends) + 1, exact(y)[ends], axis=0)
        obs = jax.tree.map(after, obs, observations(arrays, "next_observations"))
    else:
        ends = np.append(ends[1:], False)[taken]
    reward, mask = arrays["rewards"], arrays.get("masks", np.ones(len(taken), np.float32))
    reward = np.where(reward != 0, -1.0, 0.0) if sparse else reward
    action = np.clip(arrays["actions"].astype(np.float32), -CLIP, CLIP)
    return transitions(obs, action[taken], reward[taken], mask[taken], ends)


_NAMES = ("observations", "next_observations", "actions", "rewards", "masks", "terminals")
_NAMES += ("qpos", "button_states")  # what an OGBench task's rewards are made from
_FLAT = ("rewards", "masks", "terminals")
UNUSED = ("qvel",)  # of OGBench's own files


def _hint(name: str, x: np.ndarray) -> str:
    """What may have been meant by too few or too many axes."""
    if name == "actions" and x.ndim == 1:
        return "; one number a row is [rows, 1]"
    if name in _FLAT and x.ndim == 2 and x.shape[1] == 1:
        return f"; {name}[:, 0] is one number a row"
    rank = 2 if name == "actions" else 1 if name in _FLAT else x.ndim
    return "; episodes follow one another, without padding" if x.ndim > rank else ""


def _has(arrays: Arrays, name: str) -> bool:
    return any(key == name or key.startswith(f"{name}/") for key in arrays)


def _each_row(good: np.ndarray) -> np.ndarray:
    return np.asarray(good.all(axis=tuple(range(1, good.ndim))))


def _outside(actions: np.ndarray) -> Iterator[Fault]:
    values = actions[finite(actions)]
    outside = finite(actions) & ((actions < -1) | (actions > 1)).any(axis=1)
    if outside.any():
        rows, low, high = np.flatnonzero(outside), float(values.min()), float(values.max())
        yield Fault(
            "actions",
            f"actions leave [-1, 1] in {len(rows)} of {len(actions)} rows, first in row {rows[0]} "
            f"(range {low:.4g} to {high:.4g}). Give --rescale-actions, or map them yourself: "
            f"a -> 2 * (a - {low:.4g}) / {high - low:.4g} - 1",
        )


def _no_flag(name: str, x: np.ndarray) -> Iterator[Fault]:
    rows = np.flatnonzero(finite(x) & (x != 0) & (x != 1))
    if len(rows):
        meaning = "0 where the task itself ended" if name == "masks" else "1 on an episode's last"
        yield Fault(
            name,
            f"{name} is neither 0 nor 1 in {len(rows)} of {len(x)} rows, first in row {rows[0]} "
            f"({x[rows[0]]:.4g}). It must be {meaning} and {int(name == 'masks')} elsewhere.",
        )


def _endless(ends: np.ndarray, spelled: bool) -> Iterator[Fault]:
    count = len(ends)
    if not ends.any():
        yield Fault(
            "terminals",
            f"terminals is 1 in no row. It must be 1 in the last row of every episode, and so in "
            f"row {count - 1}.",
        )
    elif not ends[-1]:
        yield Fault(
            "terminals", f"the last episode has no end: terminals must be 1 in row {count - 1}"
        )
    short = np.flatnonzero(ends & np.append(True, ends[:-1]))
    if len(short) and not spelled:
        others = f"; {len(short)} episodes have none" if len(short) > 1 else ""
        yield Fault(
            "terminals",
            f"the episode that ends in row {short[0]} has no transition{others}. Without "
            "next_observations the last row is a final observation: remove episodes of one row.",
        )


def _unfollowed(arrays: Arrays, inside: np.ndarray) -> Iterator[Fault]:
    """Rows inside an episode whose next observation is not the one of the row below."""
    key = "next_observations"
    obs, following = observations(arrays), observations(arrays, key)
    if jax.tree.structure(obs) != jax.tree.structure(following):
        yield Fault(key, f"{key} and observations are not the same tree")
        return
    rows = np.flatnonzero(inside[:-1])
    same = np.ones(len(rows), bool)
    for x, y in zip(jax.tree.leaves(obs), jax.tree.leaves(following), strict=True):
        if x.shape != y.shape:
            yield Fault(key, f"{key} have shape {y.shape}, but observations {x.shape}")
            return
        below, said = exact(x[rows + 1]), exact(y[rows])
        same &= _each_row(below == said) | ~finite(below) | ~finite(said)
    if len(bad := rows[~same]):
        yield Fault(
            key,
            f"{key} of row {bad[0]} is not the observation of row {bad[0] + 1}, but no episode "
            f"ends there ({len(bad)} of {len(inside)} rows): set terminals to 1 where one does",
        )
