"""A field bent by the gradient of a score."""

import jax.numpy as jnp
import numpy as np

from vinerl.flow.guidance import guided

X = jnp.array([[0.5, -1.0], [2.0, 0.25]])


def test_the_push_by_hand():
    """score = -|x|^2 / 2 has gradient -x: the push is weight (x - (1 - t) x) / t = weight x."""
    field = guided(lambda x, t: jnp.ones_like(x), lambda x, t: -(x**2).sum(axis=-1) / 2, 0.3)
    for t in (0.1, 0.5, 0.9):
        np.testing.assert_allclose(field(X, jnp.float32(t)), 1 + 0.3 * X, rtol=1e-5)


def test_at_the_start_there_is_no_push_and_nothing_is_divided_by_zero():
    field = guided(lambda x, t: 2 * x, lambda x, t: x.sum(axis=-1), 10.0)
    np.testing.assert_array_equal(field(X, jnp.float32(0.0)), 2 * X)


def test_the_score_is_told_the_time():
    field = guided(lambda x, t: 0 * x, lambda x, t: t * x.sum(axis=-1), 1.0)
    t = jnp.float32(0.25)
    np.testing.assert_allclose(field(X, t), (0.25 * 0.75 + X) / 0.25, rtol=1e-5)
