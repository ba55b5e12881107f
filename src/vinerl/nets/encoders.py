"""From an observation tree to features."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from vinerl.nets.mlp import Dense
from vinerl.types import Array, Obs


class Encoder(nn.Module):
    """Features [B, F]: images through convolutions, everything else as it is.

    Every network has its own, so the parameters a loss names decide what is trained. Without
    images there are none, and a vector passes unchanged: features may be encoded again.
    """

    channels: Sequence[int] = (16, 32)
    width: int = 64

    @nn.compact
    def __call__(self, obs: Obs) -> Array:
        leaves = [self.image(x) if x.dtype == jnp.uint8 else x for x in jax.tree.leaves(obs)]
        return jnp.concatenate([x.reshape(len(x), -1) for x in leaves], axis=-1)

    def image(self, x: Array) -> Array:
        x = x / 255 - 0.5
        for channels in self.channels:
            x = nn.gelu(nn.Conv(channels, (3, 3), strides=2)(x))
        return nn.LayerNorm()(Dense(self.width)(x.reshape(len(x), -1)))
