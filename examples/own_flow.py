"""A flow policy of one's own: its sampler is changed, and a value's gradient goes through it.

python examples/own_flow.py      # 15 seconds on a CPU; docs/own-flow.md shows what it prints

A small network stands for the pretrained one. It acts in chunks [B, H, A] and is written as those
of pi0 and LeRobot are: t = 1 is noise, t = 0 the action, and it predicts noise - action.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from vinerl.flow import samplers
from vinerl.flow.path import matching_error

H, A = 4, 2  # a chunk: four waypoints in the plane
TIMES = samplers.grid(10)


class Network(nn.Module):
    """noise - action, for a chunk as a whole."""

    @nn.compact
    def __call__(self, obs, x, t):
        time = jnp.broadcast_to(t, (len(x), 1, 1))  # one number, or flow matching's [B, 1, 1]
        h = jnp.concatenate([obs, time[:, 0], x.reshape(len(x), H * A)], axis=-1)
        h = nn.gelu(nn.Dense(64)(nn.gelu(nn.Dense(64)(h))))
        return nn.Dense(H * A)(h).reshape(x.shape)


def turned(u):
    """As vinerl has it: noise at t = 0, the action at t = 1, and v = action - noise."""
    return lambda x, t: -u(x, 1 - t)


def field(params, obs):
    """The velocity at these observations; a large encoder would run here, once for all steps."""
    return turned(partial(Network().apply, params, obs))


def demonstrations(key, count=256):
    """Waypoints past an obstacle at (0, obs), on either side of it and a little too close."""
    key_obs, key_side, key_noise = jax.random.split(key, 3)
    obs = jax.random.uniform(key_obs, (count, 1), minval=-0.3, maxval=0.3)
    y = obs + 0.35 * jax.random.rademacher(key_side, (count, 1))
    chunk = jnp.stack(jnp.broadcast_arrays(jnp.linspace(-0.6, 0.6, H), y), axis=-1)
    return obs, chunk + 0.05 * jax.random.normal(key_noise, (count, H, A))


def value(obs, chunk):
    """How far the waypoints stay away from the obstacle, up to 0.5: for a critic. [B]"""
    x, y = chunk[..., 0], chunk[..., 1] - obs
    return jnp.minimum(jnp.sqrt(x**2 + y**2).min(axis=-1), 0.5)


def clone_loss(params, key):
    key_data, key_match = jax.random.split(key)
    obs, chunk = demonstrations(key_data)
    return matching_error(field(params, obs), chunk, key_match).mean()


def tune_loss(step, params, key, cloned, alpha):
    """The value through all steps, held by the cloned field's action on the same noise."""
    key_data, key_noise = jax.random.split(key)
    obs, _ = demonstrations(key_data)
    noises = jax.random.normal(key_noise, (len(TIMES), len(obs), H, A))
    draw = lambda params: samplers.trace(step, field(params, obs), noises, TIMES)[-1]
    chunk = draw(params)
    return alpha * jnp.mean((chunk - draw(cloned)) ** 2) - value(obs, chunk).mean()


@partial(jax.jit, static_argnums=(0, 3))
def fit(loss, params, key, updates, lr, *constants):
    optimizer = optax.adam(lr)

    def update(carry, key):
        params, state = carry
        change, state = optimizer.update(jax.grad(loss)(params, key, *constants), state)
        return (optax.apply_updates(params, change), state), None

    start = (params, optimizer.init(params))
    return jax.lax.scan(update, start, jax.random.split(key, updates))[0][0]


@partial(jax.jit, static_argnums=0)
def measure(step, params, key):
    """Value, success and spread of 1000 draws at one place; the value's gradient at each a_k."""
    obs, last = jnp.full((1000, 1), 0.1), lambda path: path[-1]
    noises, own = jax.random.normal(key, (len(TIMES), 1000, H, A)), partial(field, obs=obs)
    chunk = last(samplers.trace(step, own(params), noises, TIMES))
    away = value(obs, chunk)
    reward = lambda path: value(obs, last(path))
    arriving, _ = samplers.step_gradients(step, own, params, noises, TIMES, reward)
    gradient = jnp.linalg.norm(arriving, axis=(-2, -1)).mean(axis=-1)
    return away.mean(), (away > 0.45).mean(), chunk.std(axis=0).mean(), gradient


def show(name, step, params):
    *numbers, gradient = measure(step, params, jax.random.key(3))
    print(f"{name:18}" + "".join(f"{x:9.2f}" for x in numbers), *(f" {g:.0e}" for g in gradient))


if __name__ == "__main__":
    start = Network().init(jax.random.key(0), jnp.zeros((1, 1)), jnp.zeros((1, H, A)), 1.0)
    cloned = fit(clone_loss, start, jax.random.key(1), 3000, 1e-3)
    print(f"{'':18}    value  success   spread  gradient at a_0 .. a_10")
    for name, step in samplers.STEPS.items():
        show(f"{name}, cloned", step, cloned)
        loss = partial(tune_loss, step)
        for alpha in (1.0, 10.0, 100.0):
            tuned = fit(loss, cloned, jax.random.key(2), 300, 3e-4, cloned, alpha)
            show(f"{name}, alpha {alpha:g}", step, tuned)
