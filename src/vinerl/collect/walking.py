"""Teaching the ant to walk where it is told: soft actor-critic on a herd of them.

The benchmark's experts were made like this, so the defaults are theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vinerl.collect import controllers
from vinerl.collect.controllers import Controller
from vinerl.collect.herd import Herd
from vinerl.types import Array, Key, Metrics, Params

NOISE = 0.2  # on actions, when a controller is looked at: as in the data


@dataclass(frozen=True)
class Lesson:
    """How a controller is trained."""

    steps: int = 400_000  # of one ant, all of them counted
    ants: int = 64  # that walk at once
    updates: int = 64  # of the networks, for one step of them all
    random_steps: int = 10_000  # before the first update
    batch_size: int = 256
    lr: float = 1e-4
    discount: float = 0.99
    tau: float = 0.005
    temperature: float = 1.0  # at the beginning; then it is learned
    hidden: int = 256  # width of two layers
    seed: int = 0


class State(NamedTuple):
    params: Params  # actor, critic, temperature (its logarithm)
    target: Any  # of the critic
    optimizer: optax.OptState


class Replay(NamedTuple):
    """Steps, one a row, on the device or on their way to it."""

    obs: Any
    action: Any
    reward: Any
    mask: Any
    next_obs: Any


Show = Callable[[int, str], None]  # (steps done, how well the ants walk)


def train(lesson: Lesson, threads: int, show: Show = lambda *_: None) -> dict[str, np.ndarray]:
    """The weights of a controller."""
    herd = Herd(lesson.ants, threads, lesson.seed)
    draw = np.random.default_rng(lesson.seed)
    size = herd.obs.shape[1], herd.model.nu
    key_init, key = jax.random.split(jax.random.key(lesson.seed))
    state, replay = init(lesson, key_init, *size), empty(lesson, *size)
    learn, remember, act = compiled(lesson)
    rounds = lesson.steps // lesson.ants
    for i in range(rounds):
        obs, done = herd.obs, i * lesson.ants
        key_act, key_learn = jax.random.split(jax.random.fold_in(key, i))
        if done < lesson.random_steps:
            action = draw.uniform(-1, 1, (lesson.ants, size[1])).astype(np.float32)
        else:
            action = np.asarray(act(state.params["actor"], obs, key_act))
        seen = herd.step(action)
        row = Replay(obs, action, seen.reward, 1 - seen.ended.astype(np.float32), seen.obs)
        replay = remember(replay, row, done)
        if done + lesson.ants >= lesson.random_steps:
            state = learn(state, replay, done + lesson.ants, key_learn)
        if (i + 1) % max(1, rounds // 20) == 0 or i + 1 == rounds:
            speed, falls = look(controllers.walker(weights(state)), threads)
            show(done + lesson.ants, f"{speed:.3f} m a step, {falls} falls")
    return weights(state)


def look(controller: Controller, threads: int, ants: int = 16, steps: int = 200, seed: int = 1):
    """Metres a step along the direction once under way, with the data's noise; and falls."""
    herd, falls, speeds = Herd(ants, threads, seed), 0, []
    for _ in range(steps):
        place = np.zeros((ants, 2))  # which a controller does not look at
        mean = controller(np.concatenate([place, herd.obs[:, :-2]], axis=1), herd.direction)
        seen = herd.step(np.clip(mean + herd.draw.normal(0, NOISE, mean.shape), -1, 1))
        falls += int(seen.ended.sum())
        speeds.append(seen.reward.mean())
    return float(np.mean(speeds[steps // 4 :])), falls


def weights(state: State) -> dict[str, np.ndarray]:
    """In the layout of a controller's file."""
    *hidden, mean, _ = state.params["actor"]
    layers = {str(i): layer for i, layer in enumerate(hidden)} | {"mean": mean}
    return {f"{n}.{part}": np.asarray(layer[part]) for n, layer in layers.items() for part in "wb"}


def init(lesson: Lesson, key: Key, obs: int, action: int) -> State:
    def dense(key, inputs, outputs, scale=1.0):
        limit = np.sqrt(6 * scale / (inputs + outputs))
        w = jax.random.uniform(key, (inputs, outputs), minval=-limit, maxval=limit)
        return {"w": w, "b": jnp.zeros(outputs)}

    def trunk(key, inputs):
        first, second = jax.random.split(key)
        return [dense(first, inputs, width), dense(second, width, width)]

    def critic(key):
        key_trunk, key_head = jax.random.split(key)
        return [*trunk(key_trunk, obs + action), dense(key_head, width, 1)]

    width = lesson.hidden
    key_trunk, key_mean, key_spread, key_critic = jax.random.split(key, 4)
    heads = [dense(key_mean, width, action, 0.01), dense(key_spread, width, action, 0.01)]
    params = {
        "actor": [*trunk(key_trunk, obs), *heads],
        "critic": jax.vmap(critic)(jax.random.split(key_critic, 2)),
        "temperature": jnp.log(jnp.float32(lesson.temperature)),
    }
    target = jax.tree.map(jnp.copy, params["critic"])
    return State(params, target, optax.adam(lesson.lr).init(params))


def empty(lesson: Lesson, obs: int, action: int) -> Replay:
    n = lesson.steps // lesson.ants * lesson.ants
    zeros = [jnp.zeros((n, *shape)) for shape in ((obs,), (action,), (), (), (obs,))]
    return Replay(*zeros)


def compiled(lesson: Lesson) -> tuple[Callable, Callable, Callable]:
    """learn(state, replay, filled, key), remember(replay, rows, at), act(actor, obs, key)."""

    @jax.jit
    def learn(state, replay, filled, key):
        def one(state, key):
            key_rows, key_update = jax.random.split(key)
            rows = jax.random.randint(key_rows, (lesson.batch_size,), 0, filled)
            return update(lesson, state, jax.tree.map(lambda x: x[rows], replay), key_update)

        return jax.lax.scan(one, state, jax.random.split(key, lesson.updates))[0]

    @partial(jax.jit, donate_argnums=0)
    def remember(replay, rows, at):
        put = partial(jax.lax.dynamic_update_slice_in_dim, start_index=at, axis=0)
        return jax.tree.map(put, replay, rows)

    return learn, remember, jax.jit(lambda actor, obs, key: sample(actor, obs, key)[0])


def update(lesson: Lesson, state: State, batch: Replay, key: Key) -> tuple[State, Metrics]:
    loss = partial(sac_loss, lesson, state, batch, key)
    grads, metrics = jax.grad(loss, has_aux=True)(state.params)
    updates, optimizer = optax.adam(lesson.lr).update(grads, state.optimizer)
    params: Any = optax.apply_updates(state.params, updates)
    target = optax.incremental_update(params["critic"], state.target, lesson.tau)
    return State(params, target, optimizer), metrics


def sac_loss(lesson: Lesson, state: State, batch: Replay, key: Key, params: Params):
    """Critic, actor and temperature in one; `state.params` are the same values held constant."""
    key_next, key_actor = jax.random.split(key)
    heat = jnp.exp(state.params["temperature"])

    next_action, next_log = sample(state.params["actor"], batch.next_obs, key_next)
    next_q = values(state.target, batch.next_obs, next_action).min(axis=0) - heat * next_log
    goal = batch.reward + lesson.discount * batch.mask * next_q
    critic_loss = jnp.mean((values(params["critic"], batch.obs, batch.action) - goal) ** 2)

    action, log = sample(params["actor"], batch.obs, key_actor)
    q = values(state.params["critic"], batch.obs, action).min(axis=0)
    actor_loss = jnp.mean(heat * log - q)

    entropy = -jax.lax.stop_gradient(log.mean())
    wanted = -batch.action.shape[-1] / 2
    temperature_loss = jnp.exp(params["temperature"]) * (entropy - wanted)
    metrics = {"q": q.mean(), "entropy": entropy, "temperature": heat}
    return critic_loss + actor_loss + temperature_loss, metrics


def sample(actor: Params, obs: Array, key: Key) -> tuple[Array, Array]:
    """A tanh-Gaussian action, and the logarithm of its density."""
    *_, mean, spread = actor
    h = _hidden(actor[:-2], obs)
    mean, spread = h @ mean["w"] + mean["b"], jnp.clip(h @ spread["w"] + spread["b"], -5, 2)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(spread) * noise
    log = -0.5 * noise**2 - spread - 0.5 * jnp.log(2 * jnp.pi)
    squash = 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))  # log(1 - tanh(raw)^2)
    return jnp.tanh(raw), (log - squash).sum(axis=-1)


def values(critic: Params, obs: Array, action: Array) -> Array:
    """[2, B], one row a critic."""

    def one(layers):
        h = _hidden(layers[:-1], jnp.concatenate([obs, action], axis=-1))
        return (h @ layers[-1]["w"] + layers[-1]["b"])[..., 0]

    return jax.vmap(one)(critic)


def _hidden(layers: Any, x: Array) -> Array:
    for layer in layers:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    return x
