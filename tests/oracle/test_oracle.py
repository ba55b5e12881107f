"""Every loss and its gradient against a second implementation, in plain numpy, in float64."""

import ast
import inspect
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from oracle import (
    bam,
    basics,
    cgql,
    dsrl,
    fawac,
    fbrac,
    fedit,
    fql,
    ifql,
    nets,
    qam,
    rebrac,
    score,
    vine,
)
from oracle.faults import FAULTS
from tiny import dataset
from vinerl.agents import AGENTS
from vinerl.data.fold import fold
from vinerl.rl import learner
from vinerl.types import Batch, Spec

HERE = Path(__file__).parent
B, A, K = 16, 6, 4  # rows, coordinates of a chunk of three actions, steps of a sampler
SPEC = Spec(jax.ShapeDtypeStruct((3,), jnp.float32), A)
COMMON = {"actor_hidden": (8, 8), "critic_hidden": (8, 8), "critics": 3, "flow_steps": K}
COMMON |= {"horizon": 3, "rho": 0.7, "precision": "float64"}
GAIN = 1.5  # of random kernels
DIRECTIONS, STEP = 8, 3e-6
LOSS, GRADIENT = 1e-9, 1e-5  # how close, relatively


# The noise an agent draws, by splitting keys as it does.


def normal(key):
    return jax.random.normal(key, (B, A))


def path(key):
    """The start of a sampler and what enters its steps."""
    return jax.random.normal(key, (K + 1, B, A))


def start(key):
    """The start alone."""
    return path(key)[0]


def match(key):
    """For flow matching: where the straight paths start, and the times."""
    key_noise, key_time = jax.random.split(key)
    return normal(key_noise), jax.random.uniform(key_time, (B, 1))


def edit(key):
    key_flow, key_edit = jax.random.split(key)
    return {"flow": start(key_flow), "edit": normal(key_edit)}


def head(key):
    key_flow, key_edit = jax.random.split(key)
    return {"flow": normal(key_flow), "edit": normal(key_edit)}


def level(key):
    return jax.random.randint(key, (B,), 1, K + 1)


def noisy(key):
    """As for flow matching, but the times are drawn first."""
    key_time, key_noise = jax.random.split(key)
    return normal(key_noise), jax.random.uniform(key_time, (B, 1))


def in_order(**draws: Callable) -> Callable:
    """The key is split once, and each part has one use."""

    def noise(key):
        keys = jax.random.split(key, len(draws))
        return {name: draw(k) for k, (name, draw) in zip(keys, draws.items(), strict=True)}

    return noise


def alone(name: str, draw: Callable) -> Callable:
    """The key has one use and is not split."""
    return lambda key: {name: draw(key)}


ORACLES = {  # the second implementation, and the noise it is handed
    "vine": (vine, in_order(next=path, actor=path, match=match)),
    "rebrac": (rebrac, alone("next", normal)),
    "fql": (fql, in_order(next=normal, match=match, actor=normal)),
    "fawac": (fawac, in_order(next=start, match=match)),
    "ifql": (ifql, alone("match", match)),
    "dsrl": (dsrl, in_order(next=normal, match=match, latent=normal, actor=normal)),
    "fedit": (fedit, in_order(next=edit, match=match, actor=edit)),
    "fbrac": (fbrac, in_order(next=start, match=match, actor=start)),
    "bam": (bam, in_order(next=start, match=match, actor=path)),
    "qam": (qam, in_order(next=head, match=match, adjoint=path, head=head)),
    "dac": (score, in_order(next=path, level=level, noise=normal)),
    "cgql": (cgql, in_order(next=normal, match=match, noisy=noisy)),
}
ORACLES |= dict.fromkeys(("qam-fql", "qam-edit"), ORACLES["qam"])
ORACLES |= {"qsm": ORACLES["dac"], "cgql-m": ORACLES["cgql"], "cgql-l": ORACLES["cgql"]}
DRAWS_NOTHING = {"ifql"}  # while it learns


# What is compared: weights are such that every term of a loss has a say.

