"""The fused chain against `samplers.trace` on the same numbers, in float32."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from vinerl.agents import AGENTS
from vinerl.flow import samplers
from vinerl.kernels import chain
from vinerl.rl import learner
from vinerl.types import Batch, Spec

MEMBERS, STEPS, BATCH, WIDTH, SIZE = 2, 2, 32, 16, 3
TIMES = samplers.grid(STEPS)


def normal(i, *shape, scale=1.0):
    return scale * jax.random.normal(jax.random.key(i), (MEMBERS, *shape))


def layers():
    """Two members: a first layer, one more, and a linear one."""
    return chain.Layers(
        start=normal(0, BATCH, WIDTH),
        action=normal(1, SIZE, WIDTH, scale=0.5),
        time=normal(2, WIDTH),
        kernels=(normal(3, WIDTH, WIDTH, scale=0.3),),
        biases=(normal(4, WIDTH, scale=0.3),),
        last=normal(5, WIDTH, SIZE, scale=0.3),
        last_bias=normal(6, SIZE),
    )


def plain(layers, step, noises):
    def velocity(x, t):
        h = jax.nn.gelu(layers.start + x @ layers.action + t * layers.time)
        h = jax.nn.gelu(h @ layers.kernels[0] + layers.biases[0])
        return h @ layers.last + layers.last_bias

    return samplers.trace(step, velocity, noises, TIMES)


def fused(layers, rule, noises):
    return chain.trace(layers, rule, noises, chain.Tile(rows=16, columns=16, slice=16))


def pulled(function, layers, rule, noises, g):
    """The path, and what a loss with gradient g of it asks of layers and noises."""
    path, pull = jax.vjp(lambda layers, noises: function(layers, rule, noises), layers, noises)
    return path, pull(g)


@pytest.fixture(scope="module")
def run():
    """Compiled once: the rule is data."""
    return jax.jit(jax.vmap(lambda *args: pulled(fused, *args), in_axes=(0, None, 0, 0)))


@pytest.mark.parametrize("step", samplers.RULES)
def test_path_and_gradients_are_those_of_the_plain_chain(run, step):
    noises, g = (normal(i, STEPS + 1, BATCH, SIZE) for i in (7, 8))
    rule = samplers.rule_of(step, TIMES)
    path, pull = run(layers(), rule, noises, g)
    exact = jax.vmap(lambda *args: pulled(plain, *args), in_axes=(0, None, 0, 0))
    path_exact, pull_exact = exact(layers(), step, noises, g)
    assert path.dtype == jnp.float32
    jax.tree.map(close, (path, *pull), (path_exact, *pull_exact))


def close(x, exact):
    """bfloat16 has 8 bits: a few parts in a thousand over a few layers."""
    assert x.shape == exact.shape
    assert jnp.linalg.norm(x - exact) < 0.015 * jnp.linalg.norm(exact)


def calls(fused, **options):
    """Kernels in one gradient of VINE."""
    config, make = AGENTS["vine"]
    sizes = {"actor_hidden": (128, 128), "critic_hidden": (128,), "flow_steps": 2}
    agent = make(replace(config, fused=fused, **sizes, **options), Spec(FLAT, 2))
    rows = lambda *shape: jnp.zeros((64, *shape))
    batch = Batch(rows(5), rows(2), rows(), rows(), rows(5), rows())
    state = jax.eval_shape(lambda key: learner.init(agent, key), jax.random.key(0))
    gradient = lambda state, key: learner.gradient(agent, state, batch, key)
    return str(jax.make_jaxpr(gradient)(state, jax.random.key(0))).count("pallas_call[")


FLAT = jax.ShapeDtypeStruct((5,), jnp.float32)


def test_kernels_are_used_in_bfloat16_when_asked_for_or_on_a_gpu():
    assert calls(True, precision="bfloat16") > 0
    assert calls(False, precision="bfloat16") == 0
    assert calls(None, precision="bfloat16") == 0  # here is none
    assert calls(True, precision="float32") == 0


def test_a_field_with_layer_norm_keeps_its_plain_chain():
    with_norm = calls(True, precision="bfloat16", actor_layer_norm=True)
    assert 0 < with_norm < calls(True, precision="bfloat16")
