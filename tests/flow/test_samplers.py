"""Samplers on fields whose answer is known in closed form (spec 4.1)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import assert_close
from vinerl.flow import samplers

K, MEAN, STD = 10, 0.4, 0.3
UNEVEN = [0.0, 0.02, 0.3, 0.35, 0.8, 1.0]
RULES = pytest.mark.parametrize("name", samplers.STEPS)
ZERO_FIELD = [0, 3.6288e-4, 0.0036288, 0.018144, 0.06048, 0.1512, 0.3024, 0.504, 0.72, 0.9, 1]


def optimal(mean, std):
    """The field that flow matching finds for data from N(mean, std**2)."""

    def velocity(x, t):
        ahead = (t * std**2 * x + (1 - t) ** 2 * mean) / (t**2 * std**2 + (1 - t) ** 2)
        return (ahead - x) / (1 - t)

    return velocity


def noises(dim=1, seed=0, steps=K):
    return jax.random.normal(jax.random.key(seed), (steps + 1, 4, dim))


def path(name, z, times=None, velocity=None):
    times = samplers.grid(K) if times is None else times
    return samplers.trace(samplers.STEPS[name], velocity or optimal(MEAN, STD), z, times)


# Where samplers arrive


@RULES
@pytest.mark.parametrize(
    "times", [np.linspace(0, 1, n + 1) for n in (1, 2, 10, 23)] + [UNEVEN], ids=len
)
def test_a_field_that_points_at_one_action_arrives_there(name, times):
    velocity = lambda x, t: (0.7 - x) / (1 - t)
    z = noises(2, steps=len(times) - 1)
    assert jnp.allclose(path(name, z, jnp.asarray(times), velocity)[-1], 0.7, atol=1e-5)


def variances(name, std):
    """Var(a_k) for k = 0 .. K; the field is linear in x with slope (g - 1) / (1 - t)."""
    known = [1.0]
    for t in np.arange(K) / K:
        g = t * std**2 / (t**2 * std**2 + (1 - t) ** 2)
        if name == "vine":
            known.append(g**2 * (t**2 * known[-1] + (1 - t) ** 2))
        else:
            known.append((1 + (g - 1) / (1 - t) / K) ** 2 * known[-1])
    return np.array(known)


@pytest.mark.parametrize(
    ("name", "std", "ratio"),
    [
        ("vine", 1.0, 0.634),
        ("vine", 0.5, 0.616),
        ("vine", 0.3, 0.597),
        ("vine", 0.1, 0.52),
        ("euler", 1.0, 0.879),
        ("euler", 0.5, 0.862),
        ("euler", 0.3, 0.823),
        ("euler", 0.1, 0.617),
    ],
)
def test_the_mean_of_gaussian_data_is_kept_and_its_spread_shrinks_as_computed(name, std, ratio):
    assert abs(np.sqrt(variances(name, std)[-1]) / std - ratio) < 1e-3
    z = jax.random.normal(jax.random.key(0), (K + 1, 100_000, 1))
    drawn = path(name, z, velocity=optimal(MEAN, std))
    assert_close(drawn.std(axis=(1, 2)), np.sqrt(variances(name, std)), rtol=0.01)
    assert abs(drawn[-1].mean() - MEAN) < 0.01 * std


@RULES
def test_two_narrow_modes_are_kept_with_their_shares(name):
    """The data are two points; at t = 0 the field points at their average."""
    points, shares = jnp.array([-0.6, 0.8]), jnp.array([0.5, 0.5])

    def velocity(x, t):
        logits = jnp.log(shares) - (x - t * points) ** 2 / (2 * (1 - t) ** 2)
        return (jax.nn.softmax(logits) @ points)[:, None] / (1 - t) - x / (1 - t)

    key = jax.random.key(0)
    drawn = samplers.sample(samplers.STEPS[name], velocity, key, (50_000, 1), K)
    left, right = abs(drawn - -0.6) < 0.1, abs(drawn - 0.8) < 0.1
    assert (left | right).mean() > 0.99
    assert abs(left.mean() - 0.5) < 0.02


# What the noise does


def test_vine_forgets_its_start():
    """At t = 0 the estimate is replaced by noise, so the start has no influence."""
    a, b = (path("vine", noises().at[0].set(start)) for start in (-5.0, 5.0))
    assert jnp.array_equal(a[1:], b[1:])


def test_vine_on_a_later_grid_keeps_its_start():
    later = jnp.linspace(0.1, 1, K + 1)
    a, b = (path("vine", noises().at[0].set(start), later) for start in (-5.0, 5.0))
    assert not jnp.allclose(a[1], b[1])


def test_euler_uses_its_start_alone():
    other = noises(seed=1).at[0].set(noises()[0])
    assert jnp.array_equal(path("euler", noises()), path("euler", other))


def test_without_a_field_vine_averages_its_noises():
    """d a_K / d z_k = (1 - t_k) t_{k+1} .. t_{K-1}; the start has no share."""
    still = lambda z: path("vine", z, velocity=lambda x, t: 0 * x)[-1].sum()
    t = np.arange(K) / K
    shares = (1 - t) * np.array([np.prod(t[k + 1 :]) for k in range(K)])
    np.testing.assert_allclose(jax.grad(still)(noises())[:, 0, 0], [0, *shares], rtol=1e-5)
    assert abs(shares.sum() - 1) < 1e-12


def test_without_noise_vine_contracts_to_the_mean():
    """The corollary, on a grid where it says something: the error shrinks by lambda_k a step."""
    times = np.linspace(0.1, 1, K)
    t = times[:-1]
    factors = t**2 * STD**2 / (t**2 * STD**2 + (1 - t) ** 2)
    left = np.cumprod(np.append(1.0, factors))[:, None, None]
    for start in (0.0, 3.0):
        z = jnp.zeros((K, 4, 2)).at[0].set(start)
        errors = path("vine", z, jnp.asarray(times)) - MEAN
        np.testing.assert_allclose(errors, np.tile(left * (start - MEAN), (1, 4, 2)), atol=1e-6)
    assert np.all((factors > 0) & (factors < 1))


def test_on_the_published_grid_one_step_without_noise_is_all():
    """lambda_0 = 0, so the corollary's contraction is over before it begins."""
    quiet = path("vine", jnp.zeros((K + 1, 4, 2)))
    np.testing.assert_allclose(quiet[1:], MEAN, atol=1e-6)


