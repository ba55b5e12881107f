"""Agents that choose among draws, on a bandit."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import tiny
from vinerl.bench.studies import bandits, ladder
from vinerl.flow import samplers
from vinerl.rl import learner
from vinerl.rl.policies import flow_policy
from vinerl.train import offline

OBS = bandits.state(500)
CRITICS = {"ifql": lambda qs: qs.min(axis=0), "fedit": lambda qs: qs.mean(axis=0)}


@cache
def trained(name):
    """What makes the agent for so many draws, and its state after learning with one."""
    config, make = tiny(name)
    config = replace(config, actor_hidden=(32, 32), critic_hidden=(32, 32), lr=3e-3, flow_steps=5)
    of = lambda draws: make(replace(config, batch_size=64, draws=draws), ladder.SPEC)
    data = jax.device_put(bandits.data(bandits.BANDITS["five"], 1000))
    step = partial(offline.train_step, of(1), data, jax.random.key(1))
    learn = jax.jit(lambda state: jax.lax.fori_loop(0, 300, lambda _, s: step(s)[0], state))
    return of, learn(learner.init(of(1), jax.random.key(0)))


@pytest.mark.parametrize("name", CRITICS)
def test_the_value_of_the_chosen_action_rises_with_n(name):
    of, state = trained(name)
    critic, _ = of(1).networks["critic"]
    means = []
    for n in (1, 4, 16, 64):
        action = jax.jit(of(n).act)(of(n).policy(state), OBS, jax.random.key(n))
        qs = critic.apply(state.params["critic"], OBS, action)
        means.append(float(CRITICS[name](qs).mean()))
    assert means == sorted(means)
    assert means[-1] > means[0] + 0.1


def test_the_best_of_one_is_a_draw_from_the_flow_bit_for_bit():
    of, state = trained("ifql")
    flow, _ = of(1).networks["flow"]
    draw = jax.jit(flow_policy(flow, samplers.euler_step, 5))
    drawn = draw(state.params["flow"], OBS, jax.random.key(7))
    chosen = jax.jit(of(1).act)(of(1).policy(state), OBS, jax.random.key(7))
    np.testing.assert_array_equal(chosen, jnp.clip(drawn, -1, 1))


def test_an_edit_alone_needs_no_critic_to_act():
    of, state = trained("fedit")
    assert set(of(1).policy(state)) == {"flow", "editor"}
    assert set(of(4).policy(state)) == {"flow", "editor", "critic"}
