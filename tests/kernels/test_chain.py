"""All steps of a sampler with kernels between the products, beside the plain steps."""

import sys
from dataclasses import fields, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinerl import kernels
from vinerl.agents import AGENTS
from vinerl.flow import samplers
from vinerl.kernels import chain, ends
from vinerl.kernels.gelu import Tile
from vinerl.nets.actors import VelocityField, layers_of
from vinerl.rl import learner
from vinerl.types import Batch, Spec

WIDTH, OBS, STEPS, ROWS = 32, 5, 3, 48
RULES = pytest.mark.parametrize("step", samplers.RULES, ids=lambda step: step.__name__)


def field(dim, dtype=jnp.float32, hidden=(WIDTH,) * 3, **options):
    return VelocityField(hidden, dim, dtype=dtype, **options)


def material(dim, members=2, **options):
    """Parameters, observations and noises of some members."""
    key = jax.random.key(3)
    one = jnp.zeros((1, OBS)), jnp.zeros((1, dim)), jnp.zeros((1, 1))
    init = lambda key: field(dim, **options).init(key, *one)
    params = jax.vmap(init)(jax.random.split(key, members))
    params = jax.tree.map(lambda p: p + 0.05 * jax.random.normal(key, p.shape), params)
    obs = 3 * jax.random.normal(key, (members, ROWS, OBS))
    return params, obs, jax.random.normal(key, (members, STEPS + 1, ROWS, dim))


def path(dtype, step, fused, params, obs, noises, unroll=True):
    with kernels.chosen(fused):
        velocity = field(noises.shape[-1], dtype).at(params, obs)
        times = samplers.grid(STEPS)
        return samplers.trace(step, velocity, noises, times, unroll=unroll)


def distance(found, wanted):
    """Of whole arrays, to the size of what is wanted."""
    off = lambda x, y: float(jnp.linalg.norm(x - y) / jnp.linalg.norm(y))
    return jax.tree.leaves(jax.tree.map(off, found, wanted))


@RULES
def test_a_rule_is_its_step(step):
    draw = np.random.default_rng(0)
    x, noise = (jnp.asarray(draw.normal(size=(4, 2)), jnp.float32) for _ in range(2))
    velocity = lambda x, t: 3 * x + t
    times = samplers.grid(4)
    rule = samplers.rule_of(step, times)
    for k in range(4):
        t, p, q, m, r, s = (c[k] for c in rule)
        u = p * x + q * noise
        wanted = step(velocity, noise, x, times[k], times[k + 1])
        np.testing.assert_allclose(m * u + r * velocity(u, t) + s * noise, wanted, rtol=2e-5)


def test_a_field_taken_apart_is_the_same_field():
    params, obs, noises = (jax.tree.map(lambda x: x[0], part) for part in material(3))
    layers, x, t = layers_of(params["params"]["layers"], obs), noises[0], 0.3
    h = jax.nn.gelu(layers.start + x @ layers.action + t * layers.time)
    for kernel, bias in zip(layers.kernels, layers.biases, strict=True):
        h = jax.nn.gelu(h @ kernel + bias)
    wanted = field(3).at(params, obs)(x, jnp.float32(t))
    np.testing.assert_allclose(h @ layers.last + layers.last_bias, wanted, atol=1e-5)


@RULES
@pytest.mark.parametrize("dim", [3, 25])
def test_paths_and_gradients_are_those_of_the_plain_steps_up_to_rounding(step, dim):
    """Against float32. Each rounding of bfloat16 is up to 1/256; the plain steps in bfloat16 are
    as far from it, or further."""
    inputs = material(dim)
    weights = jax.random.normal(jax.random.key(5), (STEPS + 1, ROWS, dim))

    def loss(dtype, fused, *inputs):
        made = path(dtype, step, fused, *inputs)
        return (weights * made).sum(), made

    taken = lambda dtype, fused: jax.jit(
        jax.vmap(jax.value_and_grad(partial(loss, dtype, fused), argnums=(0, 1, 2), has_aux=True))
    )(*inputs)
    (_, made), gradient = taken(jnp.bfloat16, True)
    (_, wanted), exact = taken(jnp.float32, False)
    _, plain = taken(jnp.bfloat16, False)
    assert distance(made, wanted)[0] < 3e-3
    assert max(distance(gradient, exact)) < 1e-2
    assert max(distance(gradient, exact)) < 1.2 * max(distance(plain, exact))


