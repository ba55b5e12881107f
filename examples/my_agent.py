"""An algorithm in a file of its own: cloning by flow matching, with actions that are kept small.

vinerl train examples/my_agent.py:MINE --agent.weight 0.1,1,10 --seeds 0,1,2
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from vinerl.flow import samplers
from vinerl.nets.actors import VelocityField
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.rl.losses import matching_loss
from vinerl.rl.policies import flow_policy
from vinerl.types import TIME, Spec


@dataclass(frozen=True)
class MyConfig(AgentConfig):
    """Cloning that spares effort. A comment behind a field is its text in --help."""

    weight: float = 0.1  # of the effort; several values are trained side by side, as of any float
    flow_steps: int = 10  # K, steps from noise to action


def make_my(cfg: MyConfig, spec: Spec) -> Agent:
    flow = VelocityField(cfg.actor_hidden, spec.action_dim, dtype=cfg.dtype)
    draw = flow_policy(flow, samplers.euler_step, cfg.flow_steps)

    def policy(state):
        return {"flow": state.params["flow"]}

    def act(policy, obs, key):
        return jnp.clip(draw(policy["flow"], obs, key), -1, 1)

    def loss(params, state, batch, key):
        key_match, key_draw = jax.random.split(key)
        matching = matching_loss(flow.at(params["flow"], batch.obs), batch, key_match)
        # Its gradient flows back through all K steps, as that of a value would.
        effort = jnp.mean(draw(params["flow"], batch.obs, key_draw) ** 2)
        metrics = {"actor/loss": matching, "actor/effort": effort}
        return matching + cfg.weight * effort, metrics

    networks = {"flow": (flow, (spec.obs, spec.action, TIME))}
    return Agent(cfg, networks, (), loss, policy, act)


MINE = (MyConfig(), make_my)
