"""The fused activation against Flax on the same numbers, in float32; and when it is used."""

import re
from dataclasses import fields, replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from vinerl import kernels
from vinerl.agents import AGENTS
from vinerl.kernels import gelu
from vinerl.kernels.gelu import Tile, bias_gelu
from vinerl.nets.mlp import Hidden
from vinerl.rl import learner
from vinerl.types import Batch, Spec

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


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_learns_with_the_kernel_unless_its_actor_has_no_gelu(name):
    """Some differentiate inside their loss, sample in parallel or share networks."""
    config, make = AGENTS[name]
    sizes = {"actor_hidden": (16, 16), "critic_hidden": (16,), "critics": 2, "flow_steps": 2}
    known = {field.name for field in fields(config)}
    sizes = {field: value for field, value in sizes.items() if field in known}
    config = replace(config, precision="bfloat16", fused=True, **sizes)
    agent = make(config, Spec(jax.ShapeDtypeStruct((5,), jnp.float32), 2))
    rows = lambda *shape: jnp.zeros((BATCH, *shape))
    batch = Batch(rows(5), rows(2), rows(), rows(), rows(5), rows())
    state = jax.eval_shape(lambda key: learner.init(agent, key), jax.random.key(0))
    gradient = lambda state, key: learner.gradient(agent, state, batch, key)
    traced = str(jax.make_jaxpr(gradient)(state, jax.random.key(0)))
    assert ("gelu_backward" in traced) is (name not in ("dac", "qsm"))


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_bias_that_cancels_most_of_a_first_layers_product_does_so_before_rounding(layer_norm):
    """Positions around 33 that differ by 0.1: their products, rounded alone, would be equal."""
    x = 33 + 0.1 * normal(6, BATCH, 5)
    layers = Hidden((64,), layer_norm, jnp.bfloat16)
    params = layers.init(jax.random.key(0), x)
    dense = params["params"]["Dense_0"]
    dense["bias"] = -33 * dense["kernel"].sum(axis=0)
    exact = Hidden((64,), layer_norm).apply(params, x)
    with kernels.chosen(True):
        fused = jnp.float32(layers.apply(params, x))
    assert jnp.linalg.norm(fused - exact) < 0.01 * jnp.linalg.norm(exact)
