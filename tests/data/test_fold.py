"""Folding: by hand, and against a plain loop."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, dataset
from vinerl.data.fold import fold, transitions
from vinerl.errors import InputError
from vinerl.types import Spec


def by_hand(mask=(1, 1, 1, 1, 0, 1)):
    """Three episodes, of 3, 2 and 1 transitions; an observation says which row it is in.

    transition |  0    1    2  |  3    4  |  5  |
    row        |  0    1    2  |  4    5  |  7  |    rows 3, 6 and 8 are final observations
    reward     |  1    2    4  |  8   16  | 32  |
    """
    terminal = [0, 0, 1, 0, 1, 1]
    action = np.arange(6.0)[:, None] / 10
    obs = np.arange(9, dtype=np.float32)[:, None]
    data = transitions(obs, action, 2.0 ** np.arange(6), mask, terminal)
    return jax.tree.map(jnp.asarray, data)


def test_one_step_by_hand():
    batch = fold(by_hand(), jnp.arange(6), 1, 0.5)
    assert batch.obs[:, 0].tolist() == [0, 1, 2, 4, 5, 7]
    assert batch.next_obs[:, 0].tolist() == [1, 2, 3, 5, 6, 8]
    assert batch.reward.tolist() == [1, 2, 4, 8, 16, 32]
    assert batch.discount.tolist() == [0.5, 0.5, 0.5, 0.5, 0, 0.5]
    assert batch.weight.tolist() == [1] * 6, "a single step is always whole"


def test_a_chunk_across_an_end_stops_there_and_has_no_weight():
    batch = fold(by_hand(), jnp.arange(5), 2, 0.5)
    assert batch.reward.tolist() == [1 + 1, 2 + 2, 4, 8 + 8, 16]
    assert batch.next_obs[:, 0].tolist() == [2, 3, 3, 6, 6]
    assert batch.weight.tolist() == [1, 1, 0, 1, 0]
    assert batch.discount.tolist() == [0.25, 0.25, 0.25, 0, 0], "always gamma ** h, or 0"
    np.testing.assert_allclose(batch.action[2], [0.2, 0.3])  # raw, as far as the chunk goes


def test_a_chunk_over_two_ends_stops_at_the_first():
    batch = fold(by_hand(), jnp.array([2, 1]), 4, 0.5)
    assert batch.reward.tolist() == [4, 2 + 2]
    assert batch.next_obs[:, 0].tolist() == [3, 3]
    assert batch.weight.tolist() == [0, 0]


def test_after_a_success_inside_the_chunk_rewards_still_count_but_nothing_is_bootstrapped():
    batch = fold(by_hand(mask=(0, 1, 1, 1, 1, 1)), jnp.array([0]), 3, 0.5)
    assert batch.reward.tolist() == [1 + 1 + 1]
    assert batch.discount.tolist() == [0]
    assert batch.weight.tolist() == [1]


def test_a_success_past_the_end_is_another_episodes():
    batch = fold(by_hand(mask=(1, 1, 1, 0, 1, 1)), jnp.array([2]), 2, 0.5)
    assert batch.discount.tolist() == [0.25]


def plain_loop(data, i, horizon, gamma):
    reward, mask, last, alive = 0.0, 1.0, i, True
    for j in range(horizon):
        weight = float(alive)
        if alive:
            reward += gamma**j * float(data.reward[i + j])
            mask, last = min(mask, float(data.mask[i + j])), i + j
        alive = alive and not data.terminal[i + j]
    row = last + int(np.sum(data.terminal[:last])) + 1  # earlier episodes left one row more each
    return reward, gamma**horizon * mask, row, weight


@pytest.mark.parametrize("chunk", [True, False])
@pytest.mark.parametrize("horizon", [1, 2, 4, 20])
def test_fold_equals_a_plain_loop(horizon, chunk):
    data = dataset()
    starts = np.arange(len(data.row) - horizon + 1)
    batch = jax.jit(partial(fold, horizon=horizon, chunk=chunk))(data, starts, discount=0.9)
    expected = [plain_loop(data, i, horizon, 0.9) for i in starts]
    reward, discount, row, weight = (np.array(column) for column in zip(*expected, strict=True))
    np.testing.assert_allclose(batch.reward, reward, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch.discount, discount, rtol=1e-5)
    np.testing.assert_array_equal(batch.weight, weight)
    np.testing.assert_array_equal(batch.next_obs, data.obs[row])
    np.testing.assert_array_equal(batch.obs, data.obs[data.row[starts]])
    steps = horizon if chunk else 1
    actions = [data.action[i : i + steps].ravel() for i in starts]
    np.testing.assert_array_equal(batch.action, actions)


def test_a_tree_is_folded_leaf_by_leaf_and_keeps_its_types():
    obs = {"camera": jax.ShapeDtypeStruct((4, 4, 3), jnp.uint8), "joints": SPEC.obs}
    data = jax.tree.map(jnp.asarray, dataset(spec=Spec(obs, 2)))
    batch = fold(data, jnp.array([9, 10]), 1, 0.9)
    assert batch.obs["camera"].dtype == jnp.uint8
    for name in obs:
        np.testing.assert_array_equal(batch.obs[name], data.obs[name][jnp.array([9, 11])])
        np.testing.assert_array_equal(batch.next_obs[name], data.obs[name][jnp.array([10, 12])])


@pytest.mark.parametrize("rows", [8, 10])
def test_every_episode_needs_one_observation_more_than_it_has_actions(rows):
    with pytest.raises(InputError, match=f"6 transitions in 3 episodes, but {rows} rows"):
        transitions(np.zeros((rows, 1)), np.zeros((6, 1)), *np.zeros((2, 6)), [0, 0, 1, 0, 1, 1])
