"""Ways to turn networks into actions."""

from collections.abc import Callable

import jax

from vinerl.flow import samplers
from vinerl.nets.actors import VelocityField
from vinerl.types import Array, Key, Obs, Params, Scalar, rows

Draw = Callable[[Params, Obs, Key], Array]  # (params, obs [B, ...], key) -> action [B, A]


def flow_policy(field: VelocityField, step: samplers.Step, steps: int, **options) -> Draw:
    """Actions by running `step` on `field` from fresh noise; `options` are those of `sample`."""

    def draw(params, obs, key):
        velocity = field.at(params, obs)
        return samplers.sample(step, velocity, key, (rows(obs), field.dim), steps, **options)

    return draw


def spread(draw: Draw, params: Params, obs: Obs, key: Key, draws: int = 8) -> Scalar:
    """Standard deviation of the actions drawn for one state, over all states and coordinates."""
    actions = jax.vmap(draw, (None, None, 0))(params, obs, jax.random.split(key, draws))
    return actions.std(axis=0, ddof=1).mean()
