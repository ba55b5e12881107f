"""Names shared by every layer."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Key = jax.Array
Scalar = float | jax.Array  # a float field of a config, traced in a stack
Obs = Any  # a tree of arrays [B, ...]; often one array [B, O]
Params = Any
Metrics = dict[str, Array]
Velocity = Callable[[Array, Array], Array]  # (x [B, ...], t [] or [B, 1, ...]) -> dx/dt, as x

TIME = jax.ShapeDtypeStruct((1,), jnp.float32)  # t, or a diffusion level, as networks take it


class Spec(NamedTuple):
    """What an agent must know before it sees data.

    obs         a tree of jax.ShapeDtypeStruct, one observation without batch axis;
                a uint8 leaf is an image [H, W, C], any other is flattened
    action_dim  A; a chunk is flattened: A = horizon * the environment's
    """

    obs: Any
    action_dim: int

    @property
    def action(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((self.action_dim,), jnp.float32)


class Batch(NamedTuple):
    """One minibatch. n-step returns and action chunks are already folded in.

    obs       [B, ...]  a tree
    action    [B, A]
    reward    [B]       discounted sum over the horizon
    discount  [B]       gamma**horizon, or 0 once the task has ended
    next_obs  [B, ...]
    weight    [B]       0 where the chunk runs past the end of its episode
    """

    obs: Obs
    action: Array
    reward: Array
    discount: Array
    next_obs: Obs
    weight: Array


def rows(obs: Obs) -> int:
    """B, the number of observations in a tree."""
    return len(jax.tree.leaves(obs)[0])
