"""A stack that is worked on a group at a time, where the memory is too small for all at once.

The states of all members stay on the device; activations and gradients are a group's alone.

Every device has its share of the members and of each group, so nothing moves between devices:

member     |  0   1   2   3   4  |  5   6   7   8   9     on two devices, at most four at a time
group      |  0   0   1   1   2  |  0   0   1   1   2     4 and 9 are there twice in the last

All groups are of one size, so one program serves them all.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vinerl.train.offline import Block
from vinerl.types import Array


class Groups(NamedTuple):
    """How the members of a stack are divided."""

    devices: int
    share: int  # members of a device
    size: int  # of them in a group

    @property
    def rounds(self) -> int:
        return -(-self.share // self.size)


def deal(members: int, most: int, devices: int = 1) -> Groups:
    """As few groups of at most `most` members as there can be, each device's part about equal."""
    share = members // devices
    count = -(-share // (most // devices))
    return Groups(devices, share, -(-share // count))


def in_turn(block: Block, groups: Groups | None, axes: Any = None) -> Block:
    """A block of training for one group after the other; `axes` of the data, as in `jax.vmap`."""
    if groups is None:
        return block

    def every(stack, data, steps):
        seen = []
        for number in range(groups.rounds):
            part, own = _own(groups, number, (0, axes), (stack, data))
            part, found = block(part, own, steps)
            stack = put(stack, part, groups, number)
            seen.append(found)
        return stack, join(seen, groups)

    return every


def each(function: Callable, groups: Groups | None, *axes: Any) -> Callable:
    """Any function whose results are [S, ...], for one group after the other."""
    if groups is None:
        return function

    def every(*args):
        parts = [function(*_own(groups, n, axes, args)) for n in range(groups.rounds)]
        return join(parts, groups)

    return every


def _own(groups: Groups, number: int, axes: Any, args: Any) -> Any:
    """What of the arguments is a group's, where `axes` says that it is of members at all."""
    some = lambda axis, x: x if axis is None else take(x, groups, number)
    return jax.tree.map(some, axes, args, is_leaf=lambda axis: axis is None)


@partial(jax.jit, static_argnums=1)
def take(tree: Any, groups: Groups, number: Array | int) -> Any:
    """One group of a tree [S, ...]; where the last is short, its last members once more."""

    def one(x):
        return _shares(x, groups).at[:, _places(groups, number)].get(mode="clip")

    return jax.tree.map(lambda x: _flat(one(x)), tree)


@partial(jax.jit, static_argnums=2, donate_argnums=0)
def put(tree: Any, part: Any, groups: Groups, number: Array | int) -> Any:
    """The tree with a group of it replaced."""

    def one(x, y):
        places = _shares(x, groups).at[:, _places(groups, number)]
        return places.set(_shares(y, groups), mode="drop")

    return jax.tree.map(lambda x, y: _flat(one(x, y)), tree, part)


@partial(jax.jit, static_argnums=1)
def join(parts: list[Any], groups: Groups) -> Any:
    """All groups as one tree [S, ...], members in their order."""

    def one(*xs):
        return jnp.concatenate([_shares(x, groups) for x in xs], axis=1)[:, : groups.share]

    return jax.tree.map(lambda *xs: _flat(one(*xs)), *parts)


def _places(groups: Groups, number: Array | int) -> Array:
    """In each device's share; places after its end are nobody's."""
    return number * groups.size + jnp.arange(groups.size)


def _shares(x: Array, groups: Groups) -> Array:
    return x.reshape(groups.devices, -1, *x.shape[1:])


def _flat(x: Array) -> Array:
    return x.reshape(-1, *x.shape[2:])
