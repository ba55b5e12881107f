"""The memoryless SDE and its lean adjoint, where both are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinerl.flow import adjoint, samplers

K, B, A = 5, 3, 2
H = 1 / K
TIMES = np.arange(K) / K
SIGMA = np.sqrt(2 * (1 - TIMES + H) / (TIMES + H))
NOISES = np.random.default_rng(0).normal(size=(K + 1, B, A)).astype(np.float32)
MATRIX = np.array([[0.3, -0.2], [0.5, 0.1]])
linear = lambda x, t: x @ MATRIX.T + 0 * t
nothing = lambda x, t: 0 * x


def test_the_sde_by_hand_and_its_last_step_is_the_other_fields():
    tuned, base = (lambda x, t: 0.7 * x + t), (lambda x, t: -0.4 * x)
    path = adjoint.roll(tuned, base, jnp.array(NOISES))
    x = NOISES[0].astype(float)
    np.testing.assert_allclose(path[0], x)
    for i in range(K - 1):
        t = TIMES[i]
        drift = 2 * (0.7 * x + t) - x / (t + H)
        x = x + H * drift + np.sqrt(H) * SIGMA[i] * NOISES[i + 1]
        np.testing.assert_allclose(path[i + 1], x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(path[K], x + H * (-0.4 * x), rtol=1e-5, atol=1e-5)


def test_the_sde_can_go_to_the_end_with_the_tuned_field():
    tuned, base = (lambda x, t: 0.7 * x + t), (lambda x, t: -0.4 * x)
    ode, sde = (adjoint.ROLLS[last](tuned, base, jnp.array(NOISES)) for last in ("ode", "sde"))
    np.testing.assert_array_equal(sde[:-1], ode[:-1])
    x, t = np.asarray(sde[-2]), TIMES[-1]
    last = x + H * (2 * (0.7 * x + t) - x / (t + H)) + np.sqrt(H) * SIGMA[-1] * NOISES[-1]
    np.testing.assert_allclose(sde[-1], last, rtol=1e-5, atol=1e-5)


def test_the_sde_keeps_the_marginals_of_the_flow():
    """For the field of N(0, 1) to N(0, 1), x_t stays Gaussian with variance t^2 + (1 - t)^2 up to
    the order of the step; at the end it is 1."""
    steps, count = 400, 40_000
    field = lambda x, t: (2 * t - 1) / (t**2 + (1 - t) ** 2) * x
    noises = jax.random.normal(jax.random.key(0), (steps + 1, count, 1))
    path = samplers.trace(samplers.sde_step, field, noises, samplers.grid(steps))
    for i in (steps // 2, 3 * steps // 4, steps):
        t = i / steps
        assert float(path[i].var()) == pytest.approx(t**2 + (1 - t) ** 2, rel=0.05)


def test_without_a_base_the_adjoint_shrinks_with_time():
    """J = -1 / (t + h), so every step back multiplies by t / (t + h), which telescopes to t_i."""
    terminal = jnp.ones((B, A)) * 3.0
    carried = adjoint.lean_adjoints(nothing, jnp.array(NOISES), terminal)
    np.testing.assert_allclose(carried, 3.0 * TIMES[:, None, None] * np.ones((K, B, A)), atol=1e-5)


def test_the_adjoint_of_a_linear_base_and_a_quadratic_value():
    """g_K = -c dQ/dx for Q = -|x|^2 / 2, then g_i = g_{i+1} + h (2 M - 1 / (t + h))^T g_{i+1}."""
    path = jnp.array(NOISES)
    pull = -2.5 * jax.grad(lambda a: jnp.sum(-(a**2) / 2))(path[-1])
    carried = adjoint.lean_adjoints(linear, path, pull)
    g = 2.5 * NOISES[-1].astype(float)
    for i in reversed(range(K)):
        jacobian = 2 * MATRIX - np.eye(A) / (TIMES[i] + H)
        g = g + H * g @ jacobian
        np.testing.assert_allclose(carried[i], g, rtol=1e-4, atol=1e-5)


def test_the_base_is_asked_half_a_step_ahead():
    """Where the base is t x, the Jacobian holds t_i + h."""
    carried = adjoint.lean_adjoints(lambda x, t: t * x, jnp.array(NOISES), jnp.ones((B, A)))
    g = 1.0
    for i in reversed(range(K)):
        g = g * (1 + H * (2 * (TIMES[i] + H) - 1 / (TIMES[i] + H)))
        np.testing.assert_allclose(carried[i], g, rtol=1e-4, atol=1e-6)


def test_matching_is_zero_exactly_where_the_adjoints_point():
    """2 (f - b) / sigma + sigma g = 0 for f = b - sigma^2 g / 2; with no base g_i = t_i g_K."""
    path, terminal = jnp.array(NOISES), jnp.full((B, A), 0.8)
    sigma = lambda t: jnp.sqrt(2 * (1 - t + H) / (t + H))
    wanted = lambda x, t: -(sigma(t) ** 2) * t * 0.8 / 2 * jnp.ones_like(x)
    assert float(adjoint.matching_loss(wanted, nothing, path, terminal)) < 1e-9
    off = lambda x, t: wanted(x, t) + 0.5
    expected = A * np.sum((2 * 0.5 / SIGMA) ** 2)
    got = float(adjoint.matching_loss(off, nothing, path, terminal))
    assert got == pytest.approx(expected, rel=1e-5)


def test_chunks_cost_what_their_coordinates_in_a_row_do():
    """As many rows as steps, and coordinates that mix."""
    draw = np.random.default_rng(1)
    path = draw.normal(size=(K + 1, K, 6)).astype(np.float32)
    terminal, mix = path[-1], draw.normal(size=(6, 6)).astype(np.float32)
    tuned, base = (lambda x, t, s=s: jnp.tanh(s * x @ mix + t) for s in (0.5, 0.3))
    chunked = lambda field: lambda x, t: field(x.reshape(K, 6), t).reshape(x.shape)
    pair, chunks = (chunked(tuned), chunked(base)), path.reshape(K + 1, K, 3, 2)
    cost = adjoint.control_cost(*pair, chunks)
    np.testing.assert_allclose(cost, adjoint.control_cost(tuned, base, path), rtol=1e-5)
    loss = adjoint.matching_loss(*pair, chunks, terminal.reshape(K, 3, 2))
    known = adjoint.matching_loss(tuned, base, path, terminal)
    np.testing.assert_allclose(loss, known, rtol=1e-5)


def test_the_control_cost_counts_all_steps_but_the_last():
    shifted = lambda x, t: linear(x, t) + 0.5
    got = float(adjoint.control_cost(shifted, linear, jnp.array(NOISES)))
    assert got == pytest.approx(A * np.sum(2 * 0.25 / SIGMA[:-1] ** 2), rel=1e-5)
