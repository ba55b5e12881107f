"""BAM: value gradients through the memoryless SDE, with its control cost as the anchor."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from vinerl.flow import adjoint, samplers
from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import matching_loss, td_loss
from vinerl.rl.policies import flow_policy, in_a_row
from vinerl.rl.values import actor_value, make_critic, target_value
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class BamConfig(AgentConfig):
    """Basic adjoint matching, as QAM's authors ran it."""

    inv_temp: float = 30.0  # how strongly Q pulls, tuned per domain
    flow_steps: int = 10  # K, steps from noise to action
    max_grad_norm: float = 1.0  # clip to it, over all networks together


def make_bam(cfg: BamConfig, spec: Spec) -> Agent:
    slow = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    fast = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    critic = make_critic(cfg)
    draw = flow_policy(fast, samplers.euler_step, cfg.flow_steps, unroll=in_a_row())

    def policy(state):
        return {"fast": state.params["fast"]}

    def act(policy, obs, key):
        return jnp.clip(draw(policy["fast"], obs, key), -1, 1)

    def loss(params, state, batch, key):
        key_next, key_match, key_noise = jax.random.split(key, 3)

        next_action = act(state.params, batch.next_obs, key_next)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        matching = matching_loss(slow.at(params["slow"], batch.obs), batch, key_match)

        base = slow.at(state.targets["slow"], batch.obs)
        tuned = fast.at(params["fast"], batch.obs)
        noises = jax.random.normal(key_noise, (cfg.flow_steps + 1, *batch.action.shape))
        path = adjoint.roll(tuned, base, noises, unroll=in_a_row())
        cost = adjoint.control_cost(tuned, base, path)
        q = actor_value(cfg, critic.apply(state.params["critic"], batch.obs, path[-1])).mean()

        metrics |= {"actor/matching": matching, "actor/cost": cost, "actor/q": q}
        return critic_loss + matching + cost - cfg.inv_temp * q, metrics

    networks = {
        "slow": (slow, (spec.obs, spec.action, TIME)),
        "fast": (fast, (spec.obs, spec.action, TIME)),
        "critic": (critic, (spec.obs, spec.action)),
    }
    return Agent(cfg, networks, ("critic", "slow"), loss, policy, act)
