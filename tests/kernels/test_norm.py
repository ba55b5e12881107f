"""The fused layer against Flax on the same numbers, in float32; and when it is used."""

from dataclasses import replace

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from vinerl import kernels
from vinerl.agents import AGENTS
from vinerl.kernels.norm import gelu_norm
from vinerl.nets.mlp import Hidden
from vinerl.rl import learner
from vinerl.types import Batch, Spec

MEMBERS, BATCH, WIDTH = 2, 32, 16


def normal(i, *shape):
    return jax.random.normal(jax.random.key(i), (MEMBERS, *shape))


def plain(u, bias, scale, offset):
    norm = nn.LayerNorm(dtype=jnp.float32)
    return norm.apply({"params": {"scale": scale, "bias": offset}}, nn.gelu(u + bias))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_values_and_gradients_are_those_of_flax(dtype):
    u, g = normal(0, BATCH, WIDTH), normal(1, BATCH, WIDTH)
    rest = normal(2, WIDTH), 1 + 0.3 * normal(3, WIDTH), normal(4, WIDTH)

    def pulled(function, u, *rest):
        y, pull = jax.vjp(jax.vmap(function), u, *rest)
        return y.astype(jnp.float32), *pull(g.astype(y.dtype))

    exact = pulled(plain, u.astype(dtype).astype(jnp.float32), *rest)
    for x, right in zip(
        jax.jit(lambda *a: pulled(gelu_norm, *a))(u.astype(dtype), *rest), exact, strict=True
    ):
        assert x.shape == right.shape
        assert jnp.linalg.norm(x - right) < 0.006 * jnp.linalg.norm(right)


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
