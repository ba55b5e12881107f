"""Many runs in one program: members differ in their seed and in the float fields of a config.

Every `float` field is stackable, every other field is static; that is the whole rule. A member's
agent is made inside the mapped function, so losses read `cfg.alpha` and know nothing of stacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import inf
from typing import NamedTuple, get_type_hints

import jax
import jax.numpy as jnp

from vinerl.rl.learner import Agent, AgentConfig, Make
from vinerl.rl.policies import choosing
from vinerl.types import Array, Key, Spec


class Member(NamedTuple):
    """What tells one run from another; arrays [S] in a stack of S."""

    seed: Array
    floats: dict[str, Array]  # all float fields of the config


class Keys(NamedTuple):
    init: Key
    train: Key
    diagnose: Key
    evaluate: Key


AgentOf = Callable[[Member], Agent]


def stackable(cfg: AgentConfig) -> list[str]:
    """The fields that may hold several values."""
    return [name for name, kind in get_type_hints(type(cfg)).items() if kind is float]


def members(cfg: AgentConfig, seeds: Sequence[int]) -> Member:
    """A stack of every seed with every combination of values, where float fields hold several."""
    values = {name: getattr(cfg, name) for name in stackable(cfg)}
    several = [v if isinstance(v, tuple | list) else (v,) for v in values.values()]
    seed, *columns = zip(*product(seeds, *several), strict=True)
    floats = dict(zip(values, map(jnp.float32, columns), strict=True))
    return Member(jnp.uint32(seed), floats)


def maker(make: Make, cfg: AgentConfig, spec: Spec, **fixed) -> AgentOf:
    """From a member to its agent. `fixed` fields hold for all: `noise=0.0`, say, to evaluate.

    A limit that no member has (inf) stays a number: what it would ask for is not computed.
    """
    fixed = {name: v for name in stackable(cfg) if (v := getattr(cfg, name)) == inf} | fixed
    return lambda member: choosing(make(replace(cfg, **(member.floats | fixed)), spec))


def keys(member: Member, root: int = 0) -> Keys:
    """From the seed alone, so a member is the same run in any stack. Under another root, others."""
    return Keys(*jax.random.split(jax.random.fold_in(jax.random.key(root), member.seed), 4))
