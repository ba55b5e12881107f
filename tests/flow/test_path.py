"""The straight path, and the paper's theorem: the best field points at the posterior mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinerl.flow.path import endpoint, interpolate, matching_error

# Mixtures of Gaussians: weights, means, one standard deviation.
GAUSSIAN = ([1.0], [0.4], 0.3)
TWO_MODES = ([0.7, 0.3], [-0.6, 0.8], 0.1)
DATA = pytest.mark.parametrize("data", [GAUSSIAN, TWO_MODES], ids=["gaussian", "two modes"])


def density(x, mean, variance):
    return np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(variance)


def optimal_velocity(data, x, t):
    """E[a - z | x_t = x], which minimises flow matching, as an integral over the actions."""
    weights, means, std = data
    a = np.linspace(-3, 3, 20_001)[:, None]
    prior = sum(w * density(a, m, std**2) for w, m in zip(weights, means, strict=True))
    joint = prior * density(x, t * a, (1 - t) ** 2)
    z = (x - t * a) / (1 - t)
    return (joint * (a - z)).sum(axis=0) / joint.sum(axis=0)


def posterior_mean(data, x, t):
    """E[a | x_t = x]: every mode's own, weighted by how likely x is from it."""
    weights, means, std = data
    variance = t**2 * std**2 + (1 - t) ** 2
    share = np.stack([w * density(x, t * m, variance) for w, m in zip(weights, means, strict=True)])
    own = np.stack([(t * std**2 * x + (1 - t) ** 2 * m) / variance for m in means])
    return (share * own).sum(axis=0) / share.sum(axis=0)


@DATA
@pytest.mark.parametrize("t", [0.05, 0.3, 0.7, 0.9])
def test_the_endpoint_of_the_optimal_field_is_the_posterior_mean(data, t):
    """At any x, however it came about (theorem 1)."""
    x = np.linspace(-2, 2, 41)
    ahead = endpoint(lambda x, t: optimal_velocity(data, np.asarray(x), t), jnp.asarray(x), t)
    np.testing.assert_allclose(ahead, posterior_mean(data, x, t), atol=1e-5)


def test_the_path_runs_from_noise_to_action():
    noise, action = jnp.array([[1.0, -2.0]]), jnp.array([[0.5, 4.0]])
    assert jnp.array_equal(interpolate(noise, action, 0.0), noise)
    assert jnp.array_equal(interpolate(noise, action, 1.0), action)
    assert jnp.allclose(interpolate(noise, action, 0.25), jnp.array([[0.875, -0.5]]))


@pytest.mark.parametrize(("shift", "std"), [(0.0, 0.3), (0.0, 1.0), (0.5, 0.3)])
def test_the_least_flow_matching_error_of_gaussian_data(shift, std):
    """The targets' variance given x_t is s^2 / (t^2 s^2 + (1 - t)^2); over t that is pi s / 2.
    A field that is off by a constant pays its square on top."""
    mean, batch = 0.4, 400_000
    key_data, key_error = jax.random.split(jax.random.key(0))
    action = mean + std * jax.random.normal(key_data, (batch, 1))

    def velocity(x, t):
        ahead = (t * std**2 * x + (1 - t) ** 2 * mean) / (t**2 * std**2 + (1 - t) ** 2)
        return (ahead - x) / (1 - t) + shift

    error = matching_error(velocity, action, key_error)
    assert error.shape == (batch,)
    np.testing.assert_allclose(error.mean(), np.pi / 2 * std + shift**2, rtol=0.01)


@pytest.mark.parametrize("shape", [(), (6,), (3, 2), (2, 1, 3)], ids=str)
def test_a_chunk_has_one_time_and_the_error_of_its_coordinates_in_a_row(shape):
    """The field mixes all coordinates of a row, and its time with them."""
    draw = np.random.default_rng(0)
    action = draw.normal(size=(5, *shape)).astype(np.float32)
    row = action.reshape(5, -1)
    mix = draw.normal(size=(row.shape[1], row.shape[1])).astype(np.float32)
    flat = lambda x, t: jnp.tanh(x @ mix + 3 * t)
    whole = lambda x, t: flat(x.reshape(row.shape), t.reshape(5, 1)).reshape(x.shape)
    error = matching_error(whole, action, jax.random.key(0))
    known = matching_error(flat, row, jax.random.key(0))
    assert error.shape == (5,)
    np.testing.assert_allclose(error, known, rtol=1e-6)


def test_the_error_is_a_mean_over_coordinates():
    """With v = 0 it is E (a - z)^2 = a^2 + 1 in each of them."""
    action = jnp.broadcast_to(jnp.array([0.0, 1.0, 2.0]), (200_000, 3))
    error = matching_error(lambda x, t: 0 * x, action, jax.random.key(0))
    np.testing.assert_allclose(error.mean(), np.mean([1.0, 2.0, 5.0]), rtol=0.01)
