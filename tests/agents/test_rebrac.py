"""When ReBRAC's networks move."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, dataset, tiny
from vinerl.rl import learner
from vinerl.train import offline, stack

DATA = jax.tree.map(jnp.asarray, dataset())


def trained(**changes):
    """The states before and after four updates, and what was seen in them."""
    config, make = tiny("rebrac")
    agent = make(replace(config, tau=0.5, **changes), SPEC)
    step = jax.jit(partial(offline.train_step, agent, DATA, jax.random.key(1)))
    states, seen = [learner.init(agent, jax.random.key(0))], []
    for _ in range(4):
        state, metrics = step(states[-1])
        states.append(state)
        seen.append(metrics)
    return states, seen


def moved(states, part, role):
    same = lambda a, b: jax.tree.map(np.array_equal, getattr(a, part)[role], getattr(b, part)[role])
    return [not all(jax.tree.leaves(same(a, b))) for a, b in pairwise(states)]


def test_as_it_was_run_all_move_in_every_step_and_slow_copies_in_every_second():
    states, seen = trained()
    for role in ("actor", "critic"):
        assert moved(states, "params", role) == [True] * 4
        assert moved(states, "targets", role) == [False, True, False, True]
    assert all(metrics["grad_norm/actor"] > 0 for metrics in seen)


def test_as_published_the_actors_terms_count_when_the_slow_copies_move():
    states, seen = trained(actor_every=2)
    assert [bool(metrics["grad_norm/actor"] > 0) for metrics in seen] == [False, True, False, True]
    assert moved(states, "params", "critic") == [True] * 4
    assert moved(states, "params", "actor")[:2] == [False, True]


@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_an_actor_that_waits_for_its_turn_is_not_taken_for_a_dead_one(length):
    """Whatever the length of a block; that of 1 has no gradient for it in every second."""
    config, make = tiny("rebrac")
    config = replace(config, actor_every=2)
    agent_of = stack.maker(make, config, SPEC)
    first = offline.start(agent_of, stack.members(config, seeds=(0, 1)))
    block = offline.train_block(agent_of)
    whole, _ = block(jax.tree.map(jnp.copy, first), DATA, 6)
    runs = first
    for _ in range(6 // length):
        runs, _ = block(runs, DATA, length)
    assert runs.status.tolist() == [0, 0]
    assert runs.state.step.tolist() == [6, 6]
    jax.tree.map(np.testing.assert_array_equal, runs, whole)


@pytest.mark.parametrize("step", [0, 1])
def test_in_its_turn_the_actor_has_the_same_gradient(step):
    config, make = tiny("rebrac")
    often, seldom = (make(replace(config, actor_every=n), SPEC) for n in (1, 2))
    state = learner.init(often, jax.random.key(0))._replace(step=jnp.int32(step))
    batch = offline.draw(often, DATA, jax.random.key(2))
    gradient = lambda agent: jax.jit(partial(learner.gradient, agent))
    one, two = (gradient(x)(state, batch, jax.random.key(3))[0] for x in (often, seldom))
    jax.tree.map(np.testing.assert_array_equal, one["critic"], two["critic"])
    turn = jax.tree.map(lambda x: x * (step == 1), one["actor"])
    jax.tree.map(np.testing.assert_array_equal, turn, two["actor"])
