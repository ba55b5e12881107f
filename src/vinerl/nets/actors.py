"""Networks that make actions."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from vinerl.nets.encoders import Encoder
from vinerl.nets.mlp import MLP, Dtype, Network
from vinerl.types import Array, Obs, Params, Velocity


class VelocityField(Network):
    """v(x, t; obs), the shape of x."""

    hidden: Sequence[int]
    dim: int
    layer_norm: bool = False
    dtype: Dtype = jnp.float32

    def setup(self):
        self.encode = Encoder()
        self.layers = MLP(self.hidden, self.dim, self.layer_norm, self.dtype)

    def __call__(self, obs: Obs, x: Array, t: Array) -> Array:
        return self.layers(self.encode(obs), x, jnp.broadcast_to(t, (*x.shape[:-1], 1)))

    @nn.nowrap
    def at(self, params: Params, obs: Obs) -> Velocity:
        """The field at these observations, which are encoded once for all steps."""
        features = self.apply(params, obs, method=lambda field, obs: field.encode(obs))
        return lambda x, t: self.apply(params, features, x, t)
