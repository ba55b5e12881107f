"""FQL: a one-step policy climbs Q while it distils a behaviour flow."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import matching_loss, td_loss
from vinerl.rl.policies import in_a_row
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec, rows


@dataclass(frozen=True)
class FqlConfig(AgentConfig):
    """FQL with QAM's critics."""

    alpha: float = 100.0  # distillation weight, tuned per domain
    flow_steps: int = 10  # K, steps from noise to action


def make_fql(cfg: FqlConfig, spec: Spec) -> Agent:
    flow = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    onestep = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    critic = make_critic(cfg)

    def policy(state):
        return {"onestep": state.params["onestep"]}

    def act(policy, obs, key):
        noise = jax.random.normal(key, (rows(obs), spec.action_dim))
        return jnp.clip(onestep.apply(policy["onestep"], obs, noise), -1, 1)

    def loss(params, state, batch, key):
        key_next, key_match, key_noise = jax.random.split(key, 3)

        next_action = act(state.params, batch.next_obs, key_next)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        matching = matching_loss(flow.at(params["flow"], batch.obs), batch, key_match)

        # Teacher and student start from the same noise; the teacher is held constant.
        noise = jax.random.normal(key_noise, batch.action.shape)
        teacher = flow.at(state.params["flow"], batch.obs)
        taught = samplers.transport(teacher, noise, cfg.flow_steps, unroll=in_a_row())
        action = onestep.apply(params["onestep"], batch.obs, noise)
        distill = jnp.mean((action - jnp.clip(taught, -1, 1)) ** 2)
        q = critic.apply(state.params["critic"], batch.obs, jnp.clip(action, -1, 1)).mean()

        metrics |= {"actor/matching": matching, "actor/distill": distill, "actor/q": q}
        return critic_loss + matching + cfg.alpha * distill - q, metrics

    networks = {
        "flow": (flow, (spec.obs, spec.action, TIME)),
        "onestep": (onestep, (spec.obs, spec.action)),
        "critic": (critic, (spec.obs, spec.action)),
    }
    return Agent(cfg, networks, ("critic",), loss, policy, act)
