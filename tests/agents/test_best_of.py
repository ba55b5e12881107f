"""Agents that choose among draws: by themselves, on a bandit, and as any agent can."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, dataset, tiny
from vinerl.agents import AGENTS
from vinerl.bench.studies import bandits, ladder
from vinerl.flow import samplers
from vinerl.rl import learner
from vinerl.rl.policies import choosing, flow_policy
from vinerl.train import offline, stack

OBS = bandits.state(500)
CRITICS = {"ifql": lambda qs: qs.min(axis=0), "fedit": lambda qs: qs.mean(axis=0)}


@cache
def trained(name):
    """What makes the agent for so many draws, and its state after learning with one."""
    config, make = tiny(name)
    config = replace(config, actor_hidden=(32, 32), critic_hidden=(32, 32), lr=3e-3, flow_steps=5)
    config = replace(config, batch_size=64)
    of = lambda draws, best_of=1: choosing(
        make(replace(config, draws=draws, best_of=best_of), ladder.SPEC)
    )
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


def member_of(config):
    return jax.tree.map(lambda x: x[0], stack.members(config, (0,)))


def agent_of(name, best_of):
    config, make = tiny(name)
    return stack.maker(make, config, SPEC, best_of=best_of)(member_of(config))


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_can_choose_among_its_actions(name):
    """Critics come along in its policy, and are nothing that must keep getting gradient."""
    alone, chooser = agent_of(name, 1), agent_of(name, 3)
    state = jax.eval_shape(lambda key: learner.init(chooser, key), jax.random.key(0))
    policy = jax.eval_shape(chooser.policy, state)
    assert set(policy) == {"critic", *jax.eval_shape(alone.policy, state)}
    assert offline.acting_roles(chooser) == offline.acting_roles(alone)
    with jax.debug_key_reuse(True):
        act = lambda *a: chooser.act(*a)  # never seen before, so traced
        traced = jax.jit(act).trace(policy, jnp.zeros((5, 3)), jax.random.key(0))
    assert traced.out_info.shape == (5, 2)


@pytest.mark.parametrize("name", AGENTS)
def test_one_action_is_the_agents_own_and_needs_no_critic_that_it_had_not(name):
    config, make = tiny(name)
    own, made = make(replace(config, **member_of(config).floats), SPEC), agent_of(name, 1)
    state = learner.init(own, jax.random.key(0))
    assert set(made.policy(state)) == set(own.policy(state))
    act = lambda agent: agent.act(agent.policy(state), jnp.ones((5, 3)), jax.random.key(1))
    np.testing.assert_array_equal(act(made), act(own))


@pytest.mark.parametrize("name", ["vine", "fbrac"])
def test_learning_is_the_same_whatever_acting_chooses_among(name):
    """Also where the loss calls the agent's own way to act."""

    data = jax.device_put(dataset())

    def learned(n):
        agent = agent_of(name, n)
        step = jax.jit(partial(offline.train_step, agent, data, jax.random.key(1)))
        return step(step(learner.init(agent, jax.random.key(0)))[0])

    jax.tree.map(np.testing.assert_array_equal, learned(1), learned(3))


def test_the_value_rises_with_what_any_agent_chooses_among():
    of, state = trained("fedit")
    critic, _ = of(1).networks["critic"]
    value = lambda action: critic.apply(state.params["critic"], OBS, action).mean(axis=0)
    means = []
    for n in (1, 4, 16):
        agent = of(1, best_of=n)
        action = jax.jit(agent.act)(agent.policy(state), OBS, jax.random.key(n))
        means.append(float(value(action).mean()))
    assert means == sorted(means)
    assert means[-1] > means[0] + 0.1


def test_a_choice_among_choices_is_one_among_all_their_draws():
    of, state = trained("fedit")
    both, one = of(4, best_of=4), of(1)
    critic, _ = one.networks["critic"]
    keys = jax.vmap(partial(jax.random.split, num=4))(jax.random.split(jax.random.key(9), 4))
    draw = jax.vmap(lambda key: one.act(one.policy(state), OBS, key))
    every = jax.jit(draw)(keys.reshape(16))
    value = lambda action: critic.apply(state.params["critic"], OBS, action).mean(axis=0)
    found = value(jax.jit(both.act)(both.policy(state), OBS, jax.random.key(9)))
    np.testing.assert_allclose(found, jax.vmap(value)(every).max(axis=0), atol=1e-5)
