"""QAM: adjoint matching pulls a fast flow from the behaviour flow towards high Q.

Two variants act through one network more: a one-step policy that distils the fast flow
("onestep", QAM-FQL), or a Gaussian edit of its actions ("edit", QAM-EDIT).
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from vinerl.flow import adjoint, samplers
from vinerl.nets.actors import Gaussian, Positive, VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import matching_loss, td_loss, temperature_loss
from vinerl.rl.policies import edited, in_a_row
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec, rows


@dataclass(frozen=True)
class QamConfig(AgentConfig):
    """QAM, QAM-FQL and QAM-EDIT as their authors ran them."""

    head: Literal["none", "onestep", "edit"] = "none"  # what acts on top of the fast flow
    inv_temp: float = 3.0  # how strongly Q pulls, tuned per domain
    alpha: float = 30.0  # onestep: distillation weight, tuned per domain
    edit_scale: float = 0.1  # edit: largest edit, tuned per domain
    entropy_per_dim: float = -0.5  # edit: wanted of it
    flow_steps: int = 10  # K, steps from noise to action
    last_step: Literal["ode", "sde"] = "ode"  # of the slow flow's ODE, or of the fast one's SDE
    max_grad_norm: float = 1.0  # over all networks together


def make_qam(cfg: QamConfig, spec: Spec) -> Agent:
    fields = [VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype) for _ in range(3)]
    slow, fast, onestep = fields
    editor = Gaussian(cfg.actor_hidden, spec.action_dim, cfg.dtype)
    critic, temperature = make_critic(cfg), Positive()

    def decode(params, obs, noise):
        velocity = fast.at(params["fast"], obs)
        action = samplers.transport(velocity, noise, cfg.flow_steps, unroll=in_a_row())
        return jnp.clip(action, -1, 1)

    def policy(state):
        roles = {"none": ("fast",), "onestep": ("onestep",), "edit": ("fast", "editor")}
        return {role: state.params[role] for role in roles[cfg.head]}

    def act(policy, obs, key):
        key_noise, key_edit = jax.random.split(key)
        noise = jax.random.normal(key_noise, (rows(obs), spec.action_dim))
        if cfg.head == "onestep":
            return jnp.clip(onestep.apply(policy["onestep"], obs, noise), -1, 1)
        action = decode(policy, obs, noise)
        if cfg.head == "edit":
            return edited(editor, policy["editor"], obs, action, cfg.edit_scale, key_edit)[0]
        return action

    def adjoint_loss(params, state, batch, key):
        """Roll the fast flow's SDE, carry dQ/da back along it, regress the fast flow on that."""
        base = slow.at(state.targets["slow"], batch.obs)
        noises = jax.random.normal(key, (cfg.flow_steps + 1, *batch.action.shape))
        held = fast.at(state.params["fast"], batch.obs)
        roll = adjoint.ROLLS[cfg.last_step]
        path = roll(held, base, noises, unroll=in_a_row())
        value = lambda a: critic.apply(state.targets["critic"], batch.obs, jnp.clip(a, -1, 1))
        pull = -cfg.inv_temp * jax.grad(lambda a: value(a).mean(axis=0).sum())(path[-1])
        return adjoint.matching_loss(fast.at(params["fast"], batch.obs), base, path, pull)

    def head_loss(params, state, batch, key):
        """Of what acts on top; the fast flow and the critic are held constant."""
        key_noise, key_edit = jax.random.split(key)
        noise = jax.random.normal(key_noise, batch.action.shape)
        q_of = lambda action: critic.apply(state.params["critic"], batch.obs, action).mean()
        if cfg.head == "onestep":
            action = onestep.apply(params["onestep"], batch.obs, noise)
            distill = jnp.mean((action - decode(state.params, batch.obs, noise)) ** 2)
            return cfg.alpha * distill - q_of(jnp.clip(action, -1, 1))
        flown = decode(state.params, batch.obs, noise)
        inputs = (batch.obs, flown, cfg.edit_scale, key_edit)
        action, log_prob = edited(editor, params["editor"], *inputs)
        heat = temperature.apply(state.params["temperature"])
        learned = temperature.apply(params["temperature"])
        tuning = temperature_loss(learned, log_prob, cfg.entropy_per_dim * spec.action_dim)
        return jnp.mean(heat * log_prob) - q_of(action) + tuning

    def loss(params, state, batch, key):
        key_next, key_match, key_adjoint, key_head = jax.random.split(key, 4)

        next_action = act(state.params, batch.next_obs, key_next)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        matching = matching_loss(slow.at(params["slow"], batch.obs), batch, key_match)
        tuned = adjoint_loss(params, state, batch, key_adjoint)
        total = critic_loss + matching + tuned
        if cfg.head != "none":
            total += head_loss(params, state, batch, key_head)
        return total, metrics | {"actor/matching": matching, "actor/adjoint": tuned}

    networks = {
        "slow": (slow, (spec.obs, spec.action, TIME)),
        "fast": (fast, (spec.obs, spec.action, TIME)),
        "critic": (critic, (spec.obs, spec.action)),
    }
    if cfg.head == "onestep":
        networks["onestep"] = (onestep, (spec.obs, spec.action))
    if cfg.head == "edit":
        networks["editor"] = (editor, (spec.obs, spec.action))
        networks["temperature"] = (temperature, ())
    return Agent(cfg, networks, ("critic", "slow"), loss, policy, act)
