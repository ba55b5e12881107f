"""Control on the memoryless SDE: how far a tuned field departs from its base along a path."""

import jax
import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.types import Array, Velocity


def roll(tuned: Velocity, base: Velocity, noises: Array, *, unroll: bool = False) -> Array:
    """The tuned field's SDE and, as its last step, the base field's ODE, [K + 1, B, A]."""
    times = samplers.grid(len(noises) - 1)
    path = samplers.trace(samplers.sde_step, tuned, noises[:-1], times[:-1], unroll=unroll)
    last = samplers.euler_step(base, noises[-1], path[-1], times[-2], times[-1])
    return jnp.concatenate([path, last[None]])


def roll_sde(tuned: Velocity, base: Velocity, noises: Array, *, unroll: bool = False) -> Array:
    """The tuned field's SDE to the end, [K + 1, B, A]."""
    del base
    times = samplers.grid(len(noises) - 1)
    return samplers.trace(samplers.sde_step, tuned, noises, times, unroll=unroll)


ROLLS = {"ode": roll, "sde": roll_sde}  # by the last step


def control_cost(tuned: Velocity, base: Velocity, path: Array) -> Array:
    """2 |tuned - base|^2 / sigma^2, summed over the SDE's steps, mean over samples."""
    t, _, sigma = _schedule(path)
    shift = jax.vmap(tuned)(path[:-2], t[:-1]) - jax.vmap(base)(path[:-2], t[:-1])
    return _cost(2 * (shift / sigma[:-1]) ** 2)


def lean_adjoints(base: Velocity, path: Array, terminal: Array) -> Array:
    """The terminal adjoint carried back along `path` by the base drift alone, [K, B, A]."""
    t, dt, _ = _schedule(path)

    def back(g, inputs):
        x, t = inputs
        _, pull = jax.vjp(lambda x: 2 * base(x, t + dt) - x / (t + dt), x)
        g = g + dt * pull(g)[0]
        return g, g

    return jax.lax.scan(back, terminal, (path[:-1], t), reverse=True)[1]


def matching_loss(tuned: Velocity, base: Velocity, path: Array, terminal: Array) -> Array:
    """How far `tuned` is from the field that the adjoints ask for, summed over the path."""
    t, _, sigma = _schedule(path)
    shift = jax.vmap(tuned)(path[:-1], t) - jax.vmap(base)(path[:-1], t)
    error = 2 / sigma * shift + sigma * lean_adjoints(base, path, terminal)
    return _cost(error**2)


def _cost(terms: Array) -> Array:
    """Terms [K, B, A], summed over a sample's steps and coordinates, mean over samples."""
    return jnp.mean(jnp.sum(terms, axis=(0, *range(2, terms.ndim))))


def _schedule(path: Array) -> tuple[Array, Array, Array]:
    """Times [K], step size and, to multiply with a path [K + 1, B, A], diffusion [K, 1, 1]."""
    steps = len(path) - 1
    t, dt = samplers.grid(steps)[:-1], jnp.asarray(1 / steps, path.dtype)
    return t, dt, samplers.along(samplers.diffusion_of(t, dt), path)
