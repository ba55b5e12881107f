"""Ways to turn networks into actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from vinerl.nets.actors import Gaussian, NoisePredictor, mish
from vinerl.rl.policies import best_of, edited, tanh_gaussian

OBS = jnp.zeros((4, 3))


def draw(params, obs, key):
    return jax.random.uniform(key, (len(obs), 2), minval=-1, maxval=1)


def test_the_best_of_one_is_plain_drawing_bit_for_bit():
    key = jax.random.key(3)
    chosen = best_of(1, draw, lambda obs, a: -a.sum(axis=-1))({}, OBS, key)
    assert jnp.array_equal(chosen, draw({}, OBS, key))


def test_the_best_of_n_is_the_best_of_its_draws():
    key, score = jax.random.key(4), lambda obs, a: a.sum(axis=-1)
    chosen = best_of(16, draw, score)({}, OBS, key)
    every = np.stack([draw({}, OBS, k) for k in jax.random.split(key, 16)])
    np.testing.assert_allclose(chosen.sum(axis=-1), every.sum(axis=-1).max(axis=0), rtol=1e-6)


def test_the_chosen_value_rises_with_n():
    score = lambda obs, a: a.sum(axis=-1)
    obs = jnp.zeros((2000, 3))
    means = [
        float(score(obs, best_of(n, draw, score)({}, obs, jax.random.key(n))).mean())
        for n in (1, 4, 16, 64)
    ]
    assert means == sorted(means)
    assert means[0] == pytest.approx(0, abs=0.06)
    assert means[3] > 1.5


def test_the_density_of_a_squashed_gaussian():
    mean, log_std = jnp.array([[0.3, -0.5]]), jnp.array([[-0.7, 0.2]])
    action, log_prob = tanh_gaussian((mean, log_std), jax.random.key(0))
    raw = np.arctanh(np.asarray(action, float))
    expected = stats.norm.logpdf(raw, mean, np.exp(log_std)) - np.log(1 - np.tanh(raw) ** 2)
    assert float(log_prob[0]) == pytest.approx(expected.sum(), abs=1e-4)


def test_the_density_stays_finite_where_the_action_is_saturated():
    _, log_prob = tanh_gaussian((jnp.array([[30.0, -30.0]]), jnp.zeros((1, 2))), jax.random.key(0))
    assert jnp.isfinite(log_prob).all()


def test_an_edit_is_bounded_and_stays_in_the_box():
    editor = Gaussian((8,), 2)
    action = jnp.array([[0.95, -0.95]] * 4)
    params = editor.init(jax.random.key(0), OBS, action)
    params = jax.tree.map(lambda x: 50 * x + 1, params)
    moved, log_prob = edited(editor, params, OBS, action, 0.2, jax.random.key(1))
    assert jnp.abs(moved).max() <= 1
    assert jnp.abs(moved - action).max() <= 0.2 + 1e-6
    assert log_prob.shape == (4,)


def test_the_noise_predictor_knows_the_level_through_its_frequencies():
    """Levels that differ by a whole turn of every frequency cannot be told apart."""
    net = NoisePredictor((16, 16), 2, frequencies=4)
    x = jnp.ones((4, 2))
    params = net.init(jax.random.key(0), OBS, x, jnp.ones((4, 1)))
    at = lambda params, i: net.apply(params, OBS, x, jnp.full((4, 1), i))
    assert not jnp.allclose(at(params, 1), at(params, 3))
    whole = {"params": params["params"] | {"rates": jnp.ones((1, 4))}}
    np.testing.assert_allclose(at(whole, 1), at(whole, 3), atol=1e-4)


def test_mish_by_hand():
    x = np.array([-2.0, 0.0, 1.5])
    np.testing.assert_allclose(mish(jnp.array(x)), x * np.tanh(np.log1p(np.exp(x))), rtol=1e-5)
