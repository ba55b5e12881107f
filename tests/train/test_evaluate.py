"""Rollouts in worker processes: the same episodes however they are dealt out."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, tiny
from toy_envs import seen_first
from vinerl.data.normalise import Normaliser
from vinerl.envs.pool import Pool
from vinerl.envs.worker import Slots
from vinerl.errors import WorkerError
from vinerl.train import evaluate, offline, stack

LEAF = jax.ShapeDtypeStruct((2,), jnp.float32)
SEEDS = [10, 11, 12, 13]  # episodes of 4, 5, 3 and 4 steps


class Spy:
    """A policy that remembers what it was asked; `answer` may use the same arguments."""

    def __init__(self, answer=lambda obs, episode, time: np.zeros((*time.shape, 2))):
        self.answer, self.calls = answer, []

    def __call__(self, *asked):
        self.calls.append(jax.tree.map(np.copy, asked))
        return self.answer(*asked)


def roll(act, name="Echo", *, members=2, lanes=4, workers=2, seeds=SEEDS, horizon=1, **options):
    options = {"tree": LEAF} | options
    with Pool(f"toy_envs:{name}", members * lanes, workers) as pool:
        return evaluate.rollouts(act, pool, members, seeds, horizon, **options)


def marked(obs, episode, time):
    """Actions that tell member, episode, time and what was seen."""
    member = np.arange(len(time))[:, None] + np.zeros(time.shape)
    seen = obs.sum(axis=-1) / 2000
    return np.stack([member - 0.5 + episode / 100, seen + time / 100], axis=-1).clip(-1, 1)


def test_success_is_that_of_the_last_step():
    """An episode of n steps acts at times 0 to n - 1."""
    last = np.array([3 + seed % 3 for seed in SEEDS]) - 1

    def act(obs, episode, time):
        at_the_end = np.where(time == last[episode], 1.0, -1.0)
        return np.stack([at_the_end, at_the_end], -1) * np.array([1, -1])[:, None, None]

    right, left = roll(act)
    assert [r.success for r in right] == [1, 1, 1, 1], "to the right only at the end"
    assert [r.success for r in left] == [0, 0, 0, 0], "to the right until the end"


def test_where_success_is_not_told_it_is_the_end_by_the_task_itself():
    (reports,) = roll(Spy(), "Fallen", members=1)
    assert [(r.success, len(r.rewards)) for r in reports] == [(1.0, 1)] * 4


def test_chunks_are_executed_open_loop_and_cut_at_the_end_of_an_episode():
    chunk = lambda obs, episode, time: np.stack([time, time, time + 0.5, time + 0.5], -1) / 10
    spy = Spy(chunk)
    ((report,),) = roll(spy, members=1, lanes=1, seeds=[11], horizon=2)
    assert np.transpose(report.path)[0] == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    seen = [float(obs[0, 0, 0]) for obs, _, _ in spy.calls]
    assert seen == [0, 2, 4], "the policy is asked again only after a chunk"


@pytest.fixture(scope="module")
def plainly():
    return roll(marked, lanes=1, workers=1)


@pytest.mark.parametrize(("lanes", "workers"), [(1, 2), (2, 3), (3, 1), (7, 2)])
def test_episodes_are_the_same_for_any_number_of_workers_and_lanes(plainly, lanes, workers):
    assert roll(marked, lanes=lanes, workers=workers) == plainly


def test_every_episode_has_its_own_seed_and_members_share_it(plainly):
    for member in plainly:
        assert [set(report.rewards) for report in member] == [{seed} for seed in SEEDS]
        assert [len(report.path) for report in member] == [4, 5, 3, 4]
    assert plainly[0][0].path != plainly[1][0].path, "but each acts for itself"


def test_start_seeds_differ_between_evaluations_and_episodes_and_repeat_themselves():
    seeds = evaluate.start_seeds(1000, 50) + evaluate.start_seeds(2000, 50)
    assert len(set(seeds)) == 100
    assert evaluate.start_seeds(1000, 3) == seeds[:3]
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_all_members_act_in_one_call():
    spy = Spy()
    roll(spy, members=3, lanes=4)
    assert len(spy.calls) == 5, "as often as the longest episode is long"
    assert {time.shape for _, _, time in spy.calls} == {(3, 4)}
    assert {obs.shape for obs, _, _ in spy.calls} == {(3, 4, 2)}


def test_observations_are_normalised_before_the_policy_sees_them():
    plain, spy = Spy(), Spy()
    mean, std = np.float32([1, 10]), np.float32([2, 100])
    roll(plain, members=1)
    roll(spy, members=1, see=Normaliser(mean, std))
    for (raw, *_), (obs, *_) in zip(plain.calls, spy.calls, strict=True):
        np.testing.assert_allclose(obs, (raw - mean) / std, rtol=1e-6)


def test_an_image_and_a_vector_arrive_intact():
    image = jax.ShapeDtypeStruct((8, 8, 3), jnp.uint8)
    spy = Spy()
    roll(spy, "Camera", members=1, tree={"state": LEAF, "image": image})
    obs, episode, _ = spy.calls[0]
    assert obs["image"].dtype == np.uint8
    for n, seed in enumerate(np.array(SEEDS)[episode[0]]):
        expected = seen_first(seed)
        np.testing.assert_array_equal(obs["image"][0, n], expected["image"])
        np.testing.assert_allclose(obs["state"][0, n], expected["state"], rtol=1e-6)


def test_a_worker_that_raises_says_where():
    with pytest.raises(RuntimeError, match=r"(?s)worker \d .*toy_envs.*Traceback.*fell over"):
        roll(Spy(), "Broken")


def test_a_worker_that_is_killed_is_named():
    with Pool("toy_envs:Echo", 2, 2) as pool:

        def act(obs, episode, time):
            if time.max() == 1:
                pool.workers.processes[1].kill()
                pool.workers.processes[1].wait()
            return np.zeros((1, 2, 2))

        with pytest.raises(RuntimeError, match=r"worker 1 .*toy_envs:Echo.* exit code -9"):
            evaluate.rollouts(act, pool, 1, SEEDS, 1, LEAF)


def test_an_episode_that_ends_in_nan_is_a_failure_and_marked():
    for report in roll(Spy(), "Exploding", members=1)[0]:
        assert (report.success, len(report.rewards), report.broken) == (0.0, 2, True)
    assert not any(report.broken for report in roll(Spy(), members=1)[0])


GOAL = "pointmaze-medium-singletask-task5-v0"  # where MuJoCo begins anew is this task's goal


def answer(spoil, action=0.0):
    """Of an episode of a maze in which something happens before the first step."""
    slots = Slots(GOAL)
    slots.answer({"do": "reset", "slots": [0], "seeds": [3]}, [])
    spoil(slots.slots[0].env.unwrapped.data)
    chunk = np.full((1, 1, 2), action, np.float32)
    header, obs = slots.answer({"do": "step", "slots": [0]}, [chunk])
    return header["reports"], obs[0]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its warnings into a file where it is."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("action", [np.nan, np.inf])
def test_an_action_that_is_no_number_is_not_executed(action, elsewhere):
    """MuJoCo would set the point to 0, 0, which is the goal, and the episode would succeed."""
    (report,), obs = answer(lambda data: None, action)
    assert (report["success"], report["broken"], report["rewards"]) == (0.0, True, [])
    assert np.isfinite(obs).all()


def test_an_episode_in_which_mujoco_begins_anew_is_a_failure_and_marked(elsewhere):
    (report,), obs = answer(lambda data: data.qpos.__setitem__(slice(None), np.nan))
    assert np.abs(obs).max() < 1.5, "it stands at the goal, in numbers"
    assert (report["success"], report["broken"]) == (0.0, True)
    assert answer(lambda data: None)[0] == [], "without a fault it goes on"


def test_a_worker_that_hangs_is_given_up():
    with Pool("toy_envs:Stuck", 1, 1, patience=0.5) as pool:
        with pytest.raises(WorkerError, match=r"toy_envs:Stuck.* does not answer for 0.5 s"):
            evaluate.rollouts(Spy(), pool, 1, SEEDS, 1, LEAF)
        pool.start = partial(pool.start, patience=60)  # a slow machine is not at fault
        pool.restart()
        assert pool.describe() == {"limit": None}, "fresh workers answer"


def test_a_pool_that_is_closed_while_it_restarts_leaves_no_worker():
    with Pool("toy_envs:Echo", 1, 1) as pool:
        begin = pool.start

        def start():
            pool.close()  # another thread, just before the new workers are there
            return begin()

        pool.start = start
        with pytest.raises(WorkerError, match="the pool is closed"):
            pool.restart()
        assert pool.workers.processes[0].poll() is not None


def test_a_teleporter_throws_the_same_dice_in_any_company():
    """Its exit is drawn from a generator that all environments of a worker share."""

    def paths(lanes, workers):
        with Pool("toy_envs:Teleporter", lanes, workers) as pool:
            act = lambda obs, episode, time: np.zeros((*time.shape, 2))
            return [r.path for r in evaluate.rollouts(act, pool, 1, SEEDS, 1, LEAF)[0]]

    assert paths(1, 1) == paths(4, 1) == paths(4, 2)


def test_an_environment_that_cannot_be_imported_is_named():
    with Pool("toy_envs:Nothing", 1, 1) as pool, pytest.raises(RuntimeError, match="Nothing"):
        pool.describe()


CONFIG, MAKE = tiny("vine")
CONFIG = replace(CONFIG, flow_steps=2)
AGENT_OF = stack.maker(MAKE, CONFIG, SPEC)


@pytest.fixture(scope="module")
def acting():
    """(evaluation, obs [S, N], episodes [S, N], times [S, N]) -> actions, for two members."""
    runs = offline.start(AGENT_OF, stack.members(CONFIG, seeds=(3, 3, 7)))
    policies = evaluate.policies(AGENT_OF)(runs)
    # All three act with the weights of the first, so that only the noise tells them apart.
    policies = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), policies)
    return partial(evaluate.acting(AGENT_OF), runs.member, policies)


def test_noise_is_of_seed_evaluation_episode_and_time(acting):
    obs = np.zeros((3, 4, 3), np.float32)
    episodes, times = np.tile([0, 0, 1, 1], (3, 1)), np.tile([0, 1, 0, 1], (3, 1))
    first, again, other = (np.asarray(acting(e, obs, episodes, times)) for e in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first[0], first[1], rtol=1e-6)
    rows = np.concatenate([first[0], first[2], other[0]])
    assert len(np.unique(rows.round(6), axis=0)) == len(rows), "every noise is another"


def test_an_episode_acts_the_same_in_any_company(acting):
    """Whatever the other lanes see, and in whichever lane it is."""
    draw = np.random.default_rng(0)
    obs = draw.normal(size=(3, 4, 3)).astype(np.float32)
    episodes, times = np.tile([8, 2, 5, 3], (3, 1)), np.tile([1, 0, 4, 2], (3, 1))
    order = [2, 0, 3, 1]
    straight = np.asarray(acting(5, obs, episodes, times))
    shuffled = np.asarray(acting(5, obs[:, order], episodes[:, order], times[:, order]))
    np.testing.assert_allclose(shuffled, straight[:, order], rtol=1e-6)


def test_a_policy_is_only_what_acting_needs():
    runs = jax.eval_shape(partial(offline.start, AGENT_OF), stack.members(CONFIG, seeds=(0, 1)))
    policies = jax.eval_shape(evaluate.policies(AGENT_OF), runs)
    assert set(policies) == {"actor"}
    chooser = stack.maker(MAKE, CONFIG, SPEC, best_of=2)
    assert set(jax.eval_shape(evaluate.policies(chooser), runs)) == {"actor", "critic"}
