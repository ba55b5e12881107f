"""Loss terms that more than one algorithm uses."""

import jax.numpy as jnp

from vinerl.types import Array, Batch, Metrics


def td_loss(qs: Array, batch: Batch, next_value: Array) -> tuple[Array, Metrics]:
    """Squared Bellman error of every critic, qs [E, B]."""
    target = batch.reward + batch.discount * next_value
    loss = jnp.mean(batch.weight * (qs - target) ** 2)
    return loss, {"critic/loss": loss, "critic/q": qs.mean(), "critic/q_max": qs.max()}
