"""Ways to turn networks into actions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from vinerl.errors import InputError
from vinerl.flow import samplers
from vinerl.nets.actors import Gaussian, NoisePredictor, VelocityField
from vinerl.rl.learner import Agent
from vinerl.types import TIME, Array, Key, Obs, Params, Scalar, rows

Draw = Callable[[Params, Obs, Key], Array]  # (params, obs [B, ...], key) -> action [B, A]


def flow_policy(
    field: VelocityField | NoisePredictor, step: samplers.Step, steps: int, **options
) -> Draw:
    """Actions by running `step` on `field` from fresh noise; `options` are those of `sample`."""

    def draw(params, obs, key):
        velocity = field.at(params, obs)
        return samplers.sample(step, velocity, key, (rows(obs), field.dim), steps, **options)

    return draw


def spread(draw: Draw, params: Params, obs: Obs, key: Key, draws: int = 8) -> Scalar:
    """Standard deviation of the actions drawn for one state, over all states and coordinates."""
    actions = jax.vmap(draw, (None, None, 0))(params, obs, jax.random.split(key, draws))
    return actions.std(axis=0, ddof=1).mean()


def in_a_row() -> bool:
    """Whether to compile the K steps one after another: faster, except on a CPU."""
    return jax.default_backend() != "cpu"


def best_of(n: int, draw: Draw, score: Callable[[Obs, Array], Array]) -> Draw:
    """The highest-scoring of n draws for each observation; of one draw, that draw."""
    if n == 1:
        return draw

    def chosen(params, obs, key):
        actions = jax.vmap(draw, (None, None, 0))(params, obs, jax.random.split(key, n))
        best = jnp.argmax(jax.vmap(score, (None, 0))(obs, actions), axis=0)
        return jnp.take_along_axis(actions, best[None, :, None], axis=0)[0]

    return chosen


def choosing(agent: Agent) -> Agent:
    """The agent, acting with the one of its `best_of` draws that its critics value most.

    A draw is whatever it does alone, a choice of its own included; its loss stays what it is. The
    critics are those that it acts with or, if it acts without, the online ones.
    """
    n = agent.config.best_of
    if n == 1:
        return agent
    critic, inputs = agent.networks.get("critic", (None, ()))
    if critic is None or len(inputs) < 2 or inputs[2:] not in ((), (TIME,)):
        raise InputError(
            f"--agent.best_of {n}: this agent has no critic of observations and actions to choose "
            "with; 1 acts without choosing"
        )

    def value(params, obs, action):
        times = [jnp.ones((len(action), 1)) for _ in inputs[2:]]  # what is drawn is at t = 1
        qs: Any = critic.apply(params, obs, action, *times)
        return qs.mean(axis=0)

    def policy(state):
        return {"critic": state.params["critic"]} | agent.policy(state)

    def act(policy, obs, key):
        return best_of(n, agent.act, partial(value, policy["critic"]))(policy, obs, key)

    return agent._replace(policy=policy, act=act)


def tanh_gaussian(gaussian: tuple[Array, Array], key: Key) -> tuple[Array, Array]:
    """A squashed sample from (mean, log std), and its log density, [B, A] and [B]."""
    mean, log_std = gaussian
    noise = jax.random.normal(key, mean.shape)
    x = mean + jnp.exp(log_std) * noise
    log_prob = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    log_prob -= 2 * (jnp.log(2.0) - x - jax.nn.softplus(-2 * x))  # log(1 - tanh(x)^2)
    return jnp.tanh(x), log_prob.sum(axis=-1)


def edited(
    editor: Gaussian, params: Params, obs: Obs, action: Array, scale: Scalar, key: Key
) -> tuple[Array, Array]:
    """An action moved by at most `scale`, back in the box; and the edit's log density."""
    edit, log_prob = tanh_gaussian(editor.apply(params, obs, action), key)
    return jnp.clip(action + scale * edit, -1, 1), log_prob
