"""Networks: their shapes, how many parameters they have, what they compute in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, relative
from vinerl.nets.actors import Deterministic, VelocityField
from vinerl.nets.critics import Critic, ResidualCritic
from vinerl.nets.encoders import Encoder
from vinerl.nets.mlp import Network
from vinerl.types import TIME, Spec

B, OBS, A, W = 7, 3, 2, 8  # batch, observation, action, width
PICTURE = {"camera": jax.ShapeDtypeStruct((8, 8, 3), jnp.uint8), "joints": SPEC.obs}
LAYOUTS = pytest.mark.parametrize("layout", ["branches", "pre-norm"])
dense = lambda n, m: n * m + m
norm = lambda n: 2 * n


def draw(shape: jax.ShapeDtypeStruct, seed=0):
    """A batch of inputs like `shape`."""
    x = np.random.default_rng(seed).integers(0, 256, (B, *shape.shape))
    return jnp.asarray(x if shape.dtype == jnp.uint8 else x / 128 - 1, shape.dtype)


def inputs(spec=SPEC, seed=0):
    return jax.tree.map(lambda shape: draw(shape, seed), (spec.obs, spec.action))


def velocity_inputs(spec=SPEC):
    return (*inputs(spec), draw(TIME))


def critic(hidden=(W,), blocks=2, critics=2, layout="branches", dtype=jnp.float32):
    return ResidualCritic(hidden, blocks, critics, layout, dtype)


def shapes(network: Network, *example):
    return jax.eval_shape(network.init, jax.random.key(0), *example)


def init(network: Network, *example):
    return jax.jit(network.init)(jax.random.key(0), *example)


def count(network: Network, *example) -> int:
    return sum(x.size for x in jax.tree.leaves(shapes(network, *example)))


# Shapes and sizes


@LAYOUTS
@pytest.mark.parametrize("critics", [1, 3])
def test_every_critic_values_every_row(layout, critics):
    network = critic(critics=critics, layout=layout)
    values = jax.eval_shape(network.apply, shapes(network, *inputs()), *inputs())
    assert values.shape == (critics, B)


@LAYOUTS
def test_critics_are_initialised_apart(layout):
    network = critic(critics=2, layout=layout)
    params = init(network, *inputs())
    kernels = [p for p in jax.tree.leaves(params) if p.ndim == 3]
    assert all(jnp.abs(k[0] - k[1]).max() > 0.1 for k in kernels)
    one, other = network.apply(params, *inputs())
    assert jnp.abs(one - other).min() > 1e-4


def test_weights_start_as_those_of_the_released_baselines():
    """Uniform up to sqrt(6 / (in + out)), a tenth of it in ReBRAC's last layer; no offsets."""
    obs, action = jnp.zeros((1, 29)), jnp.zeros((1, 8))
    actor, critics = init(Deterministic((64, 64), 8), obs), init(Critic((64, 64), 3), obs, action)
    for params, last in ((actor, 0.1), (critics, 1.0)):
        for path, x in jax.tree.leaves_with_path(jax.tree.map(np.asarray, params)):
            name = jax.tree_util.keystr(path)
            if "kernel" not in name:
                assert (x == ("scale" in name)).all()
                continue
            bound = np.sqrt(6 / sum(x.shape[-2:])) * (1.0 if x.shape[-1] == 64 else last)
            assert 0.97 * bound < np.abs(x).max() <= bound
            assert np.isclose(x.std(), bound / np.sqrt(3), rtol=0.1)


@pytest.mark.parametrize(("depth", "blocks"), [(4, 2), (2, 4), (1, 1)])
def test_parameters_of_residual_branches(depth, blocks):
    """A layer in, `blocks` branches of `depth` layers, one out; every layer but that has a norm."""
    layer = dense(W, W) + norm(W)
    one = dense(OBS + A, W) + norm(W) + blocks * depth * layer + dense(W, 1)
    assert count(critic((W,) * depth, blocks, 2), *inputs()) == 2 * one


def test_the_two_pairs_of_depth_and_blocks_are_the_same_size():
    assert count(critic((W,) * 4, 2), *inputs()) == count(critic((W,) * 2, 4), *inputs()) == 2 * 777


@pytest.mark.parametrize("depth", [1, 4])
def test_parameters_of_pre_norm_branches(depth):
    """A linear layer in, `depth` branches of a norm and two layers, a norm and a layer out."""
    branch = norm(W) + 2 * dense(W, W)
    one = dense(OBS + A, W) + depth * branch + norm(W) + dense(W, 1)
    assert count(critic((W,) * depth, layout="pre-norm"), *inputs()) == 2 * one


def test_the_default_actor_of_the_ant_is_three_megabytes():
    spec = Spec(jax.ShapeDtypeStruct((29,), jnp.float32), 8)
    size = count(VelocityField((512,) * 4, 8), *velocity_inputs(spec))
    assert size == dense(29 + 8 + 1, 512) + 3 * dense(512, 512) + dense(512, 8)
    assert 3.0e6 < 4 * size < 3.4e6


