"""Variance-preserving diffusion on K levels: the forward noising and three step rules.

Levels are a grid like any other, K, K - 1, .., 0; the field predicts the noise in x at level i.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from vinerl.flow.samplers import Step
from vinerl.types import Array, Velocity


class Schedule(NamedTuple):
    """alpha[i] and their running product for i = 0 (clean) .. K (noise), [K + 1]."""

    alpha: Array
    alpha_bar: Array


def vp_schedule(steps: int) -> Schedule:
    """beta from 0.1 to 10 over K levels, as DAC and QSM use it."""
    i = jnp.arange(1, steps + 1)
    alpha = jnp.exp(-0.1 / steps - 0.5 * (10 - 0.1) * (2 * i - 1) / steps**2)
    alpha = jnp.concatenate([jnp.ones(1), alpha])
    return Schedule(alpha, jnp.cumprod(alpha))


def levels(steps: int) -> Array:
    return jnp.arange(steps, -1, -1)


def add_noise(schedule: Schedule, action: Array, noise: Array, i: Array) -> Array:
    """x_i for actions [B, A] and levels [B]."""
    bar = schedule.alpha_bar[i][..., None]
    return jnp.sqrt(bar) * action + jnp.sqrt(1 - bar) * noise


def clean(schedule: Schedule, predict: Velocity, x: Array, i: Array) -> Array:
    """The action that x would be without the noise predicted in it."""
    bar = schedule.alpha_bar[i]
    return (x - jnp.sqrt(1 - bar) * predict(x, i)) / jnp.sqrt(bar)


def ddpm_step(schedule: Schedule) -> Step:
    """The posterior mean given the clipped estimate, and fresh noise except at the last level."""
    alpha, bar = schedule

    def step(predict: Velocity, noise: Array, x: Array, i: Array, i_next: Array) -> Array:
        action = jnp.clip(clean(schedule, predict, x, i), -1, 1)
        beta = 1 - alpha[i]
        mean = jnp.sqrt(bar[i_next]) * beta * action + jnp.sqrt(alpha[i]) * (1 - bar[i_next]) * x
        return mean / (1 - bar[i]) + (i > 1) * jnp.sqrt(beta) * noise

    return step


def jump_step(schedule: Schedule) -> Step:
    """QSM's rule as it was run: jump to the estimate, add noise, clip."""

    def step(predict: Velocity, noise: Array, x: Array, i: Array, i_next: Array) -> Array:
        del i_next
        x = clean(schedule, predict, x, i) + (i > 1) * jnp.sqrt(1 - schedule.alpha[i]) * noise
        return jnp.clip(x, -1, 1)

    return step


def ancestral_step(schedule: Schedule) -> Step:
    """QSM's rule as published: the posterior mean given the raw estimate, fresh noise, clip."""
    alpha, bar = schedule

    def step(predict: Velocity, noise: Array, x: Array, i: Array, i_next: Array) -> Array:
        del i_next
        beta = 1 - alpha[i]
        mean = (x - beta / jnp.sqrt(1 - bar[i]) * predict(x, i)) / jnp.sqrt(alpha[i])
        return jnp.clip(mean + (i > 1) * jnp.sqrt(beta) * noise, -1, 1)

    return step


STEPS: dict[str, Callable[[Schedule], Step]] = {
    "ddpm": ddpm_step,
    "jump": jump_step,
    "ancestral": ancestral_step,
}
