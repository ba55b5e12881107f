"""All steps of a sampler as one kernel: interpreted here, beside the plain steps."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, tiny
from vinerl import kernels
from vinerl.flow import samplers
from vinerl.kernels import chain
from vinerl.nets.actors import VelocityField, layers_of
from vinerl.rl import learner
from vinerl.types import Batch

WIDTH, OBS, DIM, STEPS = 512, 5, 3, 2
interpreter = pytest.mark.skipif(
    jax.__version_info__ < (0, 11), reason="Pallas interprets such kernels from JAX 0.11 on"
)


def field(dtype=jnp.float32, hidden=(WIDTH, WIDTH), **options):
    return VelocityField(hidden, DIM, dtype=dtype, **options)


def material(members, rows):
    """Parameters, observations and noises of some members."""
    key = jax.random.key(3)
    init = lambda key: field().init(
        key, jnp.zeros((1, OBS)), jnp.zeros((1, DIM)), jnp.zeros((1, 1))
    )
    params = jax.vmap(init)(jax.random.split(key, members))
    params = jax.tree.map(lambda p: p + 0.02 * jax.random.normal(key, p.shape), params)
    obs = 3 * jax.random.normal(key, (members, rows, OBS))
    return params, obs, jax.random.normal(key, (members, STEPS + 1, rows, DIM))


def path(dtype, step, fused, params, obs, noises):
    with kernels.chosen(fused):
        velocity = field(dtype).at(params, obs)
        assert chain.fits(velocity, noises) == fused
        return samplers.trace(step, velocity, noises, samplers.grid(STEPS))


def distance(found, wanted):
    """Of whole arrays, to the size of what is wanted."""
    off = lambda x, y: float(jnp.linalg.norm(x - y) / jnp.linalg.norm(y))
    return jax.tree.leaves(jax.tree.map(off, found, wanted))


@pytest.mark.parametrize("step", samplers.RULES, ids=lambda step: step.__name__)
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
    params, obs, noises = (jax.tree.map(lambda x: x[0], part) for part in material(1, 4))
    layers, x, t = layers_of(params["params"]["layers"], obs), noises[0], 0.3
    h = jax.nn.gelu(layers.start + x @ layers.action + t * layers.time)
    h = jax.nn.gelu(h @ layers.kernels[0] + layers.biases[0])
    wanted = field().at(params, obs)(x, jnp.float32(t))
    np.testing.assert_allclose(h @ layers.last + layers.last_bias, wanted, atol=1e-5)


@interpreter
@pytest.mark.parametrize("step", samplers.RULES, ids=lambda step: step.__name__)
def test_paths_and_gradients_are_those_of_the_plain_steps_up_to_rounding(step):
    """Against float32: bfloat16 keeps 8 bits, so 1/256 a rounding; plain bfloat16 has 0.5%."""
    inputs = material(members=2, rows=2 * chain.ROWS)
    weights = jax.random.normal(jax.random.key(5), (STEPS + 1, 2 * chain.ROWS, DIM))

    def loss(dtype, fused, *inputs):
        made = path(dtype, step, fused, *inputs)
        return (weights * made).sum(), made

    taken = lambda dtype, fused: jax.vmap(
        jax.value_and_grad(partial(loss, dtype, fused), argnums=(0, 1, 2), has_aux=True)
    )(*inputs)
    (_, made), gradient = taken(jnp.bfloat16, True)
    (_, wanted), exact = taken(jnp.float32, False)
    assert distance(made, wanted)[0] < 3e-3
    assert max(distance(gradient, exact)) < 1e-2
    without = jax.vmap(partial(path, jnp.bfloat16, step, True))(*inputs)
    np.testing.assert_array_equal(without, made)  # with or without what a gradient needs


@interpreter
def test_vine_learns_through_the_kernel(monkeypatch):
    """The same gradient of a whole loss, for the actor through the kernel's path."""
    config, make = tiny("vine")
    config = replace(config, actor_hidden=(WIDTH, WIDTH), flow_steps=STEPS, precision="bfloat16")
    rows = chain.ROWS
    agents = {fused: make(replace(config, fused=fused), SPEC) for fused in (True, False)}
    key = jax.random.key(0)
    state = learner.init(agents[True], key)
    draw = lambda shape: jax.random.normal(jax.random.key(len(shape)), shape)
    obs = jax.tree.map(lambda x: draw((rows, *x.shape)), SPEC.obs)
    ones = jnp.ones(rows)
    batch = Batch(obs, jnp.tanh(draw((rows, SPEC.action_dim))), ones, ones, obs, ones)
    used = []
    real = chain.trace
    monkeypatch.setattr(chain, "trace", lambda *inputs: used.append(1) or real(*inputs))
    found = learner.gradient(agents[True], state, batch, key)[0]
    assert len(used) == 2  # the next action, and the actor's own
    plain = learner.gradient(agents[False], state, batch, key)[0]
    assert max(distance(found["actor"], plain["actor"])) < 0.02


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (96, {}),  # no whole tiles
        (64, {"hidden": (256, 256)}),
        (64, {"hidden": (512,)}),
        (64, {"layer_norm": True}),
        (64, {"dtype": jnp.float32}),
    ],
    ids=str,
)
def test_other_fields_take_the_plain_steps(rows, options):
    network = field(**({"dtype": jnp.bfloat16} | options))
    obs, noises = jnp.zeros((rows, OBS)), jnp.zeros((STEPS + 1, rows, DIM))
    params = network.init(jax.random.key(0), obs, noises[0], jnp.zeros((rows, 1)))
    with kernels.chosen(True):
        assert not chain.fits(network.at(params, obs), noises)
