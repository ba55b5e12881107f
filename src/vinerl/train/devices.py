"""A stack over several devices. Members do not talk, so neither do the devices."""

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def mesh(members: int, most: int | None = None) -> Mesh:
    """The most devices that get equal shares of the stack, of which `most` members work at once."""
    every = jax.devices()[:most]
    count = max(n for n in range(1, len(every) + 1) if members % n == 0)
    return Mesh(every[:count], ("members",))


def split(stack: Any, among: Mesh) -> Any:
    """A tree of arrays [S, ...], each device with its members."""
    return jax.device_put(stack, NamedSharding(among, PartitionSpec("members")))


def copy(data: Any, among: Mesh) -> Any:
    """The same arrays on every device."""
    return jax.device_put(data, NamedSharding(among, PartitionSpec()))
