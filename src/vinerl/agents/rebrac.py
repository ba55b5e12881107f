"""ReBRAC: a deterministic actor, target smoothing and a squared-error anchor."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from vinerl.nets.actors import Deterministic
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import td_loss
from vinerl.rl.values import actor_value, make_critic, target_value
from vinerl.types import Spec


@dataclass(frozen=True)
class RebracConfig(AgentConfig):
    """ReBRAC as QAM's authors ran it."""

    alpha: float = 0.01  # behaviour-cloning weight, tuned per domain
    noise: float = 0.0  # standard deviation of the smoothing noise, tuned per domain
    noise_clip: float = 0.5  # its bound
    target_every: int = 2  # gradient steps between target updates
    actor_every: int = 1  # gradient steps between those the actor's terms count in; published: 2


def make_rebrac(cfg: RebracConfig, spec: Spec) -> Agent:
    actor = Deterministic(cfg.actor_hidden, spec.action_dim, cfg.dtype)
    critic = make_critic(cfg)

    def policy(state):
        return {"actor": state.params["actor"]}

    def act(policy, obs, key):
        action = actor.apply(policy["actor"], obs)
        noise = cfg.noise * jax.random.normal(key, action.shape)
        return jnp.clip(action + jnp.clip(noise, -cfg.noise_clip, cfg.noise_clip), -1, 1)

    def loss(params, state, batch, key):
        next_action = act(state.targets, batch.next_obs, key)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        action = actor.apply(params["actor"], batch.obs)
        q = actor_value(cfg, critic.apply(state.params["critic"], batch.obs, action))
        scale = jax.lax.stop_gradient(1 / jnp.abs(q).mean())
        bc = jnp.mean(batch.weight * jnp.sum((action - batch.action) ** 2, axis=-1))

        due = (state.step + 1) % cfg.actor_every == 0

        metrics |= {"actor/q": q.mean(), "actor/bc": bc}
        return critic_loss + due * (cfg.alpha * bc - scale * q.mean()), metrics

    networks = {
        "actor": (actor, (spec.obs,)),
        "critic": (critic, (spec.obs, spec.action)),
    }
    return Agent(cfg, networks, ("critic", "actor"), loss, policy, act, actor_every=cfg.actor_every)
