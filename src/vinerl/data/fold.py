"""From stored transitions to the batches agents see.

Transitions are numbered, episodes back to back. An observation is stored once, in a row; an
episode of T transitions has T + 1 rows, and the next observation is in the row after:

transition |  0    1    2  |  3    4  |
row        |  0    1    2  |  4    5  |    rows 3 and 6 are the episodes' final observations
terminal   |  0    0    1  |  0    1  |

fold, horizon 4, from transition 0:
alive      |  1    1    1  |  0         ->  reward sums three terms, next_obs is row 3,
                                            weight 0: the action chunk crosses the end
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vinerl.errors import InputError
from vinerl.types import Array, Batch, Obs, Scalar, rows

Column = Any  # of numbers, in NumPy's or JAX's hands


class Transitions(NamedTuple):
    """A dataset of M transitions and R rows of observations, on the host or on a device.

    Both may be padded at the end: what lies behind `count` is never looked at.
    """

    obs: Obs  # [R, ...], a tree
    row: Column  # [M], where a transition's observation is; the next one is in row + 1
    action: Column  # [M, A]
    reward: Column  # [M]
    mask: Column  # [M], 0 where the task itself ended, so nothing is bootstrapped
    terminal: Column  # [M], 1 on the last transition of an episode, for whatever reason
    count: Column  # [], how many of the M are real; traced, so another number compiles nothing


def transitions(obs: Obs, action, reward, mask, terminal) -> Transitions:
    """A dataset whose episodes each bring one observation more than they have actions."""
    ends = np.asarray(terminal, np.int32)
    if rows(obs) != len(ends) + ends.sum():
        raise InputError(f"{len(ends)} transitions in {ends.sum()} episodes, but {rows(obs)} rows")
    row = np.arange(len(ends), dtype=np.int32) + np.cumsum(ends, dtype=np.int32) - ends
    action, reward, mask = (np.asarray(x, np.float32) for x in (action, reward, mask))
    return Transitions(obs, row, action, reward, mask, ends, np.int32(len(ends)))


def fold(
    data: Transitions, starts: Array, horizon: int, discount: Scalar, chunk: bool = True
) -> Batch:
    """n-step returns, and flattened action chunks or first actions, from transitions [B] on."""
    span = starts[:, None] + jnp.arange(horizon)
    ended = jnp.cumsum(data.terminal[span], axis=1)
    alive = jnp.concatenate([jnp.ones_like(ended[:, :1]), ended[:, :-1] == 0], axis=1)
    last = starts + alive.sum(axis=1) - 1
    observed = lambda row: jax.tree.map(lambda x: x[row], data.obs)
    return Batch(
        obs=observed(data.row[starts]),
        action=data.action[span if chunk else starts].reshape(len(starts), -1),
        reward=jnp.sum(alive * data.reward[span] * discount ** jnp.arange(horizon), axis=1),
        discount=discount**horizon * jnp.where(alive > 0, data.mask[span], 1).min(axis=1),
        next_obs=observed(data.row[last] + 1),
        weight=alive[:, -1].astype(jnp.float32),
    )
