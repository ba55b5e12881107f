"""Cloning first: velocity fields fitted to the data's actions, before any value has its say.

What follows, with whatever sampler and value, is fine-tuning. Critics, and all else that is no
velocity field, stay as they were initialised.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vinerl.data.fold import Transitions
from vinerl.rl import cloning, learner
from vinerl.rl.learner import Agent, State
from vinerl.train import groups
from vinerl.train.groups import Groups
from vinerl.train.loop import Data, at
from vinerl.train.offline import Stack, draw
from vinerl.train.stack import AgentOf, keys
from vinerl.types import Array, Key, Params

BLOCK = 500  # steps between two looks at it


class Cloning(NamedTuple):
    """On its way."""

    fields: Params  # by role
    optimizer: optax.OptState


def begin(agent: Agent, state: State) -> Cloning:
    fields = {role: state.params[role] for role in cloning.fields(agent)}
    return Cloning(fields, optax.adam(agent.config.lr).init(fields))


def learn(agent: Agent, data: Transitions, now: Cloning, each: Key) -> tuple[Cloning, Array]:
    """A step for each of the keys, and the mean of their losses."""

    def loss(fields, key):
        key_batch, key_match = jax.random.split(key)
        return cloning.cloning_loss(agent, fields, draw(agent, data, key_batch), key_match)

    def step(now, key):
        with learner.exactly(agent.config):
            value, grads = jax.value_and_grad(loss)(now.fields, key)
        updates, optimizer = optax.adam(agent.config.lr).update(grads, now.optimizer)
        return Cloning(optax.apply_updates(now.fields, updates), optimizer), value

    now, losses = jax.lax.scan(step, now, each)
    return now, losses.mean()


def end(agent: Agent, state: State, now: Cloning) -> State:
    """The fields where they belong, slow copies included."""
    slow = {role: now.fields[role] for role in now.fields if role in agent.targets}
    targets = state.targets | jax.tree.map(jnp.copy, slow)
    return state._replace(params=state.params | now.fields, targets=targets)


class Moment(NamedTuple):
    """Between two blocks."""

    step: int
    loss: float  # mean of all members, over the last block
    stack: Stack


def clone(
    agent_of: AgentOf,
    stack: Stack,
    data: Data,
    steps: int,
    *,
    every: int | None = None,
    among: Groups | None = None,
) -> Iterator[Moment]:
    """A stack before its first step, after every block; its data may change `every` so often."""

    def first(run):
        return begin(agent_of(run.member), run.state)

    def some(run, now, data, numbers):
        key = jax.random.fold_in(keys(run.member).init, 1)
        each = jax.vmap(partial(jax.random.fold_in, key))(numbers)
        return learn(agent_of(run.member), data, now, each)

    def put(run, now):
        return run._replace(state=end(agent_of(run.member), run.state, now))

    block = jax.jit(jax.vmap(some, in_axes=(0, 0, None, None)))
    block = groups.each(block, among, 0, 0, None, None)
    put, now = jax.jit(jax.vmap(put)), jax.jit(jax.vmap(first))(stack)
    for done, until in blocks(steps, every or steps):
        now, loss = block(stack, now, at(data, done), np.arange(done, until))
        yield Moment(until, float(loss.mean()), put(stack, now))


def blocks(steps: int, every: int) -> Iterator[tuple[int, int]]:
    """The steps from one to the other are a block, none of them across a change of the data."""
    for begin in range(0, steps, every):
        end = min(begin + every, steps)
        yield from ((done, min(done + BLOCK, end)) for done in range(begin, end, BLOCK))