def test_values_do_not_depend_on_the_tiles(monkeypatch):
    inputs = jax.tree.map(lambda x: x[0], material(3))
    both = lambda: jax.value_and_grad(
        lambda *given: path(jnp.bfloat16, samplers.vine_step, True, *given).sum(), argnums=(0, 1)
    )(*inputs)
    whole = both()
    tile = Tile(rows=4, columns=8, warps=1)
    monkeypatch.setattr(ends, "ENTER", tile)
    monkeypatch.setattr(ends, "LEAVE", tile)
    assert max(distance(both(), whole)) < 2e-3


@pytest.mark.parametrize(
    ("rows", "unroll", "options", "used"),
    [
        (ROWS, True, {}, True),
        (ROWS, False, {}, False),  # a loop over the steps
        (ROWS - 1, True, {}, False),  # no whole tiles
        (ROWS, True, {"hidden": (WIDTH, 2 * WIDTH)}, False),
        (ROWS, True, {"hidden": (48, 48)}, False),
        (ROWS, True, {"hidden": (WIDTH,)}, False),
        (ROWS, True, {"layer_norm": True}, False),
        (ROWS, True, {"dtype": jnp.float32}, False),
    ],
    ids=str,
)
def test_the_kernels_are_used_where_they_fit(rows, unroll, options, used):
    network = field(3, **({"dtype": jnp.bfloat16} | options))
    obs, noises = jnp.zeros((rows, OBS)), jnp.zeros((STEPS + 1, rows, 3))
    params = network.init(jax.random.key(0), obs, noises[0], jnp.zeros((rows, 1)))

    def made(params, fused):
        with kernels.chosen(fused):
            velocity, times = network.at(params, obs), samplers.grid(STEPS)
            return samplers.trace(samplers.vine_step, velocity, noises, times, unroll=unroll)

    traced = lambda fused: str(jax.make_jaxpr(partial(made, fused=fused))(params))
    assert ("gelu_enter" in traced(True)) is used
    assert "gelu_enter" not in traced(False)


def test_a_field_is_still_a_function():
    params, obs, noises = jax.tree.map(lambda x: x[0], material(3))
    with kernels.chosen(True):
        velocity = field(3, jnp.bfloat16).at(params, obs)
    assert isinstance(velocity, chain.Field)
    wanted = field(3, jnp.bfloat16).at(params, obs)(noises[0], jnp.float32(0.3))
    np.testing.assert_array_equal(velocity(noises[0], jnp.float32(0.3)), wanted)


# No chain in the loss (IFQL has one to act), another field, or a guided one.
WITHOUT = {"rebrac", "ifql", "dac", "qsm", "cgql", "cgql-m", "cgql-l"}


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_with_a_chain_of_plain_layers_takes_it_through_the_kernels(name, monkeypatch):
    """As on a GPU, where the steps are compiled in a row. The gradient is the plain one's."""
    config, make = AGENTS[name]
    monkeypatch.setattr(sys.modules[make.__module__], "in_a_row", lambda: True, raising=False)
    sizes = {"actor_hidden": (16, 16), "critic_hidden": (16,), "critics": 2, "flow_steps": 3}
    known = {field.name for field in fields(config)}
    sizes = {field: value for field, value in sizes.items() if field in known}
    rows = lambda i, *shape: jax.random.normal(jax.random.key(i), (16, *shape))
    actions = jnp.tanh(rows(1, 2))
    batch = Batch(rows(0, 5), actions, rows(2), jnp.ones(16), rows(3, 5), jnp.ones(16))

    def gradient(fused, key):
        cfg = replace(config, precision="bfloat16", fused=fused, **sizes)
        agent = make(cfg, Spec(jax.ShapeDtypeStruct((5,), jnp.float32), 2))
        state = learner.init(agent, jax.random.key(0))
        return learner.gradient(agent, state, batch, key)[0]

    given = jax.random.key(4)
    for fused in (True, False):
        traced = str(jax.make_jaxpr(partial(gradient, fused))(given))
        assert ("gelu_enter" in traced) is (fused and name not in WITHOUT)
    if name in WITHOUT:
        return
    norms = [
        jax.tree.map(jnp.linalg.norm, jax.jit(partial(gradient, fused))(given))
        for fused in (True, False)
    ]
    for one, other in zip(*map(jax.tree.leaves, norms), strict=True):
        assert abs(one - other) < 0.05 * max(one, other) + 1e-4
