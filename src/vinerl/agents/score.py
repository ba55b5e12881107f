"""QSM and DAC: a diffusion policy whose noise prediction is pulled by the critic's gradient."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from vinerl.flow import diffusion
from vinerl.nets.actors import NoisePredictor
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import td_loss
from vinerl.rl.policies import flow_policy, in_a_row
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class ScoreConfig(AgentConfig):
    """QSM and DAC as QAM's authors ran them."""

    pull: Literal["qsm", "dac"] = "qsm"  # how the critic's gradient enters
    inv_temp: float = 10.0  # qsm: strength of the pull, tuned per domain
    alpha: float = 10.0  # weight of the denoising loss, tuned per domain
    flow_steps: int = 10  # K, the levels of noise
    # to the estimate and noise again, to the mean given it, or so without clipping it (published)
    sampler: Literal["jump", "ddpm", "ancestral"] = "jump"
    max_grad_norm: float = 1.0  # over all networks together


def make_score(cfg: ScoreConfig, spec: Spec) -> Agent:
    actor = NoisePredictor(cfg.actor_hidden, spec.action_dim, cfg.dtype)
    critic = make_critic(cfg)
    schedule, levels = diffusion.vp_schedule(cfg.flow_steps), diffusion.levels(cfg.flow_steps)
    rule = diffusion.STEPS[cfg.sampler]
    options = {"times": levels, "unroll": in_a_row()}
    draw = flow_policy(actor, rule(schedule), cfg.flow_steps, **options)

    def policy(state):
        return {"actor": state.params["actor"]}

    def act(policy, obs, key):
        return jnp.clip(draw(policy["actor"], obs, key), -1, 1)

    def loss(params, state, batch, key):
        key_next, key_level, key_noise = jax.random.split(key, 3)

        next_action = act(state.params, batch.next_obs, key_next)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        i = jax.random.randint(key_level, batch.reward.shape, 1, cfg.flow_steps + 1)
        noise = jax.random.normal(key_noise, batch.action.shape)
        noisy = diffusion.add_noise(schedule, batch.action, noise, i)
        predicted = actor.apply(params["actor"], batch.obs, noisy, i[:, None])
        denoising = jnp.mean(batch.weight[:, None] * (predicted - noise) ** 2)

        # At the noisy action itself, which may lie outside the box.
        value = lambda a: critic.apply(state.targets["critic"], batch.obs, a).mean(axis=0).sum()
        gradient = jax.grad(value)(noisy)
        if cfg.pull == "qsm":
            pull = (predicted + cfg.inv_temp * gradient) ** 2
        else:
            pull = jnp.sqrt(1 - schedule.alpha_bar[i])[:, None] * gradient * predicted
        pull = jnp.mean(batch.weight[:, None] * pull)

        metrics |= {"actor/denoising": denoising, "actor/pull": pull}
        return critic_loss + cfg.alpha * denoising + pull, metrics

    networks = {
        "actor": (actor, (spec.obs, spec.action, TIME)),
        "critic": (critic, (spec.obs, spec.action)),
    }
    return Agent(cfg, networks, ("critic",), loss, policy, act)
