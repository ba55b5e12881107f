"""DSRL: a Gaussian policy over the noise of a behaviour flow, trained on a latent critic."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.nets.actors import Gaussian, Positive, VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import matching_loss, td_loss, temperature_loss
from vinerl.rl.policies import in_a_row, tanh_gaussian
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class DsrlConfig(AgentConfig):
    """DSRL as QAM's authors ran it."""

    noise_scale: float = 1.0  # bound on the steered noise, tuned per domain
    entropy_per_dim: float = -0.5  # wanted of the steering, before it is scaled
    flow_steps: int = 10  # K, steps from noise to action


def make_dsrl(cfg: DsrlConfig, spec: Spec) -> Agent:
    flow = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    steer = Gaussian(cfg.actor_hidden, spec.action_dim, cfg.dtype)
    critic, latent, temperature = make_critic(cfg), make_critic(cfg), Positive()

    def decode(params, obs, noise):
        velocity = flow.at(params, obs)
        action = samplers.transport(velocity, noise, cfg.flow_steps, unroll=in_a_row())
        return jnp.clip(action, -1, 1)

    def policy(state):
        return {"steer": state.params["steer"], "flow": state.targets["flow"]}

    def act(policy, obs, key):
        noise, _ = tanh_gaussian(steer.apply(policy["steer"], obs), key)
        return decode(policy["flow"], obs, cfg.noise_scale * noise)

    def loss(params, state, batch, key):
        key_next, key_match, key_noise, key_steer = jax.random.split(key, 4)

        next_action = act(policy(state), batch.next_obs, key_next)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        matching = matching_loss(flow.at(params["flow"], batch.obs), batch, key_match)

        # The latent critic scores a noise by what the flow makes of it.
        noise = jax.random.normal(key_noise, batch.action.shape)
        decoded = decode(state.targets["flow"], batch.obs, noise)
        wanted = critic.apply(state.params["critic"], batch.obs, decoded)
        distill = jnp.mean((latent.apply(params["latent"], batch.obs, noise) - wanted) ** 2)

        steered, log_prob = tanh_gaussian(steer.apply(params["steer"], batch.obs), key_steer)
        q = latent.apply(state.params["latent"], batch.obs, cfg.noise_scale * steered).mean(axis=0)
        steer_loss = jnp.mean(temperature.apply(state.params["temperature"]) * log_prob - q)
        learned = temperature.apply(params["temperature"])
        tuning = temperature_loss(learned, log_prob, cfg.entropy_per_dim * spec.action_dim)

        metrics |= {"critic/distill": distill, "actor/matching": matching, "actor/q": q.mean()}
        return critic_loss + matching + distill + steer_loss + tuning, metrics

    networks = {
        "flow": (flow, (spec.obs, spec.action, TIME)),
        "steer": (steer, (spec.obs,)),
        "critic": (critic, (spec.obs, spec.action)),
        "latent": (latent, (spec.obs, spec.action)),
        "temperature": (temperature, ()),
    }
    return Agent(cfg, networks, ("critic", "flow"), loss, policy, act)
