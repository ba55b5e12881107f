"""CGQL: a behaviour flow bent at sampling time by the critic's action gradient.

Three ways to score a half-noised action: the critic of clean ones ("simple"), or a critic that
knows the time, fitted to it by squared error ("mse") or by a linex loss ("linex").
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.flow.guidance import guided
from vinerl.flow.path import interpolate
from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import linex, matching_loss, td_loss
from vinerl.rl.policies import in_a_row
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec, rows


@dataclass(frozen=True)
class CgqlConfig(AgentConfig):
    """CGQL, CGQL-M and CGQL-L as QAM's authors ran them."""

    mode: Literal["simple", "mse", "linex"] = "simple"  # how half-noised actions are scored
    guidance: float = 0.1  # how far the field is bent, tuned per domain
    inv_temp: float = 10.0  # of the critic in the guidance
    noisy_weight: float = 0.001  # mse, linex: of the fit, tuned per domain
    flow_steps: int = 10  # K, steps from noise to action


def make_cgql(cfg: CgqlConfig, spec: Spec) -> Agent:
    flow = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    critic = make_critic(cfg)

    def q_at(params, obs, action, t):
        return critic.apply(params, obs, action, jnp.broadcast_to(t, (*action.shape[:-1], 1)))

    def policy(state):
        return {"flow": state.targets["flow"], "critic": state.params["critic"]}

    def act(policy, obs, key):
        time = jnp.ones_like if cfg.mode == "simple" else lambda t: t
        score = lambda x, t: cfg.inv_temp * q_at(policy["critic"], obs, x, time(t)).mean(axis=0)
        field = guided(flow.at(policy["flow"], obs), score, cfg.guidance)
        noise = jax.random.normal(key, (rows(obs), spec.action_dim))
        action = samplers.transport(field, noise, cfg.flow_steps, unroll=in_a_row())
        return jnp.clip(action, -1, 1)

    def noisy_loss(params, state, batch, key):
        """Of the critic at half-noised actions, member by member."""
        key_time, key_noise = jax.random.split(key)
        t = jax.random.uniform(key_time, (*batch.action.shape[:-1], 1))
        noisy = interpolate(jax.random.normal(key_noise, batch.action.shape), batch.action, t)
        wanted = q_at(state.targets["critic"], batch.obs, batch.action, 1.0)
        predicted = q_at(params["critic"], batch.obs, noisy, t)
        if cfg.mode == "mse":
            return jnp.mean(batch.weight * (predicted - wanted) ** 2)
        return jnp.mean(batch.weight * linex(predicted, wanted, cfg.inv_temp))

    def loss(params, state, batch, key):
        key_next, key_match, key_noisy = jax.random.split(key, 3)

        next_action = act(policy(state), batch.next_obs, key_next)
        next_qs = q_at(state.targets["critic"], batch.next_obs, next_action, 1.0)
        qs = q_at(params["critic"], batch.obs, batch.action, 1.0)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))
        if cfg.mode != "simple":
            critic_loss += cfg.noisy_weight * noisy_loss(params, state, batch, key_noisy)

        matching = matching_loss(flow.at(params["flow"], batch.obs), batch, key_match)
        return critic_loss + matching, metrics | {"actor/matching": matching}

    networks = {
        "flow": (flow, (spec.obs, spec.action, TIME)),
        "critic": (critic, (spec.obs, spec.action, TIME)),
    }
    return Agent(cfg, networks, ("critic", "flow"), loss, policy, act)