# The options of sample


@RULES
def test_sample_is_the_end_of_a_trace_of_its_own_noise(name):
    step, velocity, key = samplers.STEPS[name], optimal(MEAN, STD), jax.random.key(3)
    sample = lambda **options: samplers.sample(step, velocity, key, (4, 1), **options)
    times = jnp.asarray(UNEVEN)
    drawn = jax.random.normal(key, (len(UNEVEN), 4, 1))
    whole = path(name, drawn, times)
    assert jnp.array_equal(sample(times=times), whole[-1])
    assert jnp.array_equal(sample(times=times, stop_at=2), whole[2])
    assert jnp.array_equal(sample(times=times, noise=0.5), path(name, 0.5 * drawn, times)[-1])
    assert jnp.array_equal(sample(), sample(steps=10))
    assert jnp.array_equal(sample(noise=0.0), path(name, jnp.zeros((K + 1, 4, 1)))[-1])


@RULES
def test_how_a_trace_is_compiled_changes_neither_the_action_nor_its_gradient(name):
    def action(gain, **options):
        velocity = lambda x, t: jnp.tanh(gain * x + t)
        return samplers.sample(
            samplers.STEPS[name], velocity, jax.random.key(0), (4, 2), 5, **options
        ).sum()

    plain = jax.value_and_grad(action)(0.7)
    for options in ({"remat": True}, {"unroll": True}, {"remat": True, "unroll": True}):
        np.testing.assert_allclose(jax.value_and_grad(action)(0.7, **options), plain, rtol=1e-5)


