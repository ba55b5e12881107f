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
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinerl.data.fold import Transitions, transitions
from vinerl.errors import InputError

CLIP = 1 - 1e-5  # the benchmark keeps data actions this far inside the box
OFFICIAL = Path("~/.ogbench/data")  # only ever read


def folder(given: Path | None = None) -> Path:
    """Where datasets are made: `given`, else $VINERL_DATA, else ~/.cache/vinerl/data."""
    default = os.environ.get("VINERL_DATA") or "~/.cache/vinerl/data"
    return Path(given or default).expanduser()


def read(path: Path) -> dict[str, np.ndarray]:
    """Every array of an .npz file, in memory."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        # Opened here, because np.load leaves a damaged file open.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        raise InputError(
            f"{path}: not a readable .npz file ({error}). It may be truncated or damaged: "
            "get or make it again."
        ) from error


def observations(arrays: dict[str, np.ndarray], name: str = "observations") -> Any:
    """The tree stored under `name`: one array, or a dict of the keys below it."""
    if name in arrays:
        return arrays[name]
    return {k.removeprefix(f"{name}/"): v for k, v in arrays.items() if k.startswith(f"{name}/")}


def check(arrays: dict[str, np.ndarray], path: Path) -> None:
    """Everything that would spoil a training run, refused by key, row and count."""
    seen = {name: x for name, x in arrays.items() if name.split("/")[0] in _NAMES}
    missing = [n for n in ("observations", "actions", "terminals") if not _has(seen, n)]
    if missing:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise InputError(f"{path}: no {' and no '.join(missing)} in it; it has {found}")
    actions = seen["actions"]
    count = len(actions) if actions.ndim == 2 and actions.size else 0
    for name, x in sorted(seen.items(), key=lambda item: item[0] != "actions"):
        shape = "[rows, A]" if name == "actions" else "[rows]" if name in _FLAT else "[rows, ...]"
        wrong_rank = (name == "actions" and x.ndim != 2) or (name in _FLAT and x.ndim != 1)
        if wrong_rank or x.ndim == 0 or len(x) != count or count == 0:
            raise InputError(
                f"{path}: {name} has shape {x.shape}, expected {shape}"
                + (f" with {count} rows, as actions have" if count else "")
            )
        if x.dtype.kind not in "fiub":
            raise InputError(f"{path}: {name} holds {x.dtype}, expected numbers")
        if x.dtype == np.uint8 and "observations" in name and x.ndim != 4:
            raise InputError(
                f"{path}: {name} is uint8 of shape {x.shape}; such a part is taken for images, "
                "[rows, height, width, channels]. Store anything else as float32."
            )
        with np.errstate(over="ignore"):
            good = np.isfinite(x.astype(np.float32, copy=False)) if x.dtype.kind == "f" else x == x
        if not good.all():
            bad = np.flatnonzero(~good.reshape(count, -1).all(axis=1))
            raise InputError(
                f"{path}: {name} is NaN or infinite in {len(bad)} of {count} rows, first in row "
                f"{bad[0]}. Remove those episodes or repair the values."
            )
    if (outside := ((actions < -1) | (actions > 1)).any(axis=1)).any():
        rows, low, high = np.flatnonzero(outside), float(actions.min()), float(actions.max())
        raise InputError(
            f"{path}: actions leave [-1, 1] in {len(rows)} of {count} rows, first in row {rows[0]}"
            f" (range {low:.4g} to {high:.4g}). Map them before training: "
            f"a -> 2 * (a - {low:.4g}) / {high - low:.4g} - 1"
        )
    if not seen["terminals"][-1]:
        raise InputError(
            f"{path}: the last episode has no end: terminals must be 1 in row {count - 1}"
        )


def exact(x: np.ndarray) -> np.ndarray:
    """Images as they are, everything else in float32."""
    return x if x.dtype == np.uint8 else x.astype(np.float32, copy=False)


def to_transitions(arrays: dict[str, np.ndarray], path: Path, sparse: bool = False) -> Transitions:
    """Checked arrays, with rewards, as a dataset. `sparse` makes every reward -1 or 0."""
    if "rewards" not in arrays:
        raise InputError(
            f"{path}: no rewards in it. An OGBench file gets them from its task: give --task."
        )
    ends = arrays["terminals"].astype(bool)
    obs = jax.tree.map(exact, observations(arrays))
    following = jax.tree.map(exact, observations(arrays, "next_observations"))
    if jax.tree.leaves(following):
        obs, ends = _interleave(obs, following, ends, path), ends
        used = np.ones(len(ends), bool)
    else:
        used = ~ends
        if not used.any() or (ends[1:] & ends[:-1]).any() or ends[0]:
            row = 0 if ends[0] else int(np.flatnonzero(ends[1:] & ends[:-1])[0]) + 1
            raise InputError(f"{path}: the episode that ends in row {row} has no transition")
        ends = np.append(ends[1:], False)[used]
    reward, mask = arrays["rewards"], arrays.get("masks", np.ones(len(used), np.float32))
    reward = np.where(reward != 0, -1.0, 0.0) if sparse else reward
    action = np.clip(arrays["actions"].astype(np.float32), -CLIP, CLIP)
    return transitions(obs, action[used], reward[used], mask[used], ends)


# A flipped bit can make of a file any of these: another version, an encrypted one, another format.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    TypeError,
)

_NAMES = ("observations", "next_observations", "actions", "rewards", "masks", "terminals")
_NAMES += ("qpos", "button_states")  # what an OGBench task's rewards are made from
_FLAT = ("rewards", "masks", "terminals")


def _has(arrays: dict[str, np.ndarray], name: str) -> bool:
    return any(key == name or key.startswith(f"{name}/") for key in arrays)


def _interleave(obs: Any, following: Any, ends: np.ndarray, path: Path) -> Any:
    """Each observation once: an episode's own and, after its last, the one that followed."""
    if jax.tree.structure(obs) != jax.tree.structure(following):
        raise InputError(f"{path}: next_observations and observations are not the same tree")

    def one(x, y):
        if x.shape != y.shape:
            raise InputError(
                f"{path}: next_observations have shape {y.shape}, but observations {x.shape}"
            )
        inside = np.flatnonzero(~ends)
        same = (x[inside + 1] == y[inside]).all(axis=tuple(range(1, x.ndim)))
        if not same.all():
            row = inside[np.flatnonzero(~same)[0]]
            raise InputError(
                f"{path}: next_observations of row {row} is not the observation of row {row + 1}, "
                "but no episode ends there: set terminals to 1 where one does"
            )
        return np.insert(x, np.flatnonzero(ends) + 1, y[ends], axis=0)

    return jax.tree.map(one, obs, following)
