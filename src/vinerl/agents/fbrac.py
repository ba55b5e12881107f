"""FBRAC: value gradients through the plain Euler flow, anchored by flow matching."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import matching_loss, td_loss
from vinerl.rl.policies import flow_policy, in_a_row
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class FbracConfig(AgentConfig):
    """FBRAC with QAM's critics."""

    alpha: float = 100.0  # divides Q, tuned per domain
    flow_steps: int = 10  # K, steps from noise to action


def make_fbrac(cfg: FbracConfig, spec: Spec) -> Agent:
    actor = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    critic = make_critic(cfg)
    draw = flow_policy(actor, samplers.euler_step, cfg.flow_steps, unroll=in_a_row())

    def policy(state):
        return {"actor": state.params["actor"]}

    def act(policy, obs, key):
        return jnp.clip(draw(policy["actor"], obs, key), -1, 1)

    def loss(params, state, batch, key):
        key_next, key_match, key_actor = jax.random.split(key, 3)

        next_action = act(state.params, batch.next_obs, key_next)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        matching = matching_loss(actor.at(params["actor"], batch.obs), batch, key_match)

        action = act(params, batch.obs, key_actor)
        q = critic.apply(state.params["critic"], batch.obs, action).mean()

        metrics |= {"actor/matching": matching, "actor/q": q}
        return critic_loss + matching - q / cfg.alpha, metrics

    networks = {
        "actor": (actor, (spec.obs, spec.action, TIME)),
        "critic": (critic, (spec.obs, spec.action)),
    }
    return Agent(cfg, networks, ("critic",), loss, policy, act)
