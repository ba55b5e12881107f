"""FEdit: a Gaussian edit of a behaviour flow's action (the policy part of EXPO)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.nets.actors import Gaussian, Positive, VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import matching_loss, td_loss, temperature_loss
from vinerl.rl.policies import best_of, edited, flow_policy, in_a_row
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class FeditConfig(AgentConfig):
    """FEdit as QAM's authors ran it."""

    edit_scale: float = 0.2  # largest edit, tuned per domain
    entropy_per_dim: float = -0.5  # wanted of the edit
    draws: int = 1  # edited actions to choose from; EXPO has several
    flow_steps: int = 10  # K, steps from noise to action


def make_fedit(cfg: FeditConfig, spec: Spec) -> Agent:
    flow = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    editor = Gaussian(cfg.actor_hidden, spec.action_dim, cfg.dtype)
    critic, temperature = make_critic(cfg), Positive()
    behaviour = flow_policy(flow, samplers.euler_step, cfg.flow_steps, unroll=in_a_row())

    def draw(flow_params, editor_params, obs, key):
        key_flow, key_edit = jax.random.split(key)
        action = jnp.clip(behaviour(flow_params, obs, key_flow), -1, 1)
        return edited(editor, editor_params, obs, action, cfg.edit_scale, key_edit)

    def policy(state):
        roles = ("flow", "editor") if cfg.draws == 1 else ("flow", "editor", "critic")
        return {role: state.params[role] for role in roles}

    def act(policy, obs, key):
        one = lambda policy, obs, key: draw(policy["flow"], policy["editor"], obs, key)[0]
        score = lambda obs, action: critic.apply(policy["critic"], obs, action).mean(axis=0)
        return best_of(cfg.draws, one, score)(policy, obs, key)

    def loss(params, state, batch, key):
        key_next, key_match, key_edit = jax.random.split(key, 3)

        next_action = act(state.params, batch.next_obs, key_next)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        matching = matching_loss(flow.at(params["flow"], batch.obs), batch, key_match)

        action, log_prob = draw(state.params["flow"], params["editor"], batch.obs, key_edit)
        q = critic.apply(state.params["critic"], batch.obs, action).mean()
        edit_loss = jnp.mean(temperature.apply(state.params["temperature"]) * log_prob) - q
        learned = temperature.apply(params["temperature"])
        tuning = temperature_loss(learned, log_prob, cfg.entropy_per_dim * spec.action_dim)

        metrics |= {"actor/matching": matching, "actor/q": q}
        return critic_loss + matching + edit_loss + tuning, metrics

    networks = {
        "flow": (flow, (spec.obs, spec.action, TIME)),
        "editor": (editor, (spec.obs, spec.action)),
        "critic": (critic, (spec.obs, spec.action)),
        "temperature": (temperature, ()),
    }
    return Agent(cfg, networks, ("critic",), loss, policy, act)
