"""Five modes on a pentagon, one worth more than the next: the smallest problem of fine-tuning.

There is one state with nothing to see, and the value is known, so all that is left is a sampler, a
regulariser and its weight. Networks, samplers and errors are those that agents are trained with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vinerl.flow import diffusion, samplers
from vinerl.flow.path import matching_error
from vinerl.nets.actors import VelocityField
from vinerl.types import Array, Key, Params, Scalar, Velocity

K = 10
LEVELS = 100  # that diffusion is trained on; any K of them can be sampled with
ANGLES = np.pi / 2 + 2 * np.pi * np.arange(5) / 5
MODES = (0.8 * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)).astype(np.float32)
REWARDS = np.array([1.0, 0.8, 0.6, 0.4, 0.2], np.float32)
SPREAD = 0.05  # of the data around their mode
WIDTH = 0.2  # of the value around a mode, and how near counts as being there
REGULARISERS = ("endpoint", "flow", "teacher")

Points = Array | np.ndarray


@dataclass(frozen=True)
class Scale:
    """How much is learned and looked at; with its seed this makes a policy what it is."""

    hidden: tuple[int, ...] = (48, 48, 48)
    clone_batch: int = 500
    clone_steps: int = 6000
    clone_lr: float = 3e-3
    tune_batch: int = 125
    tune_steps: int = 800
    tune_lr: float = 1e-3
    draws: int = 4096  # actions that are measured

    @property
    def field(self) -> VelocityField:
        return VelocityField(self.hidden, 2)


class Rule(NamedTuple):
    """A sampler with its grid, and how parameters become the field it runs on."""

    step: samplers.Step
    field: Callable[[Params], Velocity]
    times: Array

    def path(self, params: Params, noises: Array) -> Array:
        return samplers.trace(self.step, self.field(params), noises, self.times)


class Keys(NamedTuple):
    init: Key
    clone: Key
    tune: Key
    measure: Key


def keys(seed: int | Array) -> Keys:
    return Keys(*jax.random.split(jax.random.fold_in(jax.random.key(0), seed), 4))


def rule(field: VelocityField, sampler: str, steps: int = K) -> Rule:
    """One of "euler", "vine", "ddpm"."""

    def velocity(params):
        return lambda x, t: field.apply(params, jnp.zeros((len(x), 0)), x, t)

    if sampler == "ddpm":
        step = diffusion.ddpm_step(diffusion.vp_schedule(steps))
        predict = lambda params: lambda x, i: velocity(params)(x, i / steps)
        return Rule(step, predict, diffusion.levels(steps))
    return Rule(samplers.STEPS[sampler], velocity, samplers.grid(steps))


def distances(action: Points) -> Array:
    """To every mode, [..., 5]."""
    return jnp.linalg.norm(action[..., None, :] - MODES, axis=-1)


def value(action: Points) -> Array:
    """A bump on every mode, as high as its reward."""
    return (REWARDS * jnp.exp(-(distances(action) ** 2) / (2 * WIDTH**2))).sum(axis=-1)


def data(key: Key, count: int) -> Array:
    """Every mode as often as the next, if 5 divides the count."""
    return jnp.resize(jnp.asarray(MODES), (count, 2)) + SPREAD * jax.random.normal(key, (count, 2))


def collapsed(alpha: float) -> np.ndarray:
    """Where the endpoint regulariser is least without any spread, on a grid of steps of .005.

    A sample a meets data actions that know nothing of it: E|a - data|^2 = |a|^2 + a constant, as
    the data's mean is 0. So every sample minimises alpha |a|^2 / 2 - value(a), whatever its noise.
    """
    side = np.linspace(-1, 1, 401, dtype=np.float32)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    return points[np.argmin(alpha * (points**2).mean(axis=1) - np.asarray(value(points)))]


Loss = Callable[[Params, Key], Array]


def fit(loss: Loss, params: Params, key: Key, steps: int, lr: float) -> tuple[Params, Array]:
    """Adam, its step size falling to a twentieth; and the norm of every gradient, [steps]."""
    adam = optax.adam(optax.linear_schedule(lr, lr / 20, steps))

    def body(carry, key):
        params, state = carry
        grads = jax.grad(loss)(params, key)
        updates, state = adam.update(grads, state)
        return (optax.apply_updates(params, updates), state), optax.tree.norm(grads)

    start = (params, adam.init(params))
    (params, _), norms = jax.lax.scan(body, start, jax.random.split(key, steps))
    return params, norms


def fresh(scale: Scale, seed: int) -> Params:
    inputs = (jnp.zeros((1, width)) for width in (0, 2, 1))
    return scale.field.init(keys(seed).init, *inputs)


def clone(scale: Scale, sampler: str, start: Params, seed: Array) -> tuple[Params, Array]:
    """Behaviour cloning: flow matching, or predicting the noise if "ddpm" will sample."""
    velocity = rule(scale.field, "vine").field
    schedule = diffusion.vp_schedule(LEVELS)

    def flow_loss(params, key):
        key_data, key_match = jax.random.split(key)
        action = data(key_data, scale.clone_batch)
        return matching_error(velocity(params), action, key_match).mean()

    def noise_loss(params, key):
        key_data, key_noise, key_level = jax.random.split(key, 3)
        action = data(key_data, scale.clone_batch)
        noise = jax.random.normal(key_noise, action.shape)
        i = jax.random.randint(key_level, (len(action),), 1, LEVELS + 1)
        x = diffusion.add_noise(schedule, action, noise, i)
        return jnp.mean((velocity(params)(x, i[:, None] / LEVELS) - noise) ** 2)

    loss = noise_loss if sampler == "ddpm" else flow_loss
    return fit(loss, start, keys(seed).clone, scale.clone_steps, scale.clone_lr)


def tune(
    scale: Scale, regulariser: str, sampler: str, start: Params, alpha: Scalar, seed: Array
) -> tuple[Params, Array]:
    """Value gradients through all K steps, held by a regulariser; as VINE's loss has them."""
    draw = rule(scale.field, sampler)

    def held(params, path, noises, action, key):
        if regulariser == "flow":
            return matching_error(draw.field(params), action, key).mean()
        if regulariser == "teacher":
            return jnp.mean((path[-1] - draw.path(start, noises)[-1]) ** 2)
        return jnp.mean((path[-1] - action) ** 2)

    def loss(params, key):
        key_data, key_noise, key_match = jax.random.split(key, 3)
        action = data(key_data, scale.tune_batch)
        noises = jax.random.normal(key_noise, (K + 1, *action.shape))
        path = draw.path(params, noises)
        return alpha * held(params, path, noises, action, key_match) - value(path[-1]).mean()

    return fit(loss, start, keys(seed).tune, scale.tune_steps, scale.tune_lr)


