"""Velocity fields made from other velocity fields."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from vinerl.types import Array, Scalar, Velocity


def guided(velocity: Velocity, score: Callable[[Array, Array], Array], weight: Scalar) -> Velocity:
    """Classifier guidance: the field bent along d score(x, t) / dx, except at t = 0."""

    def field(x: Array, t: Array) -> Array:
        gradient = jax.grad(lambda x: score(x, t).sum())(x)
        push = weight * (gradient * (1 - t) + x) / jnp.where(t > 0, t, 1)
        return velocity(x, t) + jnp.where(t > 0, push, 0.0)

    return field
