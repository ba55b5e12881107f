"""The online phase: what is kept, what is drawn from it, and going on with it."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import live_envs
from tiny import SPEC, assert_close, dataset, tiny
from vinerl.data.fold import fold, transitions
from vinerl.envs.live import Lanes, Live
from vinerl.errors import InputError
from vinerl.rl.learner import AgentConfig
from vinerl.train import checkpoint, groups, loop, offline, online, stack
from vinerl.train.online import Mixed, Online
from vinerl.types import Spec

SEEDS = (0, 1, 5)
CHUNKS = Spec(SPEC.obs, action_dim=4)  # two steps of two numbers
DATA = dataset()


class Here(Live):
    """Environments in this process, asked in the same words."""

    def __init__(self, name="live_envs:Sum"):
        self.workers, self.lanes = self, Lanes(name)

    def __len__(self):
        return 1

    def send(self, w, header, arrays):
        self.reply = self.lanes.answer(header, arrays)

    def receive(self, w):
        return self.reply


def plain(act, live=None, seeds=SEEDS, spec=CHUNKS, capacity=40, **options):
    """A phase whose members act by `act` (obs [S, ...], t) and learn nothing."""
    config, make = tiny("rebrac")
    members = stack.members(config, seeds)
    horizon = spec.action_dim // 2
    phase = Online(
        stack.maker(make, config, spec),
        members,
        spec,
        live or Here(),
        capacity=capacity,
        horizon=horizon,
        **options,
    )
    phase.act = lambda members, policies, noises, obs, episode, time: act(
        obs[:, 0], int(time[0, 0])
    )
    phase.policies = lambda runs: None
    phase.block = lambda runs, mixed, updates: (runs + updates, {})
    return phase


def by_clock(obs, t):
    """Chunks (t, t + 0.5) of both numbers, in hundredths."""
    return np.tile(np.repeat([t, t + 0.5], 2) / 100, (len(obs), 1))


def by_sight(obs, t):
    return np.tanh(obs @ np.arange(12).reshape(3, 4) / 50 + t / 10)


def told(seed, actions):
    """Plain oracle: what a member with this seed sees, from its actions [T, 2]."""
    found, episode, time = [], 0, 0
    for action in actions:
        if time == 0:
            start, total = online.start_seed(seed, episode), 0.0
        before = (start % 100, time, total)
        time, total = time + 1, total + float(action.sum())
        solved = live_envs.solves(start) and time == 3
        found.append((before, (start % 100, time, total), solved, solved or time == 5))
        episode, time = (episode + 1, 0) if found[-1][3] else (episode, time)
    return found


def test_everything_that_happened_is_kept_in_order():
    phase = plain(by_sight)
    for _ in range(3):
        phase(0, DATA, 7)
    rows = phase.own
    assert rows.count.tolist() == [21] * 3, "replay length equals environment steps"
    masked, limited = 0, 0
    for m, seed in enumerate(SEEDS):
        for t, (before, after, solved, over) in enumerate(
            told(seed, np.array(rows.action[m, :21]))
        ):
            np.testing.assert_allclose(rows.obs[m, 2 * t], before, rtol=1e-6)
            np.testing.assert_allclose(rows.obs[m, rows.row[m, t] + 1], after, rtol=1e-6)
            assert rows.reward[m, t] == (0 if solved else -1)
            assert (rows.mask[m, t], rows.terminal[m, t]) == (not solved, over)
            masked, limited = masked + solved, limited + (over and not solved)
    assert min(masked, limited) > 2, "both kinds of ends have been seen"


def test_what_is_no_number_cuts_an_episode_off_and_is_not_kept():
    """The second observation of every episode is NaN: the first stands for it, and it goes on."""
    lanes = Lanes("toy_envs:Exploding")
    lanes.answer({"do": "reset", "slots": [0], "seeds": [7]}, [])
    step = lambda: lanes.answer({"do": "step", "slots": [0]}, [np.zeros((1, 1, 2), np.float32)])
    said = [step() for _ in range(2)]
    assert [obs[0].tolist() for _, obs in said] == [[[1, 7]], [[1, 7]]]
    ends = [(x["terminated"], x["truncated"]) for header, _ in said for x in header["reports"]]
    assert ends == [(False, False), (False, True)]


def test_a_reward_that_is_no_number_is_the_lowest_that_was_given():
    """Not 0, which is success; -1 where it is the first of all episodes."""
    lanes = Lanes("toy_envs:Unpaid")
    lanes.answer({"do": "reset", "slots": [0, 1], "seeds": [1, 0]}, [])
    still = np.zeros((1, 1, 2), np.float32)
    step = lambda slot: lanes.answer({"do": "step", "slots": [slot]}, [still])[0]["reports"][0]
    assert [step(0)["reward"] for _ in range(3)] == [-3.0, -2.0, -3.0]
    assert step(1) == {"terminated": False, "truncated": True, "reward": -1.0}
    lanes.answer({"do": "reset", "slots": [0], "seeds": [0]}, [])
    assert step(0)["reward"] == -3.0


def test_whoever_has_diverged_stands_still():
    phase = plain(lambda obs, t: np.full((len(obs), 4), np.nan))
    phase(0, DATA, 6)
    np.testing.assert_array_equal(phase.rows.action[:, :6], 0.0)
    assert np.isfinite(phase.rows.obs[:, :12]).all()


def test_a_chunk_is_executed_open_loop_and_ends_with_its_episode():
    phase = plain(by_clock, seeds=(0,))
    phase(0, DATA, 12)
    ends = [bool(x) for x in phase.rows.terminal[0, :12]]
    expected, queue = [], []
    for t in range(12):
        queue = queue or [t, t + 0.5]
        expected.append(queue.pop(0) / 100)
        queue = [] if ends[t] else queue
    np.testing.assert_allclose(phase.rows.action[0, :12, 0], expected, rtol=1e-6)
    assert any(t % 2 == 0 for t in np.flatnonzero(ends)), "an end in the middle of a chunk"


def test_a_member_does_the_same_in_any_company():
    alone, together = plain(by_sight, seeds=(5,)), plain(by_sight)
    for phase in (alone, together):
        phase(0, DATA, 15)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[0], y[2]), alone.rows, together.rows)
    assert len({online.start_seed(seed, i) for seed in range(9) for i in range(9)}) == 81


@pytest.mark.parametrize(("utd", "updates"), [("1", 6), ("3", 18), ("1/2", 3), ("3/2", 9)])
def test_updates_are_counted(utd, updates):
    phase = plain(by_sight, utd=Fraction(utd))
    assert phase(0, DATA, 6)[0] == updates
    assert phase(updates, DATA, 6)[0] == 2 * updates


def test_observations_are_kept_as_the_policy_sees_them_and_rewards_as_the_data_have_them():
    plainly = plain(by_clock, seeds=(1,))
    other = plain(by_clock, seeds=(1,), see=lambda x: x / 4, label=lambda reward: 10 * reward)
    for phase in (plainly, other):
        phase(0, DATA, 9)
    np.testing.assert_array_equal(other.rows.obs, plainly.rows.obs / 4)
    np.testing.assert_array_equal(other.rows.reward, plainly.rows.reward * 10)


def marked(count, horizon=2, batch_size=4000):
    """An agent to draw for, and steps whose actions say which they are: 3 of the data, 103 own.

    What lies behind the last own step is NaN.
    """
    agent = SimpleNamespace(config=AgentConfig(batch_size=batch_size, horizon=horizon, chunk=False))
    own = jax.tree.map(lambda x: x[0], online.room(SPEC, 1, 30, 2))
    own.action[:] = 100 + np.arange(30)[:, None]
    own.reward[count:], own.obs[2 * count :] = np.nan, np.nan
    data = DATA._replace(action=np.zeros_like(DATA.action) + np.arange(60)[:, None])
    return agent, Mixed(data, own._replace(count=np.int32(count)))


def drawn(draw, agent, mixed):
    batch = draw(agent, mixed, jax.random.key(0))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(batch)), "none behind the last step"
    return np.asarray(batch.action[:, 0], int)


def test_a_draw_takes_every_start_of_both_alike():
    found = drawn(online.draw, *marked(count=20))
    assert set(found) == {*range(59), *range(100, 119)}
    share, expected = (found >= 100).mean(), 19 / (59 + 19)
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000)


def test_a_balanced_draw_takes_half_from_each():
    found = drawn(online.draw_balanced, *marked(count=3))
    assert set(found) == {*range(59), 100, 101}
    assert (found >= 100).sum() == 2000


@pytest.mark.parametrize("draw", [online.draw, online.draw_balanced])
def test_before_there_is_a_whole_window_all_comes_from_the_data(draw):
    assert set(drawn(draw, *marked(count=1))) == set(range(59))


def test_with_nothing_own_a_draw_is_the_offline_one_bit_for_bit():
    agent, mixed = marked(count=0, batch_size=64)
    mixed = mixed._replace(data=DATA)
    ours = online.draw(agent, mixed, jax.random.key(3))
    theirs = offline.draw(agent, jax.tree.map(jnp.asarray, DATA), jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_ends_fold_as_in_a_dataset():
    """The same steps, stored as a dataset stores them."""
    phase = plain(by_sight, seeds=(5,))
    phase(0, DATA, 20)
    own = jax.tree.map(lambda x: x[0], phase.own)
    last = int(np.flatnonzero(own.terminal[:20])[-1])
    kept = [i for t in range(last + 1) for i in ([2 * t] + [2 * t + 1] * int(own.terminal[t]))]
    columns = (np.asarray(x[: last + 1]) for x in own[2:6])
    data = jax.tree.map(jnp.asarray, transitions(np.asarray(own.obs)[kept], *columns))
    starts = jnp.arange(last + 1 - 2)
    for chunk in (True, False):
        ours, theirs = (fold(x, starts, 3, 0.9, chunk) for x in (own, data))
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    assert set(np.asarray(ours.weight).tolist()) == {0.0, 1.0}
    assert set(np.asarray(ours.discount > 0).tolist()) == {True, False}


def through_disk(saved, path, count):
    checkpoint.save(path / "replay", saved)
    like = online.blank(CHUNKS, len(SEEDS), 2, count)
    return checkpoint.load(path / "replay", like)


@pytest.mark.parametrize("first", [5, 6, 7, 8, 9])
def test_a_phase_goes_on_as_if_nothing_had_been(tmp_path, first):
    """At any place of an episode and of a chunk: fresh environments, the same steps."""
    whole, before, after = (plain(by_sight) for _ in range(3))
    for phase in (whole, before):
        phase(0, DATA, first)
    after.restore(through_disk(before.save(), tmp_path, first))
    assert after.count == first
    for phase in (whole, after):
        phase(0, DATA, 11)
    jax.tree.map(np.testing.assert_array_equal, after.rows, whole.rows)
    jax.tree.map(np.testing.assert_array_equal, after.own, whole.own)
    jax.tree.map(np.testing.assert_array_equal, after.save(), whole.save())


def test_what_was_saved_does_not_change_with_what_follows():
    phase = plain(by_sight)
    phase(0, DATA, 5)
    saved = phase.save()
    copy = jax.tree.map(np.array, saved)
    phase(0, DATA, 5)
    jax.tree.map(np.testing.assert_array_equal, saved, copy)


def test_an_environment_that_does_not_repeat_itself_is_refused():
    before = plain(by_sight, Here("live_envs:Drift"))
    before(0, DATA, 7)
    with pytest.raises(InputError, match=r"seed \d: its environment does not repeat"):
        plain(by_sight, Here("live_envs:Drift")).restore(before.save())


def test_workers_answer_as_one_process_does():
    many, here = Live("live_envs:Sum", slots=3, workers=2), Here()
    try:
        for live in (many, here):
            live.reset([0, 1, 2], [10, 11, 12])
        for action in np.random.default_rng(0).normal(size=(4, 3, 2)).astype(np.float32):
            jax.tree.map(
                np.testing.assert_array_equal,
                many.step([1, 2, 0], action),
                here.step([1, 2, 0], action),
            )
        np.testing.assert_array_equal(many.reset([1], [7])[0], here.reset([1], [7])[0])
    finally:
        many.close()


def test_a_stack_learns_on_and_acts_with_what_it_has_learned():
    """A real agent: updates go on counting, noise and policies differ, the data stay shared."""
    config, make = tiny("rebrac")
    config = replace(config, noise=0.3)
    agent_of, members = stack.maker(make, config, SPEC), stack.members(config, (0, 1))
    phase = Online(
        agent_of, members, SPEC, Here(), capacity=12, utd=Fraction(1, 2), see=lambda x: x / 1000
    )
    runs = offline.start(agent_of, members)
    before = jax.tree.map(np.array, runs.state.params)
    moments = list(
        loop.fit(agent_of, phase, runs, DATA, steps=112, length=4, log_every=8, first=100)
    )
    assert [moment.step for moment in moments] == [104, 108, 112]
    assert moments[-1].stack.state.step.tolist() == [6, 6], "half an update a step"
    seen = moments[-1].metrics
    assert seen["online/rows_max"].tolist() == [12, 12]
    np.testing.assert_allclose(seen["online/reward"], phase.rows.reward[:, 8:].mean(axis=1))
    actions = phase.rows.action
    assert len(np.unique(actions[..., 0])) == 24, "no two steps have the same noise"
    assert (np.abs(actions) <= 1).all()
    changed = jax.tree.map(
        lambda x, y: bool((x != y).any()), before, moments[-1].stack.state.params
    )
    assert all(jax.tree.leaves(changed))


def test_members_that_learn_in_groups_learn_each_from_its_own_steps():
    config, make = tiny("rebrac")
    agent_of, members = stack.maker(make, config, SPEC), stack.members(config, SEEDS)
    found = []
    for among in (None, groups.deal(3, 2)):
        phase = Online(agent_of, members, SPEC, Here(), capacity=8, balanced=True, among=among)
        runs = offline.start(agent_of, members)
        for _ in range(2):
            runs, seen = phase(runs, DATA, 4)
        found.append((runs, seen, phase.rows.action))
    assert_close(*found)
