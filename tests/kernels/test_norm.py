"""The fused layer against Flax on the same numbers, in float32; and when it is used."""

import re
from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from vinerl import kernels
from vinerl.agents import AGENTS
from vinerl.kernels import norm as fused_norm
from vinerl.kernels.norm import Tile, gelu_norm
from vinerl.nets.mlp import Hidden
from vinerl.rl import learner
from vinerl.types import Batch, Spec

MEMBERS, BATCH, WIDTH = 2, 32, 16


def normal(i, *shape):
    return jax.random.normal(jax.random.key(i), (MEMBERS, *shape))


def plain(u, bias, scale, offset):
    norm = nn.LayerNorm(dtype=jnp.float32)
    return norm.apply({"params": {"scale": scale, "bias": offset}}, nn.gelu(u + bias))


def pulled(function, g, u, *rest):
    """Values, and what comes back for g."""
    y, pull = jax.vjp(function, u, *rest)
    return y.astype(jnp.float32), *pull(g.astype(y.dtype))


def assert_equals_flax(dtype, members, batch, width):
    shape = members, batch, width
    u, g = normal(0, *shape), normal(1, *shape)
    shape = members, width
    rest = normal(2, *shape), 1 + 0.3 * normal(3, *shape), normal(4, *shape)
    exact = pulled(over_two(plain), g, u.astype(dtype).astype(jnp.float32), *rest)
    found = jax.jit(lambda *a: pulled(over_two(gelu_norm), *a))(g, u.astype(dtype), *rest)
    for x, right in zip(found, exact, strict=True):
        assert x.shape == right.shape
        assert jnp.linalg.norm(x - right) < 0.006 * jnp.linalg.norm(right)


def over_two(function):
    return jax.vmap(jax.vmap(function))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize(
    ("batch", "width"),
    [
        (BATCH, WIDTH),
        (48, WIDTH),  # fewer rows in a program, which divide it
        (BATCH, 512),  # pieces of a row
    ],
)
def test_values_and_gradients_are_those_of_flax(dtype, batch, width):
    assert_equals_flax(dtype, 1, batch, width)


@pytest.mark.parametrize("learned", [(), (0,), (0, 1, 2)], ids=["none", "bias", "all"])
def test_what_comes_back_to_a_layer_does_not_depend_on_what_else_is_learned(learned):
    """Where no parameter is, there is nothing to sum over the rows, and nothing is."""
    u, g = normal(0, BATCH, WIDTH)[0], normal(1, BATCH, WIDTH)[0].astype(jnp.bfloat16)
    rest = [normal(2 + i, WIDTH)[0] for i in range(3)]

    def back(u, *some):
        given = list(rest)
        for i, x in zip(learned, some, strict=True):
            given[i] = x
        return gelu_norm(u, *given)

    pull = lambda u, *some: jax.vjp(back, u, *some)[1](g)
    du, *others = pull(u, *(rest[i] for i in learned))
    exact = jax.vjp(gelu_norm, u, *rest)[1](g)
    assert jnp.array_equal(du, exact[0])
    assert all(jnp.array_equal(x, exact[1 + i]) for i, x in zip(learned, others, strict=True))
    traced = str(jax.make_jaxpr(pull)(u, *(rest[i] for i in learned)))
    assert (re.search(r"f32\[1,3,16\]", traced) is not None) is bool(learned)


@pytest.mark.parametrize(
    "tile",
    [
        Tile(8, 1, 1, ahead=False),
        Tile(8, 8, 4, ahead=True),  # one pass: nothing lies ahead
        Tile(16, 2, 2, ahead=True),
        Tile(32, 8, 4, ahead=False),
    ],
)
def test_values_do_not_depend_on_how_rows_are_walked_through(monkeypatch, tile):
    monkeypatch.setattr(fused_norm, "FORTH", tile)
    monkeypatch.setattr(fused_norm, "BACK", tile)
    monkeypatch.setattr(fused_norm, "LANES", 16)  # narrow pieces
    assert programs(normal(0, BATCH, WIDTH)[0]) == {BATCH // tile.rows}
    assert_equals_flax(jnp.bfloat16, 3, BATCH, WIDTH)


def programs(u):
    """How many programs the kernels are started with, forth and back."""
    rest = [jnp.ones(u.shape[1])] * 3
    traced = jax.make_jaxpr(lambda *a: pulled(gelu_norm, u, *a))(u, *rest)
    return {int(n) for n in re.findall(r"grid=\((\d+),\)", str(traced))}


@pytest.mark.parametrize("second", [WIDTH, 12])
def test_a_layer_has_the_same_parameters_with_and_without_the_kernel(second):
    """A width that is no power of two has no kernel and may stand among others."""
    x = normal(5, BATCH, 5)[0]
    layers = Hidden((WIDTH, second), layer_norm=True, dtype=jnp.bfloat16)
    params = layers.init(jax.random.key(0), x)
    with kernels.chosen(True):
        assert "pallas_call" in str(jax.make_jaxpr(layers.apply)(params, x))
        assert jax.tree.all(
            jax.tree.map(jnp.array_equal, params, layers.init(jax.random.key(0), x))
        )
        fused = layers.apply(params, x)
    y = layers.apply(params, x)
    assert jnp.abs(jnp.subtract(*(jnp.asarray(x, jnp.float32) for x in (fused, y)))).max() < 0.05


@pytest.mark.parametrize(
    ("fused", "precision", "used"),
    [
        (True, "bfloat16", True),
        (False, "bfloat16", False),
        (None, "bfloat16", False),  # here is no GPU
        (True, "float32", False),
    ],
)
def test_an_update_uses_the_kernel_in_bfloat16_when_asked_to_or_on_a_gpu(fused, precision, used):
    config, make = AGENTS["fql"]
    sizes = {"actor_hidden": (16,), "critic_hidden": (16,), "flow_steps": 2}
    config = replace(config, fused=fused, precision=precision, **sizes)
    agent = make(config, Spec(jax.ShapeDtypeStruct((5,), jnp.float32), 2))
    rows = lambda *shape: jnp.zeros((32, *shape))
    batch = Batch(rows(5), rows(2), rows(), rows(), rows(5), rows())
    state = jax.eval_shape(lambda key: learner.init(agent, key), jax.random.key(0))
    gradient = lambda state, key: learner.gradient(agent, state, batch, key)
    traced = str(jax.make_jaxpr(gradient)(state, jax.random.key(0)))
    assert ("pallas_call" in traced) is used


@pytest.mark.parametrize(
    ("backend", "devices", "used"), [("gpu", 1, True), ("gpu", 2, False), ("cpu", 1, False)]
)
def test_left_to_itself_the_kernel_is_for_a_single_gpu(monkeypatch, backend, devices, used):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    with kernels.chosen(None):
        assert kernels.fused() is used
    assert not kernels.fused()
