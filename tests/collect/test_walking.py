"""Teaching the ant to walk: its world, the loss in closed form, and that something is learned."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import ogbench.online_locomotion  # noqa: F401  (registers it)
import pytest
from ogbench.online_locomotion.wrappers import GymXYWrapper
from scipy import stats

from vinerl.collect import controllers, walking
from vinerl.collect.herd import LIMIT, TURN, Herd
from vinerl.collect.walking import Lesson, Replay

OBS, ACTION = 5, 2
LESSON = Lesson(steps=64, ants=8, updates=2, random_steps=16, hidden=16, batch_size=4)


@pytest.fixture(scope="module")
def state():
    return walking.init(LESSON, jax.random.key(0), OBS, ACTION)


def batch():
    draw = np.random.default_rng(0)
    obs, after = draw.normal(size=(2, 4, OBS)).astype(np.float32)
    action = draw.uniform(-1, 1, (4, ACTION)).astype(np.float32)
    reward = draw.normal(size=4).astype(np.float32)
    return Replay(*map(jnp.array, (obs, action, reward, np.array([1, 0, 1, 1], np.float32), after)))


# The herd


def test_the_herd_lives_in_the_benchmarks_world():
    """Observations and rewards are those of OGBench's own environment, from the same states."""
    env: Any = GymXYWrapper(gymnasium.make("online-ant-v0").unwrapped)
    env.reset(seed=0)
    herd, draw = Herd(3, threads=2, seed=0), np.random.default_rng(0)
    for _ in range(5):
        states, told = herd.state.copy(), herd.direction.copy()
        actions = draw.uniform(-1, 1, (3, 8))
        seen = herd.step(actions)
        for i in range(3):
            env.unwrapped.set_state(states[i, 1:16], states[i, 16:])
            env.z = told[i]
            obs, reward, *_ = env.step(actions[i])
            np.testing.assert_allclose(seen.obs[i], obs, atol=1e-5)
            np.testing.assert_allclose(seen.reward[i], reward, atol=1e-7)


def test_directions_turn_and_episodes_end_in_time():
    herd = Herd(2, threads=1, seed=0, falls=False)
    herd.age[:] = TURN - 1, LIMIT - 1
    before, places = herd.direction.copy(), herd.state[:, 1:3].copy()
    herd.state[:, 1:3] = places + 7
    herd.step(np.zeros((2, 8)))
    assert (herd.direction != before).all()
    assert herd.age.tolist() == [TURN, 0]
    assert np.abs(herd.state[0, 1:3] - 7).max() < 1
    assert np.abs(herd.state[1, 1:3]).max() < 1, "the second began anew"


def test_who_falls_has_ended_and_begins_anew():
    herd = Herd(2, threads=1, seed=0)
    herd.state[1, 3] = 5.0
    seen = herd.step(np.zeros((2, 8)))
    assert seen.ended.tolist() == [False, True]
    assert seen.obs[1, 0] > 1, "what is seen is from before"
    assert herd.height[1] < 1


# The loss


def test_the_density_of_an_action(state):
    """A Gaussian squashed by tanh; scipy's density and a numerical Jacobian."""
    actor, obs = state.params["actor"], batch().obs
    action, log = walking.sample(actor, obs, jax.random.key(1))
    h = obs
    for layer in actor[:2]:
        h = jax.nn.gelu(h @ layer["w"] + layer["b"])
    mean, spread = (np.asarray(h @ head["w"] + head["b"]) for head in actor[2:])
    raw = np.arctanh(np.asarray(action, float))
    expected = stats.norm.logpdf(raw, mean, np.exp(spread)) - np.log(1 - np.tanh(raw) ** 2)
    np.testing.assert_allclose(log, expected.sum(axis=1), atol=1e-3)


def test_the_critic_learns_from_the_slow_copy_and_the_entropy(state):
    """The gradient of the critic is that of a squared error to a goal computed by hand."""
    key, rows = jax.random.key(2), batch()
    params = state.params | {"temperature": jnp.log(0.3)}
    now = state._replace(params=params, target=jax.tree.map(lambda x: 1.5 * x, state.target))
    grads = jax.grad(lambda p: walking.sac_loss(LESSON, now, rows, key, p)[0])(params)

    key_next, _ = jax.random.split(key)
    after, log = walking.sample(params["actor"], rows.next_obs, key_next)
    slow = walking.values(now.target, rows.next_obs, after)
    goal = rows.reward + 0.99 * rows.mask * (slow.min(axis=0) - 0.3 * log)
    error = lambda c: jnp.mean((walking.values(c, rows.obs, rows.action) - goal) ** 2)
    expected = jax.grad(error)(params["critic"])
    for got, want in zip(*map(jax.tree.leaves, (grads["critic"], expected)), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_the_temperature_rises_when_there_is_too_little_entropy(state):
    """Its gradient is heat * (entropy - wanted), and wanted is minus half the actions."""
    rows, key = batch(), jax.random.key(3)
    _, key_actor = jax.random.split(key)
    _, log = walking.sample(state.params["actor"], rows.obs, key_actor)
    loss = lambda p: walking.sac_loss(LESSON, state, rows, key, p)[0]
    got = jax.grad(loss)(state.params)["temperature"]
    np.testing.assert_allclose(got, 1.0 * (-log.mean() + ACTION / 2), rtol=1e-5)


def test_an_update_moves_everything_and_the_slow_copy_a_little(state):
    after, _ = walking.update(LESSON, state, batch(), jax.random.key(0))
    for role in ("actor", "critic", "temperature"):
        pairs = zip(*map(jax.tree.leaves, (state.params[role], after.params[role])), strict=True)
        assert all(not np.array_equal(a, b) for a, b in pairs), role
    pieces = (state.target, after.params["critic"], after.target)
    for old, new, slow in zip(*map(jax.tree.leaves, pieces), strict=True):
        np.testing.assert_allclose(slow, 0.995 * old + 0.005 * new, atol=1e-7)


# The whole lesson


def test_a_lesson_ends_with_a_controller_and_repeats_itself(tmp_path):
    shown = []
    weights = walking.train(LESSON, 1, lambda *told: shown.append(told))
    assert [done for done, _ in shown] == list(range(8, 65, 8))
    assert "m a step" in shown[-1][1]
    controllers.save(tmp_path / "ant.safetensors", weights, "ant")
    assert set(controllers.read(tmp_path / "ant.safetensors", "ant")) == set(weights)
    again = walking.train(LESSON, 2)
    assert all(np.array_equal(weights[name], again[name]) for name in weights)
    untrained = walking.weights(walking.init(LESSON, jax.random.split(jax.random.key(0))[0], 29, 8))
    assert all(not np.array_equal(weights[name], untrained[name]) for name in weights)


def test_the_first_steps_are_random_and_nothing_is_learned_from_them():
    short = Lesson(steps=16, ants=8, updates=1, random_steps=100, hidden=16, batch_size=4)
    untrained = walking.weights(walking.init(short, jax.random.split(jax.random.key(0))[0], 29, 8))
    weights = walking.train(short, 1)
    assert all(np.array_equal(weights[name], untrained[name]) for name in weights)
