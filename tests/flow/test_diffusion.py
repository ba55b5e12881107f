"""Diffusion on K levels against numbers made by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinerl.flow import diffusion, samplers

K = 10
SCHEDULE = diffusion.vp_schedule(K)
BETA = 1 - SCHEDULE.alpha


def test_the_schedule_integrates_beta_from_a_tenth_to_ten():
    """alpha_i = exp(-(integral of 0.1 + 9.9 t over the i-th of K intervals))."""
    edges = np.linspace(0, 1, K + 1)
    integral = 0.1 * edges + 9.9 * edges**2 / 2
    np.testing.assert_allclose(SCHEDULE.alpha_bar, np.exp(-integral), rtol=1e-5)
    np.testing.assert_allclose(SCHEDULE.alpha[1:], np.exp(-np.diff(integral)), rtol=1e-5)
    assert SCHEDULE.alpha[0] == SCHEDULE.alpha_bar[0] == 1
    np.testing.assert_allclose(SCHEDULE.alpha_bar[-1], np.exp(-5.05), rtol=1e-5)


def test_levels_go_down_to_the_clean_action():
    assert diffusion.levels(3).tolist() == [3, 2, 1, 0]


def test_taking_the_true_noise_away_undoes_adding_it():
    key_action, key_noise = jax.random.split(jax.random.key(0))
    action, noise = (jax.random.normal(k, (K, 2)) for k in (key_action, key_noise))
    i = jnp.arange(1, K + 1)
    x = diffusion.add_noise(SCHEDULE, action, noise, i)
    for n in range(K):
        back = diffusion.clean(SCHEDULE, lambda x, i, n=n: noise[n], x[n], i[n])
        np.testing.assert_allclose(back, action[n], rtol=1e-3, atol=1e-4)


def test_noised_actions_keep_unit_variance():
    key_action, key_noise = jax.random.split(jax.random.key(0))
    action, noise = (jax.random.normal(k, (100_000, 1)) for k in (key_action, key_noise))
    for i in (1, 5, 10):
        x = diffusion.add_noise(SCHEDULE, action, noise, jnp.full(100_000, i))
        np.testing.assert_allclose(x.std(), 1.0, rtol=0.01)


def knows(action):
    """A field that finds the noise in x, because it knows the action."""
    bar = SCHEDULE.alpha_bar
    return lambda x, i: (x - jnp.sqrt(bar[i]) * action) / jnp.sqrt(1 - bar[i])


def test_the_true_noise_leads_to_the_action():
    step, times = diffusion.ddpm_step(SCHEDULE), diffusion.levels(K)
    drawn = samplers.sample(step, knows(0.6), jax.random.key(0), (4, 2), times=times)
    np.testing.assert_allclose(drawn, 0.6, atol=1e-4)


@pytest.mark.parametrize("i", [2, 5, 10])
def test_a_step_goes_to_the_posterior_mean_and_adds_noise(i):
    """x_{i-1} given the action has N(sqrt(bar) a, 1 - bar); x_i given it N(sqrt(alpha) ., beta)."""
    action, x, noise = 0.6, jnp.array([[0.3, -1.2]]), jnp.array([[0.5, -2.0]])
    bar, alpha, beta = SCHEDULE.alpha_bar[i - 1], SCHEDULE.alpha[i], BETA[i]
    precision = 1 / (1 - bar) + alpha / beta
    mean = (jnp.sqrt(bar) * action / (1 - bar) + jnp.sqrt(alpha) * x / beta) / precision
    after = diffusion.ddpm_step(SCHEDULE)(knows(action), noise, x, jnp.array(i), jnp.array(i - 1))
    np.testing.assert_allclose(after, mean + jnp.sqrt(beta) * noise, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("action", "expected"), [(0.6, 0.6), (1.7, 1.0), (-3.0, -1.0)])
def test_the_last_step_returns_the_clipped_estimate_without_noise(action, expected):
    x, noise = jnp.array([[0.3, -1.2]]), jnp.array([[0.5, -2.0]])
    step = diffusion.ddpm_step(SCHEDULE)
    after = step(knows(action), noise, x, jnp.array(1), jnp.array(0))
    np.testing.assert_allclose(after, expected, atol=1e-5)


@pytest.mark.parametrize("i", [1, 2, 5, 10])
def test_inside_the_box_the_published_rule_is_the_posterior_mean_too(i):
    """Of an estimate that no clip changes, ddpm's and the ancestral rule make the same step."""
    x, noise = jnp.array([[0.3, -0.2]]), jnp.array([[0.1, -0.1]])
    steps = (diffusion.STEPS[name](SCHEDULE) for name in ("ddpm", "ancestral"))
    ddpm, ancestral = (s(knows(0.1), noise, x, jnp.array(i), jnp.array(i - 1)) for s in steps)
    np.testing.assert_allclose(ancestral, ddpm, rtol=1e-4, atol=1e-5)


def test_the_published_rule_clips_what_it_has_made_and_not_the_estimate():
    x, far, noise = jnp.array([[0.3, 0.3]]), jnp.array([[-3.0, 3.0]]), jnp.array([[0.1, -0.1]])
    step = lambda name: diffusion.STEPS[name](SCHEDULE)
    made = step("ancestral")(knows(far), noise, x, jnp.array(2), jnp.array(1))
    held = step("ddpm")(knows(far), noise, x, jnp.array(2), jnp.array(1))
    np.testing.assert_allclose(made, [[-1, 1]])
    assert jnp.abs(held).max() < 1
