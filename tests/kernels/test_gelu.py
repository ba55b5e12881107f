"""The fused activation against Flax on the same numbers, in float32; and when it is used."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from vinerl import kernels
from vinerl.kernels import gelu
from vinerl.kernels.gelu import Tile, bias_gelu
from vinerl.nets.mlp import Hidden

BATCH, WIDTH = 32, 16


def normal(i, *shape):
    return jax.random.normal(jax.random.key(i), shape)


def pulled(function, g, u, bias):
    """Values, and what comes back for g."""
    y, pull = jax.vjp(jax.vmap(function), u, bias)
    return y.astype(jnp.float32), *pull(g.astype(y.dtype))


def assert_equals_flax(dtype, batch, width, members=2):
    u, g = (2 * normal(i, members, batch, width) for i in (0, 1))
    bias, u = normal(2, members, width), u.astype(dtype)
    exact = pulled(lambda u, bias: nn.gelu(u + bias), g, u.astype(jnp.float32), bias)
    found = jax.jit(lambda *a: pulled(bias_gelu, *a))(g, u, bias)
    for x, right in zip(found, exact, strict=True):
        assert x.shape == right.shape
        assert jnp.linalg.norm(x - right) < 0.004 * jnp.linalg.norm(right)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize(
    ("batch", "width"),
    [
        (BATCH, WIDTH),
        (48, 48),  # smaller tiles, which divide it
        (64, 512),  # several tiles each way
    ],
)
def test_values_and_gradients_are_those_of_flax(dtype, batch, width):
    assert_equals_flax(dtype, batch, width)


def test_values_do_not_depend_on_the_tiles(monkeypatch):
    tile = Tile(8, 4, 1)
    monkeypatch.setattr(gelu, "FORTH", tile)
    monkeypatch.setattr(gelu, "BACK", tile)
    both = lambda u, bias: jax.vjp(bias_gelu, u, bias)[1](u.astype(jnp.bfloat16))
    traced = str(jax.make_jaxpr(both)(jnp.ones((BATCH, WIDTH)), jnp.ones(WIDTH)))
    assert set(re.findall(r"grid=\(([\d, ]+)\)", traced)) == {"4, 4"}, "or they are not used"
    assert_equals_flax(jnp.bfloat16, BATCH, WIDTH)


@pytest.mark.parametrize(
    ("batch", "width", "dtype", "activation", "used"),
    [
        (BATCH, WIDTH, jnp.bfloat16, nn.gelu, True),
        (BATCH, 24, jnp.bfloat16, nn.gelu, False),  # no whole tiles
        (BATCH - 1, WIDTH, jnp.bfloat16, nn.gelu, False),
        (BATCH, WIDTH, jnp.float32, nn.gelu, False),
        (BATCH, WIDTH, jnp.bfloat16, nn.tanh, False),
    ],
)
def test_a_layer_has_the_kernel_where_it_fits_and_the_same_parameters(
    batch, width, dtype, activation, used
):
    x = normal(5, batch, 5)
    layers = Hidden((width,), dtype=dtype, activation=activation)
    params = layers.init(jax.random.key(0), x)
    with kernels.chosen(True):
        assert ("pallas_call" in str(jax.make_jaxpr(layers.apply)(params, x))) is used
        again, fused = layers.init(jax.random.key(0), x), layers.apply(params, x)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, params, again))
    assert jnp.abs(jnp.float32(fused) - jnp.float32(layers.apply(params, x))).max() < 0.05
