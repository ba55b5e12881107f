"""FLOP and bytes are counted from shapes: held against counts by hand."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import material
from vinerl.bench.run import running
from vinerl.rl import learner
from vinerl.train import cost, offline


def counted(function, *shapes, dtype=jnp.float32):
    inputs = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return cost.products(jax.make_jaxpr(function)(*inputs).jaxpr)


def vine(small=False):
    """The agent and what it learns from."""
    config, make = material.agent("vine", {}, small)
    data = material.random_data(2000, material.OBS, material.ACTION)
    return make(config, running.spec_of(data, config)), data


def test_a_product_is_two_flop_a_term_and_moves_three_matrices():
    found = counted(lambda a, b: a @ b, (3, 4), (4, 5))
    assert found == (2 * 3 * 4 * 5, 4 * (12 + 20 + 15))
    assert found.intensity == 120 / 188


def test_half_the_bytes_in_half_the_precision():
    found = counted(lambda a, b: a @ b, (3, 4), (4, 5), dtype=jnp.bfloat16)
    assert found == (2 * 3 * 4 * 5, 2 * (12 + 20 + 15))


def test_a_loop_counts_as_often_as_it_runs_also_inside_a_compiled_function():
    def loop(x, w):
        return jax.lax.scan(lambda x, _: (jax.jit(jnp.matmul)(x, w), None), x, length=5)[0]

    assert counted(loop, (3, 4), (4, 4)).flop == 5 * 2 * 3 * 4 * 4


def test_a_mapped_product_counts_for_every_member():
    found = counted(jax.vmap(jnp.matmul), (7, 3, 4), (7, 4, 5))
    assert found.flop == 7 * 2 * 3 * 4 * 5


def test_vine_at_the_papers_sizes():
    """Four passes through the chain and six through both critics, of which one stops early: what
    the critic is fitted to needs no gradient in the observation and the action.
    """
    rows = 512
    chain = 10 * 2 * rows * (38 * 512 + 3 * 512**2 + 512 * 8)
    critics = 2 * 2 * rows * (37 * 512 + 8 * 512**2 + 512)
    first_layers = 2 * 2 * rows * 37 * 512
    found = cost.step(*vine())
    assert found.flop == 4 * chain + 6 * critics - first_layers
    assert found.flop == pytest.approx(59.2e9, rel=1e-3)


def test_the_state_is_read_and_written_once():
    """Weights, two moments of each, slow copies of the critics' weights, two counters of steps."""
    dense = lambda *shapes: sum(n * m + m for n, m in shapes)
    norms = 3 * 2 * 8
    actor = dense((38, 8), (8, 8), (8, 8))
    critics = 2 * (dense((37, 8), (8, 8), (8, 8), (8, 1)) + norms)
    state = 4 * (3 * (actor + critics) + critics + 2)
    agent, data = vine(small=True)
    key = jax.random.key(0)
    step = lambda data, state: offline.train_step(agent, data, key, state)
    start = jax.eval_shape(lambda: learner.init(agent, key))
    products = cost.products(jax.make_jaxpr(step)(data, start).jaxpr)
    assert cost.step(agent, data).bytes == products.bytes + 2 * state
