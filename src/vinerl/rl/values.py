"""Critics as a config describes them, and what becomes of their several opinions [E, B] -> [B]."""

import jax.numpy as jnp

from vinerl.nets.critics import Critic, ResidualCritic
from vinerl.nets.mlp import Network
from vinerl.rl.learner import AgentConfig
from vinerl.types import Array, Scalar


def make_critic(cfg: AgentConfig, critics: int | None = None) -> Network:
    """The recipe's kind of critic; `critics` where a function needs another number of them."""
    count = cfg.critics if critics is None else critics
    if cfg.critic == "mlp":
        return Critic(cfg.critic_hidden, count, cfg.dtype)
    return ResidualCritic(cfg.critic_hidden, cfg.critic_blocks, count, cfg.critic_layout, cfg.dtype)


def target_value(cfg: AgentConfig, qs: Array) -> Array:
    """What is bootstrapped from."""
    return pessimistic(qs, cfg.rho) if cfg.target == "std" else qs.min(axis=0)


def actor_value(cfg: AgentConfig, qs: Array) -> Array:
    """What an actor climbs where its paper has it as pessimistic as the target."""
    return pessimistic(qs, cfg.rho) if cfg.target == "std" else qs.mean(axis=0)


def pessimistic(qs: Array, rho: Scalar) -> Array:
    """The mean less rho standard deviations."""
    var = qs.var(axis=0)  # the root of 0 has no gradient, and two critics do agree at times
    std = jnp.where(var > 0, jnp.sqrt(jnp.where(var > 0, var, 1)), 0)
    return qs.mean(axis=0) - rho * std
