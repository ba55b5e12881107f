"""Ensembles of scalar functions of an observation and more, [E, B]. They share an encoder."""

from collections.abc import Sequence
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp

from vinerl.nets.encoders import Encoder
from vinerl.nets.mlp import MLP, Dtype, Network, PreNormMLP, ResidualMLP
from vinerl.types import Array, Obs


def ensemble(layers: type[nn.Module], size: int) -> type[nn.Module]:
    """`layers` that many times, initialised apart, on the same inputs."""
    return nn.vmap(
        layers,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=None,  # pyright: ignore[reportArgumentType]
        out_axes=0,
        axis_size=size,
    )


class Critic(Network):
    """Plain layers, each with LayerNorm."""

    hidden: Sequence[int]
    critics: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, obs: Obs, *inputs: Array) -> Array:
        layers = ensemble(MLP, self.critics)(self.hidden, 1, layer_norm=True, dtype=self.dtype)
        return layers(Encoder()(obs), *inputs).squeeze(-1)


class ResidualCritic(Network):
    """Two readings of a residual critic.

    "branches"  a layer in, then `blocks` residual branches, each of all the `hidden` layers
    "pre-norm"  a layer in, then one two-layer branch for each of the `hidden` widths
    """

    hidden: Sequence[int]
    blocks: int
    critics: int
    layout: Literal["branches", "pre-norm"] = "branches"
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, obs: Obs, *inputs: Array) -> Array:
        if self.layout == "branches":
            make = ensemble(ResidualMLP, self.critics)
            layers = make(self.hidden, self.blocks, out=1, dtype=self.dtype)
        else:
            layers = ensemble(PreNormMLP, self.critics)(self.hidden, out=1, dtype=self.dtype)
        return layers(Encoder()(obs), *inputs).squeeze(-1)
