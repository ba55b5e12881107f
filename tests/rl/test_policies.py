"""Ways to turn networks into actions."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from vinerl.errors import InputError
from vinerl.nets.actors import Gaussian, NoisePredictor, mish
from vinerl.rl.learner import Agent, AgentConfig, State
from vinerl.rl.policies import best_of, choosing, edited, tanh_gaussian
from vinerl.types import TIME, Spec

OBS = jnp.zeros((4, 3))
SPEC = Spec(jax.ShapeDtypeStruct((3,), jnp.float32), action_dim=2)


def draw(params, obs, key):
    return jax.random.uniform(key, (len(obs), 2), minval=-1, maxval=1)


def test_the_best_of_one_is_plain_drawing_bit_for_bit():
    key = jax.random.key(3)
    chosen = best_of(1, draw, lambda obs, a: -a.sum(axis=-1))({}, OBS, key)
    assert jnp.array_equal(chosen, draw({}, OBS, key))


def test_the_best_of_n_is_the_best_of_its_draws():
    key, score = jax.random.key(4), lambda obs, a: a.sum(axis=-1)
    chosen = best_of(16, draw, score)({}, OBS, key)
    every = np.stack([draw({}, OBS, k) for k in jax.random.split(key, 16)])
    np.testing.assert_allclose(chosen.sum(axis=-1), every.sum(axis=-1).max(axis=0), rtol=1e-6)


def test_the_chosen_value_rises_with_n():
    score = lambda obs, a: a.sum(axis=-1)
    obs = jnp.zeros((2000, 3))
    means = [
        float(score(obs, best_of(n, draw, score)({}, obs, jax.random.key(n))).mean())
        for n in (1, 4, 16, 64)
    ]
    assert means == sorted(means)
    assert means[0] == pytest.approx(0, abs=0.06)
    assert means[3] > 1.5


class Pair(nn.Module):
    """Critics of 3 a_0 and -a_0 times their parameter, so a_0 in the mean; at t = 0 the reverse."""

    @nn.compact
    def __call__(self, obs, action, t=None):
        sign = 1 if t is None else 2 * t[:, 0] - 1
        scale = self.param("scale", nn.initializers.ones, ())
        return scale * sign * jnp.stack([3 * action[:, 0], -action[:, 0]])


def one_of(n, inputs=(SPEC.obs, SPEC.action), own=()):
    """An agent whose actions are uniform in the box, and its state; `own` are slow critics."""
    networks = {"critic": (Pair(), inputs)} if inputs else {}
    scale = lambda x: {"params": {"scale": jnp.float32(x)}}
    state = State({"critic": scale(1)}, {"critic": scale(-1)}, None, jnp.zeros(()))
    policy = lambda state: {role: state.targets[role] for role in own}
    loss = lambda *_: (jnp.zeros(()), {})
    return Agent(AgentConfig(best_of=n), networks, (), loss, policy, draw), state


def chosen(n, obs=OBS, **options):
    agent, state = one_of(n, **options)
    agent = choosing(agent)
    return agent.act(agent.policy(state), obs, jax.random.key(n))


def test_an_agent_that_draws_once_is_left_alone():
    agent, state = one_of(1)
    assert choosing(agent) is agent
    assert choosing(agent).policy(state) == {}
    assert choosing(one_of(1, inputs=())[0]).networks == {}


@pytest.mark.parametrize("n", [3, 7, 15])
def test_an_agent_acts_with_the_draw_of_the_highest_mean_value(n):
    """The largest of n numbers that are uniform in [-1, 1] is (n - 1) / (n + 1) on average."""
    obs = jnp.zeros((4000, 3))
    every = np.stack([draw({}, obs, k) for k in jax.random.split(jax.random.key(n), n)])
    best = every[every[..., 0].argmax(axis=0), np.arange(4000)]
    found = chosen(n, obs)
    np.testing.assert_array_equal(found, best)
    assert float(found[:, 0].mean()) == pytest.approx((n - 1) / (n + 1), abs=0.03)


def test_a_critic_that_takes_the_time_is_asked_at_the_end_of_it():
    timed = chosen(5, inputs=(SPEC.obs, SPEC.action, TIME))
    np.testing.assert_array_equal(timed, chosen(5))


def test_an_agent_that_acts_with_critics_chooses_with_those():
    """Here with the slow ones, which are the online ones' opposite."""
    every = np.stack([draw({}, OBS, k) for k in jax.random.split(jax.random.key(5), 5)])
    np.testing.assert_array_equal(chosen(5, own=("critic",))[:, 0], every[..., 0].min(axis=0))


@pytest.mark.parametrize("inputs", [(), (SPEC.obs,), (SPEC.obs, SPEC.action, SPEC.action)])
def test_without_a_critic_of_actions_there_is_nothing_to_choose_with(inputs):
    with pytest.raises(InputError, match=r"--agent.best_of 2: this agent has no critic"):
        choosing(one_of(2, inputs=inputs)[0])


def test_the_density_of_a_squashed_gaussian():
    mean, log_std = jnp.array([[0.3, -0.5]]), jnp.array([[-0.7, 0.2]])
    action, log_prob = tanh_gaussian((mean, log_std), jax.random.key(0))
    raw = np.arctanh(np.asarray(action, float))
    expected = stats.norm.logpdf(raw, mean, np.exp(log_std)) - np.log(1 - np.tanh(raw) ** 2)
    assert float(log_prob[0]) == pytest.approx(expected.sum(), abs=1e-4)


def test_the_density_stays_finite_where_the_action_is_saturated():
    _, log_prob = tanh_gaussian((jnp.array([[30.0, -30.0]]), jnp.zeros((1, 2))), jax.random.key(0))
    assert jnp.isfinite(log_prob).all()


def test_an_edit_is_bounded_and_stays_in_the_box():
    editor = Gaussian((8,), 2)
    action = jnp.array([[0.95, -0.95]] * 4)
    params = editor.init(jax.random.key(0), OBS, action)
    params = jax.tree.map(lambda x: 50 * x + 1, params)
    moved, log_prob = edited(editor, params, OBS, action, 0.2, jax.random.key(1))
    assert jnp.abs(moved).max() <= 1
    assert jnp.abs(moved - action).max() <= 0.2 + 1e-6
    assert log_prob.shape == (4,)


def test_the_noise_predictor_knows_the_level_through_its_frequencies():
    """Levels that differ by a whole turn of every frequency cannot be told apart."""
    net = NoisePredictor((16, 16), 2, frequencies=4)
    x = jnp.ones((4, 2))
    params = net.init(jax.random.key(0), OBS, x, jnp.ones((4, 1)))
    at = lambda params, i: net.apply(params, OBS, x, jnp.full((4, 1), i))
    assert not jnp.allclose(at(params, 1), at(params, 3))
    whole = {"params": params["params"] | {"rates": jnp.ones((1, 4))}}
    np.testing.assert_allclose(at(whole, 1), at(whole, 3), atol=1e-4)


def test_mish_by_hand():
    x = np.array([-2.0, 0.0, 1.5])
    np.testing.assert_allclose(mish(jnp.array(x)), x * np.tanh(np.log1p(np.exp(x))), rtol=1e-5)
