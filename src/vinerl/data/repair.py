"""What can be put right about arrays before they are checked, when it is asked for.

All functions take arrays that `files.check_shapes` lets pass.
"""

from typing import NamedTuple

import numpy as np

from vinerl.data import files
from vinerl.data.files import Arrays

OF_A_STEP = {"actions": 0, "rewards": 0, "masks": 1}  # and what stands where no step is taken


class Box(NamedTuple):
    """The least and the greatest action, a dimension at a time."""

    low: np.ndarray  # [A]
    high: np.ndarray

    def around(self, other: "Box") -> "Box":
        """The smallest that holds both."""
        return Box(np.minimum(self.low, other.low), np.maximum(self.high, other.high))


def drop_bad_rows(arrays: Arrays) -> tuple[Arrays, int]:
    """Leave out what is NaN or infinite, and how many rows that were.

    A transition stays if its action, reward and mask are finite and both of its states are; no
    other is made. So an episode is cut into pieces around its bad rows, and each piece ends with
    terminals 1: a truncation, because the masks stay as they are.

    row            |  0    1    2    3    4    5    6  |     row 3 has a bad observation, row 5 a
    state          |  s    s    s    -    s    s    s  |     bad action
    action         |  a    a    a    a    a    -       |
    left           |  s a  s a  s  |      s a  s  |          row 6 alone is no transition

    Without next_observations a piece needs two rows, and a final row's own action, reward and mask
    are not used: bad ones become 0, 0 and 1. With them every row with finite values stays. Arrays
    with nothing bad come back as they are.
    """
    good = {name: files.finite(x) for name, x in files.relevant(arrays).items()}
    if all(rows.all() for rows in good.values()):
        return arrays, 0
    ends = arrays["terminals"].astype(bool)
    step = np.all([rows for name, rows in good.items() if name in OF_A_STEP], axis=0)
    state = np.all([rows for name, rows in good.items() if name not in OF_A_STEP], axis=0)
    if files.spelled_out(arrays):
        kept = state & step
        final = kept & (ends | ~np.append(kept[1:], False))
    else:
        taken = state & step & ~ends & np.append(state[1:], False)
        kept = taken | np.append(False, taken[:-1])
        final = kept & ~taken

    repaired = arrays | {"terminals": final.astype(arrays["terminals"].dtype)}
    for name in OF_A_STEP.keys() & good.keys():
        repaired[name] = arrays[name].copy()
        repaired[name][~good[name]] = OF_A_STEP[name]
    has_rows = lambda x: x.ndim and len(x) == len(kept)
    left = {name: x[kept] if has_rows(x) else x for name, x in repaired.items()}
    return left, int((~kept).sum())


def box_of(arrays: Arrays) -> Box:
    """Where the actions lie; those that no transition takes have no say."""
    actions = arrays["actions"].astype(np.float64)
    used = files.finite(actions) & files.used(arrays)
    chosen = actions[used] if used.any() else actions
    return Box(chosen.min(axis=0), chosen.max(axis=0))


def rescale(arrays: Arrays, box: Box | None = None) -> tuple[Arrays, np.ndarray, np.ndarray]:
    """Actions mapped from `box` (else their own) to [-1, 1], and its low and high.

    A dimension that never changes becomes 0.
    """
    low, high = box or box_of(arrays)
    half = np.where(high > low, (high - low) / 2, 1)
    scaled = np.clip((arrays["actions"].astype(np.float64) - (low + high) / 2) / half, -1, 1)
    return arrays | {"actions": scaled.astype(np.float32)}, low, high


def unscale(action, low: np.ndarray, high: np.ndarray):
    """An action [..., A] in [-1, 1] as the data had it: `rescale` undone, and never outside."""
    return (low + (action + 1) / 2 * (high - low)).clip(low, high)
