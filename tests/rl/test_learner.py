"""How an update multiplies matrices."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.extend import core

from tiny import SPEC, dataset, tiny
from vinerl.rl import learner
from vinerl.train import offline

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


def test_full_float32_is_float32_where_there_is_no_tf32():
    dtypes = [replace(tiny("vine")[0], precision=p).dtype for p in ("float32", "full-float32")]
    assert dtypes == [jnp.float32, jnp.float32]
