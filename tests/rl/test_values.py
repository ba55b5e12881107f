"""Critics as a config describes them, and what becomes of their opinions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vinerl.nets.critics import Critic, ResidualCritic
from vinerl.rl import values
from vinerl.rl.learner import AgentConfig

QS = jnp.array([[1.0, 4.0], [3.0, 4.0], [8.0, 4.0]])
STD = AgentConfig(critics=3, critic_hidden=(8, 8))
MIN = replace(STD, target="min", critic="residual")


def test_the_target_is_the_mean_less_rho_std_or_the_minimum():
    spread = np.std([1, 3, 8])
    np.testing.assert_allclose(values.target_value(STD, QS), [4 - 0.5 * spread, 4], rtol=1e-5)
    np.testing.assert_allclose(values.target_value(MIN, QS), [1, 4])


def test_the_actor_is_as_pessimistic_only_under_std():
    np.testing.assert_allclose(values.actor_value(STD, QS), values.target_value(STD, QS))
    np.testing.assert_allclose(values.actor_value(MIN, QS), [4, 4])


def test_critics_that_agree_still_have_a_gradient():
    gradient = jax.grad(lambda qs: values.pessimistic(qs, 0.5).sum())(QS)
    assert jnp.isfinite(gradient).all()
    np.testing.assert_allclose(gradient[:, 1], 1 / 3, rtol=1e-5)


@pytest.mark.parametrize(("cfg", "kind"), [(STD, Critic), (MIN, ResidualCritic)])
def test_the_config_chooses_kind_number_and_width(cfg, kind):
    critic = values.make_critic(cfg)
    assert isinstance(critic, kind)
    params = critic.init(jax.random.key(0), jnp.zeros((5, 3)), jnp.zeros((5, 2)))
    assert critic.apply(params, jnp.zeros((5, 3)), jnp.zeros((5, 2))).shape == (3, 5)
    assert values.make_critic(cfg, critics=1).critics == 1
