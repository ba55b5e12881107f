"""FAWAC: flow matching weighted by the exponentiated advantage."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.flow.path import matching_error
from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import td_loss
from vinerl.rl.policies import flow_policy, in_a_row
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class FawacConfig(AgentConfig):
    """AWAC with a flow, as QAM's authors ran it."""

    inv_temp: float = 1.0  # of the advantage, tuned per domain
    max_weight: float = 100.0  # of a sample
    flow_steps: int = 10  # K, steps from noise to action


def make_fawac(cfg: FawacConfig, spec: Spec) -> Agent:
    actor = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    critic, value = make_critic(cfg), make_critic(cfg, critics=1)
    draw = flow_policy(actor, samplers.euler_step, cfg.flow_steps, unroll=in_a_row())

    def policy(state):
        return {"actor": state.params["actor"]}

    def act(policy, obs, key):
        return jnp.clip(draw(policy["actor"], obs, key), -1, 1)

    def loss(params, state, batch, key):
        key_next, key_match = jax.random.split(key)

        next_action = act(state.params, batch.next_obs, key_next)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        slow_qs = critic.apply(state.targets["critic"], batch.obs, batch.action)
        v = value.apply(params["value"], batch.obs)
        value_loss = jnp.mean(batch.weight * (slow_qs - v) ** 2)

        held = critic.apply(state.params["critic"], batch.obs, batch.action).mean(axis=0)
        advantage = held - value.apply(state.params["value"], batch.obs)[0]
        weight = jnp.minimum(jnp.exp(cfg.inv_temp * advantage), cfg.max_weight)
        velocity = actor.at(params["actor"], batch.obs)
        error = matching_error(velocity, batch.action, key_match)
        matching = jnp.mean(batch.weight * weight * error)

        metrics |= {"value/loss": value_loss, "actor/matching": matching}
        return critic_loss + value_loss + matching, metrics

    networks = {
        "actor": (actor, (spec.obs, spec.action, TIME)),
        "critic": (critic, (spec.obs, spec.action)),
        "value": (value, (spec.obs,)),
    }
    return Agent(cfg, networks, ("critic",), loss, policy, act)
