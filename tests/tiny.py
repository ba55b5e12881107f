"""Small agents and a small dataset that many tests share."""

from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np

from vinerl.agents import AGENTS
from vinerl.data.fold import Transitions, transitions
from vinerl.types import Spec

SPEC = Spec(jax.ShapeDtypeStruct((3,), jnp.float32), action_dim=2)
SIZES = {"actor_hidden": (8,), "critic_hidden": (8,), "critics": 2, "batch_size": 16}
SIZES |= {"flow_steps": 3}


def tiny(name):
    """The config, with small sizes, and the maker of an agent."""
    config, make = AGENTS[name]
    known = {field.name for field in fields(config)}
    return replace(config, **{k: v for k, v in SIZES.items() if k in known}), make


def dataset(n=60, seed=0, spec=SPEC) -> Transitions:
    """Four episodes of random transitions; in two of them the task itself ends."""
    draw = np.random.default_rng(seed)
    ends = [9, 24, 40, n - 1]
    terminal, mask = np.zeros(n), np.ones(n)
    terminal[ends], mask[[9, 40]] = 1, 0
    pixels = lambda s: draw.integers(0, 256, (n + len(ends), *s.shape), np.uint8)
    scale = lambda x, s: x if s.dtype == np.uint8 else (x / 128 - 1).astype(s.dtype)
    obs = jax.tree.map(lambda s: scale(pixels(s), s), spec.obs)
    action = draw.uniform(-1, 1, (n, spec.action_dim))
    return transitions(obs, action, draw.normal(size=n), mask, terminal)


def assert_close(a, b, rtol=1e-4, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol, atol), a, b)


def relative(a, b):
    """How far a is from b: ||x - y|| / ||y||, the largest over all leaves."""

    def one(x, y):
        x, y = (np.asarray(z, np.float64) for z in (x, y))
        apart, size = np.linalg.norm(x - y), np.linalg.norm(y)
        return apart / size if size else np.inf * apart if apart else 0.0

    return max(jax.tree.leaves(jax.tree.map(one, a, b)))