ESTIMATES, FLOW, TEACHER = ({"regulariser": x} for x in ("estimates", "flow", "teacher"))
EULER = {"sampler": "euler"}
MIN = {"critic": "residual", "target": "min"}  # VINE's recipe
STD = {"critic": "mlp", "target": "std"}  # QAM's
CASES = {
    "vine": ("vine", {"alpha": 0.7, "noise": 0.9, "stop_at": 2}),
    "vine estimates": ("vine", {"alpha": 0.7} | ESTIMATES),
    "vine flow": ("vine", {"alpha": 0.7} | FLOW),
    "vine teacher": ("vine", {"alpha": 0.7, "noise": 0.9} | TEACHER),
    "vine euler": ("vine", {"alpha": 0.7, "noise": 0.9} | EULER),
    "vine euler estimates": (
        "vine",
        {"alpha": 0.7, "critic_layout": "pre-norm"} | EULER | ESTIMATES,
    ),
    "vine euler flow": ("vine", {"alpha": 0.7, "actor_layer_norm": True} | EULER | FLOW),
    "vine euler teacher": ("vine", {"alpha": 0.7} | EULER | TEACHER | STD),
    "rebrac": ("rebrac", {"alpha": 0.3, "noise": 0.4}),
    "rebrac min": ("rebrac", {"alpha": 0.3, "noise": 0.4} | MIN),
    "fql": ("fql", {"alpha": 0.7}),
    "fawac": ("fawac", {"inv_temp": 0.8, "max_weight": 0.3}),
    "ifql": ("ifql", {"kappa": 0.8}),
    "ifql min": ("ifql", {"kappa": 0.8} | MIN),
    "dsrl": ("dsrl", {"noise_scale": 1.3}),
    "fedit": ("fedit", {"edit_scale": 0.4}),
    "fbrac": ("fbrac", {"alpha": 0.7}),
    "bam": ("bam", {"inv_temp": 2.0}),
    "bam min": ("bam", {"inv_temp": 2.0} | MIN),
    "qam": ("qam", {"inv_temp": 0.3}),
    "qam sde": ("qam", {"inv_temp": 0.3, "last_step": "sde"}),
    "qam-fql": ("qam-fql", {"inv_temp": 0.3, "alpha": 0.7}),
    "qam-edit": ("qam-edit", {"inv_temp": 0.3, "edit_scale": 0.4}),
    "dac": ("dac", {"alpha": 0.3}),
    "qsm": ("qsm", {"alpha": 0.7, "inv_temp": 2.0}),
    "qsm ancestral": ("qsm", {"alpha": 0.7, "inv_temp": 2.0, "sampler": "ancestral"}),
    "cgql": ("cgql", {"guidance": 0.3, "inv_temp": 2.0}),
    "cgql-m": ("cgql-m", {"guidance": 0.3, "inv_temp": 2.0, "noisy_weight": 0.3}),
    "cgql-l": ("cgql-l", {"guidance": 0.1, "inv_temp": 6.0, "noisy_weight": 0.3}),
}
SLOW = {"vine estimates", "vine flow", "vine euler teacher", "rebrac min", "ifql min", "bam min"}
SLOW |= {
    "vine euler estimates",
    "vine euler flow",
    "qam-fql",
    "qam-edit",
    "qsm",
    "cgql-m",
    "cgql-l",
}
SLOW |= {"dsrl", "fedit", "bam", "qam sde", "qsm ancestral"}


def marked(case: str, *values):
    return pytest.param(case, *values, marks=[pytest.mark.slow] if case in SLOW else [])


EVERY = pytest.mark.parametrize("case", [marked(case) for case in CASES])


class Ours(NamedTuple):
    """A loss as vinerl computes it, and all that it was computed from, in numpy's hands."""

    params: dict  # role -> flat parameters; those held constant are the same
    slow: dict
    batch: Batch
    noise: dict
    config: learner.AgentConfig
    loss: float
    grads: dict


@cache
def batch() -> Batch:
    """Chunks that are whole, that cross the end of an episode, and both where the task ends."""
    starts = jnp.array([0, 3, 6, 7, 8, 9, 13, 22, 23, 24, 30, 38, 39, 40, 45, 50])
    data = jax.tree.map(jnp.asarray, dataset())
    return jax.tree.map(np.float64, fold(data, starts, COMMON["horizon"], 0.9))


def drawn(shapes, seed: int):
    """Random parameters, so large that actions leave the box; no bias is 0."""
    draw = np.random.default_rng(seed)

    def leaf(path, x):
        kind = path[-1].key
        spread = GAIN / np.sqrt(x.shape[-2]) if kind == "kernel" else 0.3
        return (kind == "scale") + spread * draw.normal(size=x.shape)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


def flat(params) -> dict:
    numbers = jax.tree.map(np.asarray, params)
    return {role: flatten_dict(tree["params"], sep="/") for role, tree in numbers.items()}