@pytest.mark.parametrize("layer_norm", [False, True])
def test_parameters_of_the_velocity_field(layer_norm):
    expected = dense(OBS + A + 1, W) + dense(W, W) + layer_norm * 2 * norm(W) + dense(W, A)
    assert count(VelocityField((W, W), A, layer_norm), *velocity_inputs()) == expected


def test_time_may_be_one_number_for_all_rows():
    network, (obs, x, _) = VelocityField((W,), A), velocity_inputs()
    params = init(network, obs, x, draw(TIME))
    one = network.apply(params, obs, x, jnp.array(0.3))
    assert jnp.array_equal(one, network.apply(params, obs, x, jnp.full((B, 1), 0.3)))
    assert not jnp.allclose(one, network.apply(params, obs, x, jnp.array(0.4)))


# What they compute


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def normed(x, p):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6) * p["scale"] + p["bias"]


def linear(x, p):
    return x @ p["kernel"] + p["bias"]


def test_a_pre_norm_critic_by_hand():
    network = critic((W, W), critics=2, layout="pre-norm")
    obs, action = inputs()
    params = jax.device_get(init(network, obs, action))
    values = network.apply(params, obs, action)
    for e in range(2):
        ours = jax.tree.map(lambda p, e=e: np.float64(p[e]), params["params"])["VmapPreNormMLP_0"]
        x = linear(np.concatenate([obs, action], axis=1), ours["Dense_0"])
        for n in range(2):
            branch = gelu(linear(normed(x, ours[f"LayerNorm_{n}"]), ours[f"Hidden_{n}"]["Dense_0"]))
            x = x + linear(branch, ours[f"Dense_{n + 1}"])
        by_hand = linear(normed(x, ours["LayerNorm_2"]), ours["Dense_3"])[:, 0]
        np.testing.assert_allclose(values[e], by_hand, rtol=1e-4, atol=1e-5)


# Pictures


def test_a_vector_passes_the_encoder_unchanged():
    obs = draw(SPEC.obs)
    assert Encoder().init(jax.random.key(0), obs) == {}
    assert jnp.array_equal(Encoder().apply({}, obs), obs)


def test_a_picture_becomes_features_beside_the_vector():
    spec = Spec(PICTURE, A)
    obs, other = inputs(spec)[0], inputs(spec, seed=1)[0]
    params = init(Encoder(), obs)
    features = Encoder().apply(params, obs)
    assert features.shape == (B, 64 + OBS)
    assert features.dtype == jnp.float32
    assert jnp.array_equal(features[:, 64:], obs["joints"])
    moved = Encoder().apply(params, obs | {"camera": other["camera"]})
    assert jnp.abs(moved[:, :64] - features[:, :64]).max() > 0.01


def test_a_velocity_at_observations_encodes_them_once_and_is_the_same():
    spec = Spec(PICTURE, A)
    obs, x, t = velocity_inputs(spec)
    network = VelocityField((W,), A)
    params = init(network, obs, x, t)
    np.testing.assert_allclose(
        network.at(params, obs)(x, t), network.apply(params, obs, x, t), rtol=1e-5, atol=1e-6
    )


@LAYOUTS
def test_critics_share_one_encoder_and_it_receives_gradient(layout):
    obs, action = inputs(Spec(PICTURE, A))
    network = critic(critics=3, layout=layout)
    params = init(network, obs, action)
    encoder = params["params"]["Encoder_0"]
    assert encoder["Conv_0"]["kernel"].shape == (3, 3, 3, 16), "no axis of the ensemble"
    grads = jax.jit(jax.grad(lambda p: (network.apply(p, obs, action) ** 2).sum()))(params)
    kernels = [g["kernel"] for g in grads["params"]["Encoder_0"].values() if "kernel" in g]
    assert len(kernels) == 3
    assert all(jnp.abs(g).max() > 0 for g in kernels)


# Precision


@pytest.mark.parametrize(
    ("make", "example"),
    [
        (lambda dtype: VelocityField((W, W), A, True, dtype), velocity_inputs),
        (lambda dtype: critic((W, W), dtype=dtype), inputs),
        (lambda dtype: critic((W, W), layout="pre-norm", dtype=dtype), inputs),
    ],
    ids=["actor", "branches", "pre-norm"],
)
def test_bfloat16_is_for_hidden_layers_alone(make, example):
    full, half = make(jnp.float32), make(jnp.bfloat16)
    params = init(half, *example())
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    exact, rough = full.apply(params, *example()), half.apply(params, *example())
    assert rough.dtype == jnp.float32
    assert 1e-6 < relative(rough, exact) < 0.02


@pytest.mark.parametrize("layout", ["branches", "pre-norm"])
def test_bfloat16_tells_positions_apart_that_are_close(layout):
    """33.0 and 33.1 are one number in bfloat16; the first layer takes its inputs in float32."""
    critic = ResidualCritic((8,), 1, 1, layout, jnp.bfloat16)
    far = lambda x: jnp.float32([[x]])
    params = critic.init(jax.random.key(0), far(33.0))
    steep = jax.tree.map(lambda x: 30 * x, params)  # so that later rounding hides nothing
    a, b = (critic.apply(steep, far(x)) for x in (33.0, 33.1))
    assert jnp.bfloat16(33.0) == jnp.bfloat16(33.1)
    assert not jnp.array_equal(a, b)
