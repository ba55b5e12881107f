"""Networks that make actions."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from vinerl.nets.encoders import Encoder
from vinerl.nets.mlp import MLP, Dense, Dtype, Hidden, Network, exact
from vinerl.types import Array, Obs, Params, Velocity


class VelocityField(Network):
    """v(x, t; obs), the shape of x. Without t it is a map from noise to actions in one step."""

    hidden: Sequence[int]
    dim: int
    layer_norm: bool = False
    dtype: Dtype = jnp.float32

    def setup(self):
        self.encode = Encoder()
        self.layers = MLP(self.hidden, self.dim, self.layer_norm, self.dtype)

    def __call__(self, obs: Obs, x: Array, t: Array | None = None) -> Array:
        time = () if t is None else (jnp.broadcast_to(t, (*x.shape[:-1], 1)),)
        return self.layers(self.encode(obs), x, *time)

    @nn.nowrap
    def at(self, params: Params, obs: Obs) -> Velocity:
        """The field at these observations, which are encoded once for all steps."""
        features = self.apply(params, obs, method=lambda field, obs: field.encode(obs))
        return lambda x, t: self.apply(params, features, x, t)


class NoisePredictor(Network):
    """eps(x, i; obs) of a diffusion policy; the level i enters through learned frequencies."""

    hidden: Sequence[int]
    dim: int
    dtype: Dtype = jnp.float32
    frequencies: int = 32

    @nn.compact
    def __call__(self, obs: Obs, x: Array, i: Array) -> Array:
        level = jnp.broadcast_to(i, (*x.shape[:-1], 1)).astype(exact(self.dtype))
        rates = self.param("rates", nn.initializers.normal(0.2), (1, self.frequencies))
        turns = 2 * jnp.pi * level @ rates
        waves = jnp.concatenate([jnp.cos(turns), jnp.sin(turns)], axis=-1)
        *inner, width = self.hidden
        cond = Dense(width)(Hidden(inner, dtype=self.dtype, activation=mish)(waves))
        h = Hidden(self.hidden, dtype=self.dtype, activation=mish)(x, Encoder()(obs), cond)
        return Dense(self.dim, dtype=exact(self.dtype))(h)

    @nn.nowrap
    def at(self, params: Params, obs: Obs) -> Velocity:
        """The prediction at these observations."""
        return lambda x, i: self.apply(params, obs, x, i)


def mish(x: Array) -> Array:
    return x * jnp.tanh(nn.softplus(x))


class Deterministic(Network):
    """One action in the box; small at first."""

    hidden: Sequence[int]
    dim: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, obs: Obs) -> Array:
        h = Hidden(self.hidden, dtype=self.dtype)(Encoder()(obs))
        small = nn.initializers.variance_scaling(0.01, "fan_avg", "uniform")
        return jnp.tanh(nn.Dense(self.dim, kernel_init=small, dtype=exact(self.dtype))(h))


class Gaussian(Network):
    """Mean and logarithm of the standard deviation of a diagonal Gaussian."""

    hidden: Sequence[int]
    dim: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, obs: Obs, *inputs: Array) -> tuple[Array, Array]:
        h = Hidden(self.hidden, dtype=self.dtype)(Encoder()(obs), *inputs)
        mean, log_std = (Dense(self.dim, dtype=exact(self.dtype))(h) for _ in range(2))
        return mean, jnp.clip(log_std, -20, 2)


class Positive(Network):
    """A learned scalar that starts at 1, e.g. an entropy's temperature."""

    @nn.compact
    def __call__(self) -> Array:
        return jnp.exp(self.param("log", nn.initializers.zeros, ()))
