"""Training block after block; everything else happens in between."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vinerl.data.fold import Transitions
from vinerl.train import groups, offline
from vinerl.train.groups import Groups
from vinerl.train.offline import Block, Stack
from vinerl.train.stack import AgentOf
from vinerl.types import Metrics

SECONDS = 2.0  # a block takes about this long

Data = Transitions | Callable[[int], Transitions]  # or what each step learns from


class Moment(NamedTuple):
    """A run between two blocks."""

    step: int
    stack: Stack
    metrics: Metrics | None  # since the last log, where one is due
    window: list[Metrics]  # blocks since then


def interval(*every: int) -> int:
    """What a block's length must divide, given everything that happens between blocks."""
    return math.gcd(*every)


def at(data: Data, step: int) -> Transitions:
    return data(step) if callable(data) else data


def choose(block: Block, stack: Stack, data: Transitions, limit: int) -> int:
    """The divisor of `limit` nearest to two seconds of work, by trying on copies of the start."""

    def seconds(steps: int) -> float:
        copy = jax.block_until_ready(jax.tree.map(jnp.copy, stack))
        begin = time.perf_counter()
        jax.block_until_ready(block(copy, data, steps))
        return time.perf_counter() - begin

    seconds(1)  # compiles
    steps, spent = 1, seconds(1)
    while spent < SECONDS / 10 and steps < limit:
        steps = min(4 * steps, limit)
        spent = seconds(steps)
    divisors = [n for n in range(1, limit + 1) if limit % n == 0]
    return min(divisors, key=lambda n: abs(math.log(n * spent / steps / SECONDS)))


def fit(
    agent_of: AgentOf,
    block: Block,
    stack: Stack,
    data: Data,
    *,
    steps: int,
    length: int,
    log_every: int,
    first: int = 0,
    window: Sequence[Metrics] = (),
    among: Groups | None = None,
) -> Iterator[Moment]:
    """The run after every block until `steps`, or until no member is learning any more.

    data           a function is asked once a block, for its first step
    first, window  where a resumed run goes on: its step, and the blocks since its last log
    among          groups in which the members are looked at, as `block` has them
    """
    diagnose = groups.each(offline.diagnose(agent_of), among, 0, None)
    window = list(window)
    if not (np.asarray(stack.status) == 0).any():
        return
    for step in range(first + length, steps + 1, length):
        now = at(data, step - length)
        stack, seen = block(stack, now, length)
        window.append(seen)
        over = step == steps or not (np.asarray(stack.status) == 0).any()
        due = over or step % log_every == 0
        metrics = summary(window) | diagnose(stack, now) if due else None
        window = [] if due else window
        yield Moment(step, stack, metrics, window)
        if over:
            return


def summary(window: list[Metrics]) -> Metrics:
    """Blocks of equal length as one: means of means, largest of largest."""
    merge: Callable = lambda name: jnp.max if name.endswith("_max") else jnp.mean
    return {n: merge(n)(jnp.stack([seen[n] for seen in window]), axis=0) for n in window[0]}