@partial(jax.jit, static_argnums=(0, 1))
def paths(scale: Scale, sampler: str, params: Params, noises: Array) -> Array:
    """[K + 1, B, 2] for noises of that shape."""
    return rule(scale.field, sampler, len(noises) - 1).path(params, noises)


@partial(jax.jit, static_argnums=(0, 1))
def measure(scale: Scale, sampler: str, params: Params, seed: Array) -> dict[str, Array]:
    """What the policy does.

    spread    standard deviation of its actions, the mean of the two coordinates
    mean      of its actions, [2]
    near      share of them within WIDTH of any mode; modes: of each, [5]
    value     their mean value
    reach     how far from 0 its paths go after their start, the mean of the farthest a_k
    gradient  mean norm of d value / d a_k, [K + 1]
    """
    draw = rule(scale.field, sampler)
    noises = jax.random.normal(keys(seed).measure, (K + 1, scale.draws, 2))
    path = draw.path(params, noises)
    action = path[-1]
    there = distances(action) < WIDTH
    arriving, _ = samplers.step_gradients(
        draw.step, draw.field, params, noises[:, :500], draw.times, lambda path: value(path[-1])
    )
    return {
        "spread": action.std(axis=0).mean(),
        "mean": action.mean(axis=0),
        "near": there.any(axis=-1).mean(),
        "modes": there.mean(axis=0),
        "value": value(action).mean(),
        "reach": jnp.linalg.norm(path[1:], axis=-1).max(axis=0).mean(),
        "gradient": jnp.linalg.norm(arriving, axis=-1).mean(axis=-1),
    }


Layers = list[dict[str, list]]  # of a field, from its input to its output


def to_layers(params: Params) -> Layers:
    """Kernels and biases to four digits, for JSON."""
    layers = params["params"]["layers"]
    hidden = layers["Hidden_0"]
    ordered = [*(hidden[f"Dense_{i}"] for i in range(len(hidden))), layers["Dense_0"]]
    short = np.vectorize(lambda x: float(f"{x:.4g}"), otypes=[np.float64])
    return [{name: short(x).tolist() for name, x in layer.items()} for layer in ordered]


def from_layers(layers: Layers) -> Params:
    *hidden, last = [{name: jnp.float32(x) for name, x in layer.items()} for layer in layers]
    named = {f"Dense_{i}": layer for i, layer in enumerate(hidden)}
    return {"params": {"layers": {"Hidden_0": named, "Dense_0": last}}}
