"""VINE: value gradients through a re-noising sampler."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from vinerl.flow import samplers
from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import matching_loss, td_loss
from vinerl.rl.policies import flow_policy, in_a_row, spread
from vinerl.rl.values import make_critic, target_value
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class VineConfig(AgentConfig):
    """VINE as published, and the switches that take it apart."""

    alpha: float = 10.0  # weight of the regulariser, tuned per domain
    flow_steps: int = 10  # K, steps from noise to action
    sampler: Literal["vine", "euler"] = "vine"  # how noise becomes an action
    noise: float = 1.0  # scale of the sampler's noise; 0 acts without any
    stop_at: int | None = None  # act with the estimate after this many steps; learning uses all
    # what holds actions to the data: distance of the action, of all estimates, flow matching, or
    # distance to a cloned policy on the same noise
    regulariser: Literal["endpoint", "estimates", "flow", "teacher"] = "endpoint"
    actor_layer_norm: bool = False  # LayerNorm in the velocity field
    batch_size: int = 512  # transitions in a gradient step
    discount: float = 0.995  # gamma, per environment step
    critics: int = 2  # the target takes their minimum, the actor their mean
    critic: Literal["mlp", "residual"] = "residual"  # a plain stack of layers, or branches
    target: Literal["std", "min"] = "min"  # of the critics: mean less rho std, or minimum
    unroll: bool | None = None  # compile K steps in a row, no loop; None: unless on a CPU


def make_vine(cfg: VineConfig, spec: Spec) -> Agent:
    actor = VelocityField(cfg.actor_hidden, spec.action_dim, cfg.actor_layer_norm, cfg.dtype)
    critic = make_critic(cfg)
    step, times = samplers.STEPS[cfg.sampler], samplers.grid(cfg.flow_steps)
    estimates = samplers.ESTIMATES[cfg.sampler]
    unroll = in_a_row() if cfg.unroll is None else cfg.unroll
    trace = partial(samplers.trace, step, times=times, unroll=unroll)
    draw = partial(flow_policy, actor, step, cfg.flow_steps, noise=cfg.noise, unroll=unroll)
    draw, whole = draw(stop_at=cfg.stop_at), draw()

    def noise(batch, key):
        return cfg.noise * jax.random.normal(key, (cfg.flow_steps + 1, *batch.action.shape))

    def policy(state):
        return {"actor": state.params["actor"]}

    def act(policy, obs, key):
        return jnp.clip(draw(policy["actor"], obs, key), -1, 1)

    def squared(actions, batch):
        """To the data, on the raw action: a saturated one keeps a gradient. [..., B]"""
        return batch.weight * jnp.mean((actions - batch.action) ** 2, axis=-1)

    def chain_loss(params, batch, noises, path):
        """What the actor minimises through the sampler (Eq. 2), [B]; `params` are constant."""
        q = critic.apply(params["critic"], batch.obs, jnp.clip(path[-1], -1, 1)).mean(axis=0)
        if cfg.regulariser == "flow":
            return -q
        if cfg.regulariser == "teacher":  # the same noise, so a spread like the data's is free
            taught = trace(actor.at(params["teacher"], batch.obs), noises)
            held = jnp.mean((path[-1] - taught[-1]) ** 2, axis=-1)
        elif cfg.regulariser == "estimates":
            held = squared(estimates(path, times), batch).mean(axis=0)
        else:
            held = squared(path[-1], batch)
        return cfg.alpha * held - q

    def flow_loss(params, batch, key):
        """Flow matching: of the actor instead of a term above, or of the teacher."""
        if cfg.regulariser not in ("flow", "teacher"):
            return 0.0
        role, weight = ("actor", cfg.alpha) if cfg.regulariser == "flow" else ("teacher", 1.0)
        return weight * matching_loss(actor.at(params[role], batch.obs), batch, key)

    def loss(params, state, batch, key):
        key_next, key_actor, key_match = jax.random.split(key, 3)

        next_action = jnp.clip(whole(state.params["actor"], batch.next_obs, key_next), -1, 1)
        next_qs = critic.apply(state.targets["critic"], batch.next_obs, next_action)
        qs = critic.apply(params["critic"], batch.obs, batch.action)
        critic_loss, metrics = td_loss(qs, batch, target_value(cfg, next_qs))

        # dQ/da flows back through all K steps into the velocity field.
        noises = noise(batch, key_actor)
        path = trace(actor.at(params["actor"], batch.obs), noises)
        actor_loss = chain_loss(state.params, batch, noises, path).mean()
        matching = flow_loss(params, batch, key_match)

        metrics |= {
            "actor/loss": actor_loss + matching,
            "actor/bc": squared(path[-1], batch).mean(),
            "actor/estimate_max": jnp.abs(estimates(path, times)).max(),
        }
        return critic_loss + actor_loss + matching, metrics

    def diagnose(state, batch, key):
        """The gradient that arrives at every step of the sampler; how far actions spread."""
        key_noise, key_spread = jax.random.split(key)
        noises = noise(batch, key_noise)
        arriving, shares = samplers.step_gradients(
            step,
            lambda params: actor.at(params, batch.obs),
            state.params["actor"],
            noises,
            times,
            lambda path: chain_loss(state.params, batch, noises, path),
        )
        return {
            "grad_norm/step": jnp.linalg.norm(arriving, axis=-1).mean(axis=-1),
            "grad_norm/share": jax.vmap(optax.tree.norm)(shares) / len(batch.action),
            "actor/spread": spread(draw, state.params["actor"], batch.obs, key_spread),
        }

    networks = {
        "actor": (actor, (spec.obs, spec.action, TIME)),
        "critic": (critic, (spec.obs, spec.action)),
    }
    if cfg.regulariser == "teacher":
        networks["teacher"] = networks["actor"]
    return Agent(cfg, networks, ("critic",), loss, policy, act, diagnose)
