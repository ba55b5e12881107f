"""What happens between blocks."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, assert_close, dataset, tiny
from vinerl.data import shards
from vinerl.data.shards import Shards
from vinerl.rl import learner
from vinerl.train import loop, offline, stack
from vinerl.train.offline import Stack
from vinerl.types import Batch

DATA = dataset()


@pytest.mark.parametrize(
    ("steps", "log", "evaluate", "expected"),
    [(1000, 100, 50, 50), (6000, 100, 1000, 100), (30, 12, 0, 6), (7, 7, 7, 7)],
)
def test_the_interval_divides_everything_that_is_due(steps, log, evaluate, expected):
    assert loop.interval(steps, log, evaluate) == expected


@pytest.fixture
def clock(monkeypatch):
    """Time passes only where a block spends it."""

    class Clock:
        now = 0.0

        def block(self, per_step, once=0.0):
            tried = []

            def run(runs, data, steps):
                self.now += once * (not tried) + per_step * steps
                tried.append(steps)
                return runs, {}

            return run, tried

    clock = Clock()
    monkeypatch.setattr(loop.time, "perf_counter", lambda: clock.now)
    return clock


@pytest.mark.parametrize(
    ("per_step", "limit", "expected"),
    [(0.1, 100, 20), (1e-4, 1000, 1000), (1e-3, 10_000, 2000), (5.0, 100, 1), (0.1, 7, 7)],
)
def test_a_block_is_the_divisor_nearest_to_two_seconds(clock, per_step, limit, expected):
    block, _ = clock.block(per_step, once=60.0)
    assert loop.choose(block, {"x": jnp.zeros(1)}, DATA, limit) == expected


def test_trying_takes_no_longer_than_a_block(clock):
    block, tried = clock.block(1e-3)
    loop.choose(block, {"x": jnp.zeros(1)}, DATA, 10**6)
    assert clock.now < loop.SECONDS
    assert max(tried) <= 10**6


def test_choosing_leaves_the_stack_as_it_was():
    """Blocks donate their input, so each try is on a copy."""
    config, make = tiny("vine")
    config = replace(config, flow_steps=1)
    agent_of = stack.maker(make, config, SPEC)
    runs = offline.start(agent_of, stack.members(config, seeds=(0,)))
    before, block = jax.tree.map(jnp.copy, runs), offline.train_block(agent_of)
    data = jax.device_put(DATA)
    length = loop.choose(block, runs, data, 12)
    assert 12 % length == 0
    assert all(jax.tree.leaves(jax.tree.map(jnp.array_equal, before, runs)))
    after, _ = block(runs, data, 2)
    assert after.state.step.tolist() == [2]
    assert block._cache_size() == 1, "choosing costs no second compilation"


class Steps:
    """A state of which only the step is looked at."""

    def __init__(self, *step):
        self.step = np.array(step)


def fit(monkeypatch, *, steps, length, log_every, first=0, bad_at=()):
    """The moments of two members whose blocks count themselves; member i is frozen at bad_at[i]."""
    monkeypatch.setattr(offline, "diagnose", lambda agent_of: lambda runs, data: {"seen": runs})
    lengths = []

    def block(runs, data, length):
        lengths.append(length)
        step = runs.state.step.max() + length
        status = [int(i < len(bad_at) and step >= bad_at[i]) for i in range(2)]
        after = Stack(runs.member, Steps(*np.where(status, runs.state.step, step)), status)
        return after, {"loss": jnp.array([step, -step]), "q_max": jnp.array([-step, step])}

    plan = {"steps": steps, "length": length, "log_every": log_every, "first": first}
    start = Stack(None, Steps(first, first), [0, 0])
    moments = list(loop.fit(None, block, start, DATA, **plan))
    assert set(lengths) == {length}
    return moments


def test_metrics_come_when_they_are_due_and_at_the_end(monkeypatch):
    moments = fit(monkeypatch, steps=14, length=2, log_every=4)
    assert [m.step for m in moments] == [2, 4, 6, 8, 10, 12, 14]
    assert [m.step for m in moments if m.metrics] == [4, 8, 12, 14]
    assert [m.metrics["loss"].tolist() for m in moments if m.metrics] == [
        [3, -3],
        [7, -7],
        [11, -11],
        [14, -14],
    ]
    assert moments[1].metrics["q_max"].tolist() == [-2, 4]
    assert moments[1].metrics["seen"] is moments[1].stack, "the costly ones are of that moment"


@pytest.mark.parametrize("first", [0, 4, 6])
def test_each_block_and_its_diagnosis_get_the_data_of_its_first_step(monkeypatch, first):
    asked, used, looked = [], [], []
    diagnose = lambda runs, data: looked.append(data) or {}
    monkeypatch.setattr(offline, "diagnose", lambda agent_of: diagnose)

    def block(runs, data, length):
        used.append(data)
        return runs, {"loss": jnp.zeros(1)}

    at = lambda step: asked.append(step) or f"data of {step}"
    plan = {"steps": 10, "length": 2, "log_every": 4, "first": first}
    list(loop.fit(None, block, Stack(None, Steps(first), [0]), at, **plan))
    assert asked == list(range(first, 10, 2))
    assert used == [f"data of {step}" for step in asked]
    assert looked == [f"data of {step}" for step in (2, 6, 8) if step >= first]


def test_three_shards_that_take_turns_equal_a_plain_loop(tmp_path):
    """Lengths differ; the block compiles once; and from the middle on it is the same again."""
    parts = [dataset(n, seed=n) for n in (50, 71, 60)]
    paths = [write(tmp_path / f"{i}.npz", part) for i, part in enumerate(parts)]
    config, make = tiny("vine")
    config = replace(config, flow_steps=1, horizon=2, chunk=True)
    spec = SPEC._replace(action_dim=2 * SPEC.action_dim)
    agent_of = stack.maker(make, config, spec)
    members = stack.members(config, seeds=(0, 4))
    block = offline.train_block(agent_of)

    def fit(runs, first, steps):
        at = Shards(lambda path: parts[paths.index(path)], paths, until=steps, every=4)
        plan = {"steps": steps, "length": 2, "log_every": 100, "first": first}
        *_, moment = loop.fit(agent_of, block, runs, at, **plan)
        return jax.device_get(moment.stack)

    found = fit(offline.start(agent_of, members), 0, 24)
    assert block._cache_size() == 1
    halfway = fit(offline.start(agent_of, members), 0, 10)
    jax.tree.map(np.testing.assert_array_equal, fit(halfway, 10, 24), found)

    start = offline.start(agent_of, members)
    for i in range(2):
        member, state = jax.tree.map(lambda x, i=i: x[i], (start.member, start.state))
        agent, key = agent_of(member), stack.keys(member).train
        update = jax.jit(partial(learner.update, agent))
        for step in range(24):
            key_batch, key_update = jax.random.split(jax.random.fold_in(key, step))
            batch = plain_batch(config, parts[shards.turn(step, 4, 3)], key_batch)
            state, _ = update(state, batch, key_update)
        assert int(state.step) == 24
        assert_close(jax.tree.map(lambda x, i=i: x[i], found.state.params), state.params)


def write(path, data):
    """An OGBench file of the same size: only that is looked at."""
    rows = len(data.obs)
    ends = np.isin(np.arange(rows), data.row[data.terminal == 1] + 1)
    np.savez(path, observations=np.zeros((rows, 3)), actions=np.zeros((rows, 2)), terminals=ends)
    return path


def plain_batch(config, data, key):
    """Gathered one by one in NumPy, from data without any padding."""
    batch, horizon, gamma = [], config.horizon, config.discount
    starts = jax.random.randint(key, (config.batch_size,), 0, len(data.row) - horizon + 1)
    for i in np.asarray(starts).tolist():
        ends = np.flatnonzero(data.terminal[i : i + horizon])
        last = i + (int(ends[0]) if len(ends) else horizon - 1)
        reward = sum(gamma ** (j - i) * float(data.reward[j]) for j in range(i, last + 1))
        discount = gamma**horizon * data.mask[i : last + 1].min()
        action = data.action[i : i + horizon].ravel()
        next_obs, weight = data.obs[data.row[last] + 1], float(last == i + horizon - 1)
        batch.append(Batch(data.obs[data.row[i]], action, reward, discount, next_obs, weight))
    columns = (np.stack([np.float32(x) for x in column]) for column in zip(*batch, strict=True))
    return Batch(*columns)


def test_a_run_goes_on_where_it_was(monkeypatch):
    moments = fit(monkeypatch, steps=8, length=2, log_every=4, first=4)
    assert [m.step for m in moments] == [6, 8]


def test_a_run_goes_on_while_one_member_is_left(monkeypatch):
    moments = fit(monkeypatch, steps=8, length=2, log_every=4, bad_at=(2,))
    assert [m.step for m in moments] == [2, 4, 6, 8]


def test_a_run_stops_when_no_member_is_left(monkeypatch):
    moments = fit(monkeypatch, steps=20, length=2, log_every=20, bad_at=(2, 6))
    assert [m.step for m in moments] == [2, 4, 6]
    assert moments[-1].metrics, "and says what it saw last"


def test_a_summary_is_the_mean_of_means_and_the_largest_of_largest():
    window = [{"loss": jnp.array([1.0, 2.0]), "q_max": jnp.array([5.0, 1.0])}]
    window += [{"loss": jnp.array([3.0, 6.0]), "q_max": jnp.array([4.0, 2.0])}]
    found = loop.summary(window)
    assert {name: x.tolist() for name, x in found.items()} == {"loss": [2, 4], "q_max": [5, 2]}
