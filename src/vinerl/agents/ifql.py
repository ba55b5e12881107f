"""IFQL: expectile value learning, and the best of n draws from a behaviour flow."""

from dataclasses import dataclass

import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import expectile, matching_loss, td_loss
from vinerl.rl.policies import best_of, flow_policy, in_a_row
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class IfqlConfig(AgentConfig):
    """IDQL with a flow, as QAM's authors ran it."""

    kappa: float = 0.9  # expectile, tuned per domain
    draws: int = 32  # actions to choose from
    flow_steps: int = 10  # K, steps from noise to action


def make_ifql(cfg: IfqlConfig, spec: Spec) -> Agent:
    flow = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    critic, value = make_critic(cfg), make_critic(cfg, critics=1)
    behaviour = flow_policy(flow, samplers.euler_step, cfg.flow_steps, unroll=in_a_row())

    def policy(state):
        return {"flow": state.params["flow"], "critic": state.params["critic"]}

    def act(policy, obs, key):
        draw = lambda params, obs, key: jnp.clip(behaviour(params, obs, key), -1, 1)
        score = lambda obs, action: critic.apply(policy["critic"], obs, action).min(axis=0)
        return best_of(cfg.draws, draw, score)(policy["flow"], obs, key)

    def loss(params, state, batch, key):
        slow_qs = critic.apply(state.targets["critic"], batch.obs, batch.action)
        v = value.apply(params["value"], batch.obs)[0]
        value_loss = expectile(target_value(cfg, slow_qs) - v, cfg.kappa).mean()

        next_v = value.apply(state.params["value"], batch.next_obs)[0]
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, next_v)

        matching = matching_loss(flow.at(params["flow"], batch.obs), batch, key)

        metrics |= {"value/loss": value_loss, "actor/matching": matching}
        return value_loss + critic_loss + matching, metrics

    networks = {
        "flow": (flow, (spec.obs, spec.action, TIME)),
        "critic": (critic, (spec.obs, spec.action)),
        "value": (value, (spec.obs,)),
    }
    return Agent(cfg, networks, ("critic",), loss, policy, act)
