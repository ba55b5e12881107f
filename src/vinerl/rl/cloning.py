"""Flow matching of whatever velocity fields an agent has."""

import jax
import jax.numpy as jnp

from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent
from vinerl.rl.losses import matching_loss
from vinerl.types import Array, Batch, Key, Params


def fields(agent: Agent) -> list[str]:
    """Their roles; a map from noise to actions in one step takes no time and is none."""
    networks = agent.networks.items()
    return [
        n for n, (net, inputs) in networks if isinstance(net, VelocityField) and len(inputs) > 2
    ]


def cloning_loss(agent: Agent, params: Params, batch: Batch, key: Key) -> Array:
    """Of all fields in `params` together."""
    each = jax.random.split(key, len(params)) if len(params) > 1 else [key]
    velocity = lambda role: agent.networks[role][0].at(params[role], batch.obs)
    losses = [matching_loss(velocity(role), batch, k) for role, k in zip(params, each, strict=True)]
    return sum(losses, start=jnp.zeros(()))
