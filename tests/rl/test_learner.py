"""How an update, and what goes with it, multiplies matrices."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.extend import core

from tiny import SPEC, dataset, tiny
from vinerl.rl import learner
from vinerl.train import offline, pretrain, stack

FULL = (jax.lax.Precision.HIGHEST,) * 2


def products(jaxpr):
    """Precision and dtype of every product of matrices, in loops too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"], str(equation.invars[0].aval.dtype)
        for inner in core.jaxprs_in_params(equation.params):
            yield from products(inner)


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [
        ("float32", {(None, "float32")}),
        ("full-float32", {(FULL, "float32")}),
        ("bfloat16", {(None, "float32"), (None, "bfloat16")}),
    ],
)
def test_products_of_an_update_are_as_precise_as_asked_for(precision, wanted):
    config, make = tiny("vine")
    config = replace(config, precision=precision, actor_hidden=(8, 8), critic_hidden=(8, 8))
    agent, key = make(config, SPEC), jax.random.key(0)
    state = jax.eval_shape(lambda key: learner.init(agent, key), key)
    step = lambda *inputs: offline.train_step(agent, *inputs)
    traced = jax.make_jaxpr(step)(dataset(), key, state)
    assert set(products(traced.jaxpr)) == wanted


def test_nor_are_those_of_cloning_and_of_diagnosing_less_precise():
    config, make = tiny("vine")
    config = replace(config, precision="full-float32", actor_hidden=(8, 8), critic_hidden=(8, 8))
    agent_of = stack.maker(make, config, SPEC)
    members = stack.members(config, seeds=(0,))
    runs = jax.eval_shape(lambda members: offline.start(agent_of, members), members)
    agent, each = make(config, SPEC), jax.random.split(jax.random.key(0), 2)
    clone = lambda state, data: pretrain.learn(agent, data, pretrain.begin(agent, state), each)
    state = jax.eval_shape(lambda key: learner.init(agent, key), each[0])
    look = jax.make_jaxpr(offline.diagnose(agent_of))(runs, dataset())
    found = [
        set(products(traced.jaxpr)) for traced in (look, jax.make_jaxpr(clone)(state, dataset()))
    ]
    assert found == [{(FULL, "float32")}] * 2


def test_full_float32_is_float32_where_there_is_no_tf32():
    dtypes = [replace(tiny("vine")[0], precision=p).dtype for p in ("float32", "full-float32")]
    assert dtypes == [jnp.float32, jnp.float32]


@pytest.mark.parametrize(("backend", "behind"), [("gpu", 2), ("cpu", 0)])
def test_small_parameters_are_held_apart_on_a_gpu(backend, behind, monkeypatch):
    """Behind a barrier, which changes no value; a large one would be read twice for it."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    params = {"bias": jnp.arange(3.0), "last": jnp.ones((512, 1)), "hidden": jnp.ones((512, 512))}
    traced = jax.make_jaxpr(lambda params: learner.apart(params))(params)
    assert str(traced).count("optimization_barrier") == behind
    assert jax.tree.all(jax.tree.map(jnp.array_equal, learner.apart(params), params))