@cache
def ours(case: str) -> Ours:
    name, changes = CASES[case]
    default, make = AGENTS[name]
    known = {field.name for field in fields(default)}
    config = replace(default, **{k: v for k, v in COMMON.items() if k in known} | changes)
    with jax.enable_x64(True):
        agent = make(config, SPEC)
        shapes = jax.eval_shape(partial(learner.init, agent), jax.random.key(0))
        params, slow = drawn(shapes.params, seed=1), drawn(shapes.targets, seed=2)
        state = learner.State(params, slow, (), jnp.zeros((), jnp.int32))
        key = jax.random.key(3, impl="unsafe_rbg")  # compiles in less time
        evaluate = jax.jit(jax.value_and_grad(lambda *inputs: agent.loss(*inputs)[0]))
        loss, grads = evaluate(params, state, batch(), key)
        noise = jax.tree.map(np.asarray, ORACLES[name][1](key))
        return Ours(flat(params), flat(slow), batch(), noise, config, float(loss), flat(grads))


def theirs(case: str, params: dict) -> float:
    """The oracle's loss where `params` learn."""
    it = ours(case)
    oracle, _ = ORACLES[CASES[case][0]]
    return oracle.loss(params, it.params, it.slow, it.batch, it.noise, it.config)


def moved(params: dict, step: float, way: dict) -> dict:
    return {name: x + step * way[name] for name, x in params.items()}


def assert_same_loss(case: str):
    it = ours(case)
    assert np.isfinite(it.loss)
    np.testing.assert_allclose(theirs(case, it.params), it.loss, rtol=LOSS)


def assert_same_gradients(case: str):
    """Along random directions, one network at a time, by central differences."""
    it, draw = ours(case), np.random.default_rng(4)
    for role, params in it.params.items():
        for _ in range(DIRECTIONS):
            way = {name: draw.normal(size=x.shape) for name, x in params.items()}
            ahead, behind = (
                theirs(case, it.params | {role: moved(params, h, way)}) for h in (STEP, -STEP)
            )
            slope = sum(np.sum(g * way[name]) for name, g in it.grads[role].items())
            assert slope != 0, role
            difference = (ahead - behind) / (2 * STEP)
            np.testing.assert_allclose(difference, slope, rtol=GRADIENT, err_msg=role)


# Tests


@EVERY
def test_losses_agree(case):
    assert_same_loss(case)


@EVERY
def test_gradients_agree(case):
    assert_same_gradients(case)


@EVERY
def test_sampled_actions_leave_the_box(case, monkeypatch):
    """Some coordinates of every action that is clipped, and not all of them."""
    clipped, box = [], basics.box
    monkeypatch.setattr(basics, "box", lambda x: clipped.append(np.abs(x) > 1) or box(x))
    theirs(case, ours(case).params)
    assert bool(clipped) == (CASES[case][0] not in DRAWS_NOTHING)
    assert all(0.02 < outside.mean() < 0.97 for outside in clipped)


def test_the_batch_has_every_kind_of_chunk():
    kinds = set(zip(batch().weight > 0, batch().discount > 0, strict=True))
    assert kinds == {(True, True), (True, False), (False, True), (False, False)}


def assert_agree(case: str):
    assert_same_loss(case)
    assert_same_gradients(case)


def plant(monkeypatch, oracle: str, old: str, new: str):
    """Run an oracle's functions as if its text had been edited."""
    module = sys.modules[f"oracle.{oracle}"]
    source = inspect.getsource(module)
    assert source.count(old) == 1, "a fault is one edit of what stands there"
    edited: dict[str, Any] = {}
    exec(source.replace(old, new), edited)
    for name, value in edited.items():
        if inspect.isfunction(value):
            monkeypatch.setattr(module, name, value)


@pytest.mark.parametrize(
    ("case", "fault"), [marked(case, fault) for case in FAULTS for fault in FAULTS[case]]
)
def test_a_fault_is_noticed(case, fault, monkeypatch):
    plant(monkeypatch, *FAULTS[case][fault])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_agree(case)


def test_every_oracle_is_given_faults_of_its_own():
    own = [name for faults in FAULTS.values() for name, _, _ in faults.values()]
    assert all(own.count(oracle.__name__.split(".")[-1]) >= 3 for oracle, _ in ORACLES.values())


def test_oracles_know_numpy_alone():
    for path in HERE.glob("*.py"):
        if path.name != Path(__file__).name:
            nodes = list(ast.walk(ast.parse(path.read_text())))
            used = {
                alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
            }
            used |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
            assert used <= {"numpy", "oracle"}, path


def test_input_gradients_are_exact_and_stop_at_the_box():
    cubed = lambda x: (basics.box(x) ** 3).sum(axis=-1)
    found = nets.gradient(cubed, np.array([[0.5, 2.0], [-1.5, -0.1]]))
    np.testing.assert_allclose(found, [[0.75, 0], [0, 0.03]], rtol=1e-15)


def test_every_agent_is_compared():
    assert {name for name, _ in CASES.values()} == set(AGENTS)


def test_double_precision_is_for_this_comparison_alone():
    ours("rebrac")
    assert jnp.ones(()).dtype == jnp.float32
