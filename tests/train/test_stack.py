"""Many runs in one program are the runs that they would be alone."""

import importlib
from dataclasses import fields, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, dataset, relative, tiny
from vinerl.rl import learner
from vinerl.train import offline, stack

CONFIG, MAKE = tiny("vine")
# So that lr_end has a say in 20 updates, and rho any.
CONFIG = replace(CONFIG, lr_steps=20, target="std")
FAR = {"max_grad_norm": 0.5, "tau": 0.5, "noise": 0.3, "alpha": 3.0, "lr_end": 0.1}
CHANGED = {f: FAR.get(f, 0.8 * getattr(CONFIG, f)) for f in stack.stackable(CONFIG)}
SEEDS = (3, 9, 7, 4)

# Members of many configs, some of which have a limit.
AGENT_OF = stack.maker(MAKE, replace(CONFIG, max_grad_norm=(np.inf, 0.5)), SPEC)
START = jax.jit(partial(offline.start, AGENT_OF))
BLOCK = offline.train_block(AGENT_OF)
DATA = jax.device_put(dataset())


def trained(members):
    """The states after 20 updates."""
    return BLOCK(START(members), DATA, 20)[0].state


def pick(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


def join(*members):
    return jax.tree.map(lambda *x: jnp.concatenate(x), *members)


def test_a_stack_is_every_seed_with_every_combination_of_values():
    members = stack.members(replace(CONFIG, alpha=(1.0, 3.0), tau=[0.1, 0.2]), seeds=(4, 7))
    found = zip(members.seed, members.floats["tau"], members.floats["alpha"], strict=True)
    expected = [(s, t, a) for s in (4, 7) for t in (0.1, 0.2) for a in (1, 3)]
    assert [tuple(map(float, x)) for x in found] == [pytest.approx(x) for x in expected]


def test_every_float_field_of_a_member_is_in_it():
    members = stack.members(CONFIG, seeds=(0,))
    assert set(members.floats) == {f.name for f in fields(CONFIG) if f.type is float}
    assert set(members.floats) >= {"lr", "discount", "tau", "max_grad_norm", "alpha", "noise"}


def test_float_fields_are_found_where_annotations_are_postponed(tmp_path, monkeypatch):
    (tmp_path / "postponed_config.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from vinerl.rl.learner import AgentConfig\n"
        "@dataclass(frozen=True)\n"
        "class Config(AgentConfig):\n"
        "    warmth: float = 2.0\n"
        "    count: int = 2\n"
        "    maybe: float | None = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = importlib.import_module("postponed_config").Config(warmth=(1.0, 2.0))
    members = stack.members(config, seeds=(0,))
    assert members.floats["warmth"].tolist() == [1, 2]
    assert not {"count", "maybe"} & set(members.floats)


@pytest.fixture(scope="module")
def four():
    return trained(stack.members(CONFIG, SEEDS))


def test_four_stacked_seeds_equal_four_single_runs(four):
    for i, seed in enumerate(SEEDS):
        alone = trained(stack.members(CONFIG, (seed,)))
        assert relative(pick(four, i), pick(alone, 0)) < 1e-5, seed


def test_a_seed_is_the_same_run_in_any_stack(four):
    other = trained(stack.members(CONFIG, (7, 0, 1, 2)))
    assert relative(pick(other, 0), pick(four, SEEDS.index(7))) < 1e-5


def test_another_seed_is_another_run(four):
    """Its weights, and with the same weights its batches and noise."""
    begin = START(stack.members(CONFIG, SEEDS))
    assert relative(pick(begin.state.params, 0), pick(begin.state.params, 1)) > 0.1
    alike = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), begin.state)
    after = BLOCK(begin._replace(state=alike), DATA, 1)[0].state
    assert relative(pick(after.optimizer, 1), pick(after.optimizer, 0)) > 0.1


@pytest.fixture(scope="module")
def changed():
    """For every float field the run in which it alone is not the default; stacks of four."""
    several = [stack.members(replace(CONFIG, **{f: v}), (1,)) for f, v in CHANGED.items()]
    several += [stack.members(CONFIG, (1,))] * (-len(several) % 4)
    parts = [trained(join(*several[i : i + 4])) for i in range(0, len(several), 4)]
    return dict(zip(CHANGED, (pick(part, i) for part in parts for i in range(4)), strict=False))


@pytest.mark.parametrize("field", CHANGED)
def test_a_stacked_float_field_equals_a_separate_run(changed, field):
    alone = trained(stack.members(replace(CONFIG, **{field: CHANGED[field]}), (1,)))
    assert relative(changed[field], pick(alone, 0)) < 1e-5
    default = trained(stack.members(CONFIG, (1,)))
    assert relative(changed[field], pick(default, 0)) > 1e-3, "or the field is not tested"


def test_a_member_equals_an_agent_that_knows_its_values_as_plain_numbers():
    config = replace(CONFIG, **CHANGED)
    agent, keys = MAKE(config, SPEC), stack.keys(stack.Member(jnp.uint32(1), {}))
    step = jax.jit(lambda state: offline.train_step(agent, DATA, keys.train, state)[0])
    state = jax.jit(partial(learner.init, agent))(keys.init)
    for _ in range(20):
        state = step(state)
    assert relative(pick(trained(stack.members(config, (1,))), 0), state) < 1e-5


def test_a_fixed_field_holds_for_all_members():
    member = pick(stack.members(replace(CONFIG, noise=(0.5, 1.0)), (0,)), 1)
    assert stack.maker(MAKE, CONFIG, SPEC, noise=0.0)(member).config.noise == 0.0


def test_a_limit_that_no_member_has_is_not_computed_and_changes_nothing():
    """Not one bit: the same block with a limit that is never reached."""
    members = stack.members(CONFIG, SEEDS)
    unlimited = stack.maker(MAKE, CONFIG, SPEC)
    assert unlimited(pick(members, 0)).config.max_grad_norm == np.inf
    state = offline.train_block(unlimited)(START(members), DATA, 20)[0].state
    assert jax.tree.all(jax.tree.map(jnp.array_equal, state, trained(members)))
