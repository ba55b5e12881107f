"""Loss terms that more than one algorithm uses."""

import jax
import jax.numpy as jnp

from vinerl.flow.path import matching_error
from vinerl.types import Array, Batch, Key, Metrics, Scalar, Velocity


def td_loss(qs: Array, batch: Batch, next_value: Array) -> tuple[Array, Metrics]:
    """Squared Bellman error of every critic, qs [E, B]."""
    target = batch.reward + batch.discount * next_value
    loss = jnp.mean(batch.weight * (qs - target) ** 2)
    return loss, {"critic/loss": loss, "critic/q": qs.mean(), "critic/q_max": qs.max()}


def matching_loss(velocity: Velocity, batch: Batch, key: Key) -> Array:
    """Behaviour cloning of a flow: conditional flow matching on the data's actions."""
    return jnp.mean(batch.weight * matching_error(velocity, batch.action, key))


def expectile(error: Array, kappa: Scalar) -> Array:
    """A squared error that counts kappa above and 1 - kappa below."""
    return jnp.where(error >= 0, kappa, 1 - kappa) * error**2


def temperature_loss(temperature: Array, log_prob: Array, target_entropy: Scalar) -> Array:
    """Falls while there is more entropy than wanted."""
    return temperature * (-jax.lax.stop_gradient(log_prob).mean() - target_entropy)


def linex(predicted: Array, wanted: Array, inv_temp: Scalar, limit: float = 5.0) -> Array:
    """Least where inv_temp * predicted = log E exp(inv_temp * wanted); linear past `limit`."""
    error = inv_temp * (wanted - predicted)
    bounded = jnp.minimum(error, limit)
    return jnp.where(error > limit, error, jnp.exp(bounded) + inv_temp * predicted)
