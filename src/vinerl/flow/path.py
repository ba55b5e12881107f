"""The straight path from noise (t = 0) to action (t = 1): x_t = (1 - t) z + t a."""

import jax
import jax.numpy as jnp

from vinerl.types import Array, Key, Velocity


def interpolate(noise: Array, action: Array, t: Array) -> Array:
    return (1 - t) * noise + t * action


def endpoint(velocity: Velocity, x: Array, t: Array) -> Array:
    """The action the field points at from (x, t); E[a | x_t = x] for the optimal field."""
    return x + (1 - t) * velocity(x, t)


def matching_error(velocity: Velocity, action: Array, key: Key) -> Array:
    """Conditional flow-matching error of actions [B, ...], of which each has one time, [B]."""
    key_noise, key_time = jax.random.split(key)
    noise = jax.random.normal(key_noise, action.shape)
    t = jax.random.uniform(key_time, (len(action), *[1] * (action.ndim - 1)))
    error = velocity(interpolate(noise, action, t), t) - (action - noise)
    return jnp.mean(error**2, axis=tuple(range(1, action.ndim)))
