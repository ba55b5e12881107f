"""What every agent promises, whatever its algorithm."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, assert_close, dataset, relative, tiny
from vinerl.agents import AGENTS
from vinerl.rl import learner
from vinerl.train import offline, stack
from vinerl.types import Spec

DATA = dataset()
UPDATES = 20
VARIANTS = {  # agents with more than one face
    "vine": [
        {"sampler": "euler"},
        {"regulariser": "estimates"},
        {"regulariser": "flow"},
        {"regulariser": "teacher"},
        {"actor_layer_norm": True},
        {"critic_layout": "pre-norm"},
        {"horizon": 3, "chunk": True},
        {"horizon": 3, "chunk": False},
        {"stop_at": 2},
        {"target_every": 2},
        {"precision": "bfloat16"},
        {"critic": "mlp", "target": "std"},
    ],
    "rebrac": [{"critic": "residual", "target": "min"}],
    "fql": [{"horizon": 3}],
    "qam": [{"last_step": "sde"}],
    "qam-edit": [{"precision": "bfloat16"}],
    "qsm": [{"sampler": "ancestral"}],
    "fedit": [{"draws": 4}],
}
# Floats that change nothing where another field has its default.
IDLE = {
    "vine": {"rho"},
    "rebrac": {"noise_clip"},
    "fawac": {"max_weight"},
    "qam": {"alpha", "edit_scale", "entropy_per_dim"},
    "qam-fql": {"edit_scale", "entropy_per_dim"},
    "qam-edit": {"alpha"},
    "dac": {"inv_temp"},
    "cgql": {"noisy_weight"},
}
CASES = {name: (name, {}) for name in AGENTS} | {
    " ".join([name, *(f"{field}={value}" for field, value in changes.items())]): (name, changes)
    for name, variants in VARIANTS.items()
    for changes in variants
}
EVERY = pytest.mark.parametrize("case", CASES)
FLOATS_ENTER_DIFFERENTLY = ["sampler=euler", "regulariser=flow", "regulariser=teacher"]
FAST = ["vine", *(f"vine {change}" for change in FLOATS_ENTER_DIFFERENTLY), "fql", "qam-edit"]
STACKED = pytest.mark.parametrize(  # these compile the largest programs
    "case", [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in AGENTS if n not in FAST)]
)


class Trained(NamedTuple):
    """Updates of one agent outside any stack, every float field changed from its default."""

    make: learner.Make
    default: learner.AgentConfig
    spec: Spec
    agent: learner.Agent
    act: Callable
    states: list[learner.State]
    metrics: list[dict]


def changed(config):
    far = {"tau": 0.5, "noise": 0.5, "lr_end": 0.3, "lr": 1e-3}
    # Adam does not see the scale of a gradient that is clipped in every step.
    far["max_grad_norm"] = 0.5 if np.isinf(config.max_grad_norm) else np.inf
    floats = {name: getattr(config, name) for name in stack.stackable(config)}
    return replace(config, **{name: far.get(name, 0.9 * value) for name, value in floats.items()})


@cache
def train(case) -> Trained:
    name, changes = CASES[case]
    default, make = tiny(name)
    default = replace(default, lr_steps=10, **changes)
    spec = SPEC._replace(action_dim=SPEC.action_dim * (default.horizon if default.chunk else 1))
    agent = make(changed(default), spec)
    keys = stack.keys(stack.Member(jnp.uint32(1), {}))
    step = jax.jit(lambda state, data: offline.train_step(agent, data, keys.train, state))
    states, seen = [jax.jit(partial(learner.init, agent))(keys.init)], []
    for _ in range(UPDATES):
        state, metrics = step(states[-1], DATA)
        states.append(state)
        seen.append(metrics)
    return Trained(make, default, spec, agent, jax.jit(agent.act), states, seen)


def distance(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), a, b)))


@EVERY
def test_every_network_learns(case):
    _, _, _, agent, _, (first, *_, last), seen = train(case)
    assert set(last.params) == set(agent.networks)
    for name in agent.networks:
        still = jax.tree.map(np.array_equal, first.params[name], last.params[name])
        assert not any(jax.tree.leaves(still)), name
        assert all(metrics[f"grad_norm/{name}"] > 0 for metrics in seen)
    assert all(np.isfinite(value) for metrics in seen for value in metrics.values())
    assert {x.dtype for x in jax.tree.leaves(last.params)} == {np.dtype("float32")}
    assert last.step == UPDATES


@EVERY
def test_targets_follow_slowly_and_one_step_behind(case):
    agent, states = train(case).agent, train(case).states
    cfg, first = agent.config, states[0]
    assert set(first.targets) == set(agent.targets)
    for n, (old, new) in enumerate(pairwise(states[:4]), start=1):
        rate = cfg.tau if n % cfg.target_every == 0 else 0.0
        for name in agent.targets:
            mix = lambda slow, online, rate=rate: slow + rate * (online - slow)
            assert_close(new.targets[name], jax.tree.map(mix, old.targets[name], old.params[name]))
            moved = distance(new.targets[name], first.targets[name]) > 1e-5
            assert moved == (n >= max(2, cfg.target_every)), "the first mixes in the start itself"


@EVERY
def test_a_policy_is_enough_to_act_and_actions_stay_in_the_box(case):
    _, _, spec, agent, act, states, _ = train(case)
    policy = agent.policy(states[-1])
    assert set(policy) <= set(agent.networks)
    key, obs = jax.random.key(1), jnp.zeros((5, 3)).at[0].set(100.0)
    action = act(policy, obs, key)
    assert action.shape == (5, spec.action_dim)
    assert action.dtype == jnp.float32
    assert jnp.all(jnp.abs(action) <= 1)
    assert jnp.array_equal(action, act(policy, obs, key)), "all chance is in the key"


def trace_all(agent, state):
    """Trace, without compiling, all that takes a key; each under a function never seen before."""
    batch = jax.eval_shape(partial(offline.draw, agent), DATA, jax.random.key(0))
    step = lambda *a: offline.train_step(agent, *a)
    jax.jit(step).trace(DATA, jax.random.key(0), state)
    jax.jit(lambda *a: agent.diagnose(*a)).trace(state, batch, jax.random.key(0))
    jax.jit(lambda *a: agent.act(*a)).trace(agent.policy(state), batch.obs, jax.random.key(0))


@EVERY
def test_no_random_key_is_used_twice(case):
    with jax.debug_key_reuse(True):
        trace_all(train(case).agent, train(case).states[0])


def test_a_random_key_that_is_used_twice_is_noticed():
    agent, state = train("vine").agent, train("vine").states[0]
    twice = lambda *a: (agent.loss(*a)[0] + agent.loss(*a)[0], {})
    with jax.debug_key_reuse(True), pytest.raises(jax.errors.KeyReuseError):
        trace_all(agent._replace(loss=twice), state)


@STACKED
def test_a_stack_over_every_float_field_equals_separate_runs(case):
    """The last member has every field of the agent trained alone, the others one of them each.
    Every one of those differs from the default, so no field was overlooked."""
    make, default, spec, agent, _, states, _ = train(case)
    names = stack.stackable(default)
    alone = [replace(default, **{name: getattr(agent.config, name)}) for name in names]
    members = [stack.members(cfg, [1]) for cfg in (default, *alone, agent.config)]
    limits = default.max_grad_norm, agent.config.max_grad_norm
    agent_of = stack.maker(make, replace(default, max_grad_norm=limits), spec)
    runs = offline.start(agent_of, jax.tree.map(lambda *x: jnp.concatenate(x), *members))
    runs, _ = offline.train_block(agent_of)(runs, DATA, UPDATES)
    pick = lambda i: jax.tree.map(lambda x: x[i], (runs.state.params, runs.state.targets))
    assert relative(pick(-1), (states[-1].params, states[-1].targets)) < 1e-5
    for i, name in enumerate(names, start=1):
        moved = relative(pick(i), pick(0))
        assert moved == 0 if name in IDLE.get(CASES[case][0], ()) else moved > 1e-5, name
