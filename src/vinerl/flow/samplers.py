"""Step rules, and the one loop that runs them.

A step rule takes an estimate from time t to t_next and is given its noise, so any two rules (or
another framework) can run on the same numbers. Noises carry the index of the estimate they enter:

a_0     = noises[0]
a_{k+1} = step(velocity, noises[k + 1], a_k, times[k], times[k + 1])     for k = 0 .. K - 1

Euler uses the start alone. VINE replaces it: at t = 0 its first step keeps nothing of a_0.
Where it says [B, A], actions may as well be chunks [B, H, A], or anything else in rows.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from vinerl.flow.path import endpoint, interpolate
from vinerl.types import Array, Key, Params, Scalar, Velocity

Step = Callable[[Velocity, Array, Array, Array, Array], Array]


def euler_step(velocity: Velocity, noise: Array, x: Array, t: Array, t_next: Array) -> Array:
    """One step along the flow's ODE."""
    del noise
    return x + (t_next - t) * velocity(x, t)


def vine_step(velocity: Velocity, noise: Array, x: Array, t: Array, t_next: Array) -> Array:
    """Re-noise the estimate to level t, then jump to the endpoint."""
    del t_next
    return endpoint(velocity, interpolate(noise, x, t), t)


def sde_step(velocity: Velocity, noise: Array, x: Array, t: Array, t_next: Array) -> Array:
    """One step of the memoryless SDE with the flow's marginals, its times half a step ahead."""
    dt = t_next - t
    drift = 2 * velocity(x, t) - x / (t + dt)
    return x + dt * drift + jnp.sqrt(dt) * diffusion_of(t, dt) * noise


def diffusion_of(t: Array, dt: Array) -> Array:
    """sigma of the memoryless SDE at the step that begins at t."""
    return jnp.sqrt(2 * (1 - t + dt) / (t + dt))


STEPS: dict[str, Step] = {"euler": euler_step, "vine": vine_step}


def grid(steps: int) -> Array:
    """K + 1 even times from noise to action."""
    return jnp.arange(steps + 1) / steps


def trace(
    step: Step,
    velocity: Velocity,
    noises: Array,
    times: Array,
    *,
    remat: bool = False,
    unroll: bool = False,
) -> Array:
    """The whole path [K + 1, B, A] for noises [K + 1, B, A] and times [K + 1].

    Differentiable in the field through all steps; `remat` recomputes them instead of storing them,
    `unroll` compiles them one after another instead of as a loop.
    """

    def body(x, inputs):
        x = step(velocity, inputs[0], x, *inputs[1:])
        return x, x

    body = jax.checkpoint(body, prevent_cse=False) if remat else body
    inputs = (noises[1:], times[:-1], times[1:])
    _, path = jax.lax.scan(body, noises[0], inputs, unroll=unroll)
    return jnp.concatenate([noises[:1], path])


def sample(
    step: Step,
    velocity: Velocity,
    key: Key,
    shape: tuple[int, ...],
    steps: int = 10,
    *,
    times: Array | None = None,
    noise: Scalar = 1.0,
    stop_at: int | None = None,
    remat: bool = False,
    unroll: bool = False,
) -> Array:
    """An action of `shape`, drawn from fresh noise.

    times    any other grid [K + 1] instead of `steps` even ones
    noise    scale of all noises; 0 makes every rule deterministic
    stop_at  return a_k of the same path instead of a_K
    """
    times = grid(steps) if times is None else times
    noises = noise * jax.random.normal(key, (len(times), *shape))
    end = None if stop_at is None else stop_at + 1
    return trace(step, velocity, noises[:end], times[:end], remat=remat, unroll=unroll)[-1]


def transport(velocity: Velocity, start: Array, steps: int, *, unroll: bool = False) -> Array:
    """Where the flow's ODE takes a given start [B, A]."""
    noises = jnp.broadcast_to(start, (steps + 1, *start.shape))
    return trace(euler_step, velocity, noises, grid(steps), unroll=unroll)[-1]


def along(numbers: Array, path: Array) -> Array:
    """Numbers [K], with as many axes as the path, to be multiplied with its entries."""
    return jnp.expand_dims(numbers, tuple(range(1, path.ndim)))


def euler_estimates(path: Array, times: Array) -> Array:
    """The actions Euler's steps were heading for, x_k + (1 - t_k) v_k, [K, B, A]."""
    t, dt = along(times[:-1], path), along(jnp.diff(times), path)
    return path[:-1] + (1 - t) * jnp.diff(path, axis=0) / dt


def vine_estimates(path: Array, times: Array) -> Array:
    """VINE's path is made of estimates, [K, B, A]; only the start is none."""
    del times
    return path[1:]


ESTIMATES = {"euler": euler_estimates, "vine": vine_estimates}


def step_gradients(
    step: Step,
    field: Callable[[Params], Velocity],
    params: Params,
    noises: Array,
    times: Array,
    loss: Callable[[Array], Array],
) -> tuple[Array, Params]:
    """What of a loss of the path, [K + 1, B, A] -> [B], arrives at each step of the sampler.

    d loss / d a_k for every sample, [K + 1, B, A], and the gradient with respect to the parameters
    that step k alone used, [K, ...]: these shares add up to the whole gradient.
    """
    path = trace(step, field(params), noises, times)
    local = jax.grad(lambda path: loss(path).sum())(path)

    def back(g, inputs):
        direct, x, noise, t, t_next = inputs
        _, pull = jax.vjp(lambda p, x: step(field(p), noise, x, t, t_next), params, x)
        share, g = pull(g)
        return direct + g, (direct + g, share)

    inputs = (local[:-1], path[:-1], noises[1:], times[:-1], times[1:])
    _, (rest, shares) = jax.lax.scan(back, local[-1], inputs, reverse=True)
    return jnp.concatenate([rest, local[-1:]]), shares