def test_eulers_estimates_are_where_its_steps_were_heading():
    times, velocity = jnp.asarray(UNEVEN), optimal(MEAN, STD)
    drawn = path("euler", noises(2, steps=5), times)
    direct = [x + (1 - t) * velocity(x, t) for x, t in zip(drawn[:-1], times[:-1], strict=True)]
    estimates = samplers.euler_estimates(drawn, times)
    np.testing.assert_allclose(estimates, jnp.stack(direct), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(estimates[-1], drawn[-1], atol=1e-6)


def test_vines_path_is_its_estimates():
    drawn = path("vine", noises(2))
    assert jnp.array_equal(samplers.vine_estimates(drawn, samplers.grid(K)), drawn[1:])


# The gradient at each step


def gradients(name, field, params, z, loss):
    times = samplers.grid(len(z) - 1)
    return samplers.step_gradients(samplers.STEPS[name], field, params, z, times, loss)


@pytest.mark.parametrize(("name", "products"), [("vine", ZERO_FIELD), ("euler", [1.0] * 11)])
def test_gradients_of_the_zero_field_are_products_of_times(name, products):
    """Euler passes d loss / d a_K back unchanged; VINE scales it by t_k at every step."""
    loss = lambda path: 3 * path[-1, :, 0] + 4 * path[-1, :, 1]
    arriving, _ = gradients(name, lambda p: lambda x, t: p * x, 0.0, noises(2), loss)
    assert arriving.shape == (K + 1, 4, 2)
    np.testing.assert_allclose(jnp.linalg.norm(arriving, axis=-1)[:, 0] / 5, products, rtol=1e-5)


def test_gradients_of_the_optimal_gaussian_field_are_products_too():
    """d a_{k+1} / d a_k = t_k g_k, the corollary's factor."""
    t = np.arange(K) / K
    factors = t**2 * STD**2 / (t**2 * STD**2 + (1 - t) ** 2)
    expected = np.append(np.cumprod(factors[::-1])[::-1], 1.0)
    field = lambda p: lambda x, t: p * optimal(MEAN, STD)(x, t)
    arriving, _ = gradients("vine", field, 1.0, noises(), lambda path: path[-1, :, 0])
    np.testing.assert_allclose(arriving[:, 0, 0], expected, rtol=1e-4)


def small_field(params):
    """Two layers, so that parameters and states meet in a product."""
    return lambda x, t: jnp.tanh(x @ params["in"] + t) @ params["out"]


def end_alone(path):
    return jnp.sum(path[-1] ** 3, axis=-1)


def whole_path(path):
    weights = jnp.arange(1.0, len(path) + 1)[:, None]
    return jnp.sum(weights * jnp.sum(jnp.sin(2 * path), axis=-1), axis=0)


@RULES
@pytest.mark.parametrize("loss", [end_alone, whole_path])
def test_gradients_are_those_of_automatic_differentiation(name, loss):
    """A plain loop in which every estimate has a shift, and every step parameters, of its own."""
    step, steps = samplers.STEPS[name], 3

    def looped(shifts, copies, z):
        path = [z[0] + shifts[0]]
        for k in range(steps):
            velocity = small_field(jax.tree.map(lambda p, k=k: p[k], copies))
            path.append(step(velocity, z[k + 1], path[k], k / steps, (k + 1) / steps))
            path[-1] += shifts[k + 1]
        return loss(jnp.stack(path)).sum()

    @jax.jit
    def three_ways(params, z):
        copies = jax.tree.map(lambda p: jnp.stack([p] * steps), params)
        whole = lambda p: loss(path(name, z, samplers.grid(steps), small_field(p))).sum()
        ours = gradients(name, small_field, params, z, loss)
        return ours, jax.grad(looped, (0, 1))(0 * z, copies, z), jax.grad(whole)(params)

    with jax.enable_x64(True):
        draw = np.random.default_rng(0)
        params = {"in": draw.normal(size=(2, 5)), "out": draw.normal(size=(5, 2))}
        ours, plain, whole = three_ways(params, draw.normal(size=(steps + 1, 3, 2)))
        added = jax.tree.map(lambda share: share.sum(axis=0), ours[1])
    assert_close((*ours, added), (*plain, whole), rtol=1e-9, atol=1e-12)


# Chunks: [B, H, A], with as many rows as steps

CHUNKS = (K, 3, 2)
ROW = (K, 6)
MIX = 0.4 * np.random.default_rng(1).normal(size=(6, 6)).astype(np.float32)


def in_rows(params):
    return lambda x, t: jnp.tanh(x @ (params * MIX) + t)


def in_chunks(params):
    """The same field, which sees all of a chunk."""
    return lambda x, t: in_rows(params)(x.reshape(ROW), t).reshape(x.shape)


@RULES
def test_chunks_are_drawn_as_their_coordinates_in_a_row(name):
    draw = lambda field, shape: samplers.sample(
        samplers.STEPS[name], field(1.0), jax.random.key(0), shape, K
    )
    chunks = draw(in_chunks, CHUNKS)
    assert chunks.shape == CHUNKS
    np.testing.assert_array_equal(chunks.reshape(ROW), draw(in_rows, ROW))


@RULES
def test_estimates_of_chunks_are_those_of_their_coordinates_in_a_row(name):
    z, times = jax.random.normal(jax.random.key(0), (K + 1, *ROW)), samplers.grid(K)
    drawn = path(name, z, velocity=in_rows(1.0))
    estimates = samplers.ESTIMATES[name](drawn.reshape(K + 1, *CHUNKS), times)
    assert estimates.shape == (K, *CHUNKS)
    known = samplers.ESTIMATES[name](drawn, times)
    np.testing.assert_array_equal(estimates.reshape(K, *ROW), known)


@RULES
def test_gradients_of_chunks_are_those_of_their_coordinates_in_a_row(name):
    z = jax.random.normal(jax.random.key(0), (K + 1, *ROW))
    loss = lambda path: jnp.sum(path.reshape(K + 1, *ROW)[-1] ** 3, axis=-1)
    arriving, shares = gradients(name, in_chunks, 1.0, z.reshape(K + 1, *CHUNKS), loss)
    known, known_shares = gradients(name, in_rows, 1.0, z, loss)
    assert arriving.shape == (K + 1, *CHUNKS)
    np.testing.assert_allclose(arriving.reshape(z.shape), known, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(shares, known_shares, rtol=1e-5, atol=1e-6)
