"""What examples/ shows works."""

import runpy
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, dataset, relative
from vinerl.bench.run import jobs
from vinerl.data import examine, files
from vinerl.flow import samplers
from vinerl.rl import learner
from vinerl.train import offline

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def own():
    return runpy.run_path(str(EXAMPLES / "own_data.py"))


def test_episodes_become_transitions_that_end_where_they_did(own):
    """Two steps that the task ended, then one that time ran out on."""
    column = lambda *numbers: np.array(numbers)[:, None]
    episodes = [
        own["Episode"](column(0.0, 1, 2), column(0.1, 0.2), np.array([5, 6]), True),
        own["Episode"](column(7.0, 8), column(0.3), np.array([9]), False),
    ]
    arrays = own["pack"](episodes)
    assert list(files.faults(arrays)) == []
    found = files.to_transitions(arrays, Path("x"))
    np.testing.assert_array_equal(found.obs[found.row, 0], [0, 1, 7])
    np.testing.assert_array_equal(found.obs[found.row + 1, 0], [1, 2, 8])
    np.testing.assert_allclose(found.action[:, 0], [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(found.reward, [5, 6, 9])
    np.testing.assert_array_equal(found.mask, [1, 0, 1])
    np.testing.assert_array_equal(found.terminal, [0, 1, 1])


def test_the_file_that_the_example_writes_has_only_actions_to_be_rescaled(tmp_path, monkeypatch):
    path = tmp_path / "my.npz"
    monkeypatch.setattr(sys, "argv", ["own_data.py", str(path)])
    runpy.run_path(str(EXAMPLES / "own_data.py"), run_name="__main__")
    found = examine.report(path)
    assert [f.key for f in found.findings if f.level == "wrong"] == ["actions"]
    assert "50 episodes" in found.text
    assert set(files.observations(files.read(path))) == {"camera", "joints"}


@pytest.fixture(scope="module")
def flow():
    return runpy.run_path(str(EXAMPLES / "own_flow.py"))


def backwards(u, noises, rule):
    """The loop of pi0 and LeRobot, from t = 1 to 0; `vine` as it is changed for VINE's sampler."""
    x, steps = noises[0], len(noises) - 1
    for k in range(steps):
        t = 1 - k / steps
        if rule == "vine":
            x = (1 - t) * x + t * noises[k + 1]
            x = x - t * u(x, t)
        else:
            x = x - u(x, t) / steps
    return x


@pytest.mark.parametrize("rule", samplers.STEPS)
def test_a_field_written_backwards_draws_the_same_chunks_once_it_is_turned(flow, rule):
    draw = np.random.default_rng(0)
    noises, mix = (draw.normal(size=s).astype(np.float32) for s in ((11, 5, 4, 2), (2, 2)))
    u = lambda x, t: jnp.tanh(x @ mix + t) + 0.3 * t
    times = samplers.grid(10)
    path = samplers.trace(samplers.STEPS[rule], flow["turned"](u), jnp.array(noises), times)
    np.testing.assert_allclose(path[-1], backwards(u, noises, rule), rtol=1e-5, atol=1e-5)


def test_a_flow_of_ones_own_is_drawn_and_tuned_with_either_sampler(flow, capsys):
    key, empty = jax.random.key(0), jnp.zeros((1, flow["H"], flow["A"]))
    start = flow["Network"]().init(key, jnp.zeros((1, 1)), empty, 1.0)
    cloned = flow["fit"](flow["clone_loss"], start, key, 400, 3e-3)
    for name, step in samplers.STEPS.items():
        loss = partial(flow["tune_loss"], step)
        tuned = flow["fit"](loss, cloned, key, 60, 1e-3, cloned, 1.0)
        before, after = (flow["measure"](step, params, key) for params in (cloned, tuned))
        assert after[0] > before[0] + 0.03
        assert after[2] > 0.1  # both sides are still there
        assert (before[3][0] == 0) == (name == "vine")
        flow["show"](name, step, tuned)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_an_agent_in_a_file_of_its_own_learns_and_its_weight_weighs_the_effort():
    config, make = jobs.agent(f"{EXAMPLES / 'my_agent.py'}:MINE")
    small = replace(config, actor_hidden=(8,), batch_size=16, flow_steps=2)

    @jax.jit
    def step(weight, data):
        agent = make(replace(small, weight=weight), SPEC)
        state = learner.init(agent, jax.random.key(0))
        batch = offline.draw(agent, data, jax.random.key(1))
        loss, seen = agent.loss(state.params, state, batch, jax.random.key(2))
        after, _ = learner.update(agent, state, batch, jax.random.key(2))
        action = agent.act(agent.policy(after), jnp.full((5, 3), 100.0), jax.random.key(3))
        return loss, seen, state.params, after.params, action

    once, seen, before, after, action = step(1.0, dataset())
    thrice, _, _, other, _ = step(3.0, dataset())
    assert float(once) == pytest.approx(float(seen["actor/loss"] + seen["actor/effort"]))
    assert float(thrice - once) == pytest.approx(2 * float(seen["actor/effort"]), rel=1e-4)
    assert relative(after, before) > 1e-4
    assert relative(other, after) > 1e-5
    assert action.shape == (5, 2)
    assert np.abs(action).max() <= 1
