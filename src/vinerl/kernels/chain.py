"""All K steps of a sampler through a velocity field of plain layers, kernels between its products.

The numbers are those of `samplers.trace` with hidden layers in bfloat16, up to rounding.
"""

from typing import NamedTuple, TypeGuard

import jax.numpy as jnp
from jax.experimental import pallas as pl

from vinerl import kernels
from vinerl.kernels import ends
from vinerl.kernels.gelu import bias_gelu
from vinerl.types import Array, Velocity

WIDEST = 64  # numbers of an action; with more, the kernels run out of registers


class Layers(NamedTuple):
    """A velocity field at its observations: gelu layers of one width W, and a linear one."""

    start: Array  # [B, W], what the observations add to the first layer, with its bias
    action: Array  # [A, W], of the first layer
    time: Array  # [W], of the first layer
    kernels: tuple[Array, ...]  # [W, W] each, of the other hidden layers
    biases: tuple[Array, ...]  # [W] each
    last: Array  # [W, A]
    last_bias: Array  # [A]


class Field(NamedTuple):
    """A velocity field that can be taken apart."""

    plain: Velocity
    layers: Layers

    def __call__(self, x: Array, t: Array) -> Array:
        return self.plain(x, t)


class Rule(NamedTuple):
    """A step that is linear in estimate, noise and velocity; K values of each coefficient.

    u = p a + q z;  a' = m u + r v(u, t) + s z
    """

    t: Array
    p: Array
    q: Array
    m: Array
    r: Array
    s: Array


def fits(field: Velocity, noises: Array) -> TypeGuard[Field]:
    """Whether the kernels can make a path from noises [K + 1, B, A]."""
    if not isinstance(field, Field) or noises.ndim != 3 or len(noises) < 2:
        return False
    _, batch, dim = noises.shape
    width = field.layers.start.shape[-1]
    even = batch % kernels.FEWEST == 0 and width == pl.next_power_of_2(width)
    return even and width >= kernels.FEWEST and dim <= WIDEST


def trace(layers: Layers, rule: Rule, noises: Array) -> Array:
    """The path [K + 1, B, A], its first entry the first noise."""
    dim = noises.shape[-1]
    wide = max(ends.DIMS, pl.next_power_of_2(dim)) - dim
    first = jnp.pad(layers.action, ((0, wide), (0, 0)))
    last = jnp.pad(layers.last.T, ((0, wide), (0, 0)))
    last_bias = jnp.pad(layers.last_bias, (0, wide))
    noises = jnp.pad(noises, ((0, 0), (0, 0), (0, wide)))
    halves = [kernel.astype(jnp.bfloat16) for kernel in layers.kernels]

    # No step has led to the first noise, so it is all that a is.
    path, u, velocity = [], noises[0], jnp.zeros_like(noises[0])
    lift, before = jnp.zeros_like(last_bias), jnp.array([1.0, 0.0])
    for k, (t, p, q, m, r, s) in enumerate(zip(*rule, strict=True)):
        rates = jnp.concatenate([before, jnp.stack([p, q])])
        entrance = ends.Entrance(lift, layers.start, t * layers.time, first, rates)
        a, u, h = ends.enter(velocity, u, noises[k], noises[k + 1], entrance)
        path.append(a)
        for kernel, bias in zip(halves[:-1], layers.biases[:-1], strict=True):
            h = bias_gelu(h @ kernel, bias)
        velocity = ends.leave(h @ halves[-1], layers.biases[-1], r * last)
        lift, before = r * last_bias, jnp.stack([m, s])
    path.append(before[0] * u + velocity + lift + before[1] * noises[-1])
    return jnp.stack(path)[..., :dim]
