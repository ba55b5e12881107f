"""Terms that several algorithms share, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinerl.rl import losses
from vinerl.types import Batch


def test_td_loss_by_hand():
    """Two critics, two rows, the second of which crosses an end."""
    zeros = jnp.zeros((2, 1))
    batch = Batch(
        zeros, zeros, jnp.array([1.0, 5.0]), jnp.array([0.5, 0.5]), zeros, jnp.array([1.0, 0.0])
    )
    qs = jnp.array([[3.0, 9.0], [1.0, 9.0]])
    loss, metrics = losses.td_loss(qs, batch, jnp.array([2.0, 2.0]))
    assert float(loss) == pytest.approx(((3 - 2) ** 2 + (1 - 2) ** 2) / 4)
    assert float(metrics["critic/q_max"]) == 9.0


def test_the_expectile_minimiser():
    """kappa of the mass-weighted error above: for {0, 1} it is kappa itself."""
    grid = jnp.linspace(0, 1, 1001)
    for kappa in (0.5, 0.7, 0.95):
        total = losses.expectile(0.0 - grid, kappa) + losses.expectile(1.0 - grid, kappa)
        assert float(grid[jnp.argmin(total)]) == pytest.approx(kappa, abs=1e-3)


def test_linex_values_and_gradients_on_both_sides_of_its_limit():
    """exp(d) + c p up to d = 5 and d beyond, for d = c (q - p)."""
    linex = lambda p: losses.linex(p, jnp.float32(1.0), 10.0)
    below, above = jnp.float32(0.8), jnp.float32(0.2)  # d = 2 and 8
    assert float(linex(below)) == pytest.approx(np.exp(2) + 8, rel=1e-5)
    assert float(linex(above)) == pytest.approx(8, rel=1e-5)
    assert float(jax.grad(linex)(below)) == pytest.approx(-10 * (np.exp(2) - 1), rel=1e-4)
    assert float(jax.grad(linex)(above)) == pytest.approx(-10, rel=1e-5)
    assert np.isfinite(jax.grad(linex)(jnp.float32(-1e3)))


def test_the_temperature_falls_while_there_is_more_entropy_than_wanted():
    log_prob = jnp.array([-3.0, -1.0])
    gradient = jax.grad(lambda t: losses.temperature_loss(t, log_prob, -0.5))
    assert float(gradient(jnp.float32(0.7))) == pytest.approx(2.0 + 0.5)
    to_log = jax.grad(lambda x: losses.temperature_loss(jnp.float32(1.0), x, -0.5))
    assert float(jnp.abs(to_log(log_prob)).max()) == 0, "the policy is not moved by it"


def test_flow_matching_leaves_out_what_crosses_an_end():
    action, zeros = jnp.array([[0.5, -0.5], [9.0, 9.0]]), jnp.zeros((2, 1))
    batch = lambda w: Batch(zeros, action, zeros[:, 0], zeros[:, 0], zeros, jnp.array(w))
    still = lambda x, t: jnp.zeros_like(x)
    key = jax.random.key(0)
    both, one = (
        float(losses.matching_loss(still, batch(w), key)) for w in ([1.0, 1.0], [1.0, 0.0])
    )
    key_noise, _ = jax.random.split(key)
    noise = jax.random.normal(key_noise, action.shape)
    errors = np.mean((np.asarray(action) - np.asarray(noise)) ** 2, axis=1)
    assert both == pytest.approx(errors.mean(), rel=1e-5)
    assert one == pytest.approx(errors[0] / 2, rel=1e-5)
