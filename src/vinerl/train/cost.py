"""What a gradient step multiplies and moves, counted from the shapes in its program."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax

from vinerl.data.fold import Transitions
from vinerl.rl import learner
from vinerl.rl.learner import Agent
from vinerl.train import offline


class Cost(NamedTuple):
    """Of one step of one member."""

    flop: int  # of its matrix products
    bytes: int  # their operands and results, and the state once in and once out

    @property
    def intensity(self) -> float:
        return self.flop / self.bytes


def step(agent: Agent, data: Transitions) -> Cost:
    key = jax.random.key(0)
    state = jax.eval_shape(partial(learner.init, agent), key)
    program = jax.make_jaxpr(partial(offline.train_step, agent))(data, key, state)
    found = products(program.jaxpr)
    return Cost(found.flop, found.bytes + 2 * sum(map(_size, jax.tree.leaves(state))))


def products(jaxpr: Any) -> Cost:
    """Of all matrix products in a program; those in a loop count as often as it runs."""
    flop = size = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            flop += _flop(equation)
            size += sum(_size(x.aval) for x in (*equation.invars, *equation.outvars))
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for inner in _inside(equation):
            found = products(inner)
            flop, size = flop + times * found.flop, size + times * found.bytes
    return Cost(flop, size)


def _flop(product: Any) -> int:
    """Two for every number of the result and every term that is summed up in it."""
    (summed, _), _ = product.params["dimension_numbers"]
    terms = math.prod(product.invars[0].aval.shape[axis] for axis in summed)
    return 2 * math.prod(product.outvars[0].aval.shape) * terms


def _inside(equation: Any) -> Iterator[Any]:
    """The programs that an equation runs."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple) else (value,):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                yield inner


def _size(x: Any) -> int:
    return x.size * x.dtype.itemsize
