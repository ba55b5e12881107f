"""Rows left out without a transition made up, and actions moved into the box and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_files import ENDS, NOWHERE, N, compact, spelled_out

from vinerl.data import files
from vinerl.data.repair import drop_bad_rows, rescale, unscale

STATE = ("observations", "next_observations", "qpos")
STEP = ("actions", "rewards", "masks")


def transitions_of(arrays):
    """Each good transition as (state, action, reward, mask, next state), in a plain loop."""
    spelled, found = "next_observations" in arrays, []
    fine = lambda names, row: all(np.isfinite(arrays[n][row]).all() for n in names if n in arrays)
    for row in range(len(arrays["actions"])):
        if not spelled and (arrays["terminals"][row] or not fine(STATE, row + 1)):
            continue
        if fine(STATE, row) and fine(STEP, row):
            name, at = ("next_observations", row) if spelled else ("observations", row + 1)
            step = [arrays[n][row] for n in ("observations", *STEP)]
            found.append(np.hstack([*step, arrays[name][at]]).tolist())
    return found


def learned_from(arrays):
    """The same of what training makes of arrays."""
    files.check(arrays, NOWHERE)
    data = files.to_transitions(arrays, NOWHERE)
    columns = (data.obs[data.row], data.action, data.reward, data.mask, data.obs[data.row + 1])
    return np.hstack([x.reshape(len(x), -1) for x in columns])


places = st.tuples(st.sampled_from([*STATE, *STEP]), st.integers(0, N - 1), st.integers(0, 2))


@settings(deadline=None, max_examples=200)
@given(st.booleans(), st.lists(places, min_size=1, max_size=6), st.sampled_from([np.nan, -np.inf]))
def test_exactly_the_good_transitions_are_left(spelled, where, value):
    arrays = spelled_out() if spelled else compact()
    for name, row, column in where:
        if name in arrays:
            x = arrays[name]
            x.reshape(len(x), -1)[row % len(x), column % x[0].size] = value
    expected = transitions_of(arrays)
    left, dropped = drop_bad_rows(arrays)
    assert dropped == len(arrays["actions"]) - len(left["actions"])
    assert {len(x) for x in left.values()} == {len(left["actions"])}
    if expected:
        np.testing.assert_allclose(learned_from(left), expected, atol=2e-5)
    else:
        assert not len(left["actions"])


def test_an_episode_falls_into_pieces():
    """Episodes end in rows 3, 8 and 11; row 5 has no observation, row 9 no action."""
    arrays = compact()
    arrays["observations"][5, 1] = np.nan
    arrays["actions"][9, 0] = np.inf
    left, dropped = drop_bad_rows(arrays)
    rows = [0, 1, 2, 3, 6, 7, 8, 10, 11]
    assert dropped == 3  # row 5, and rows 4 and 9, each alone
    np.testing.assert_array_equal(left["qpos"], arrays["qpos"][rows])
    assert left["terminals"].tolist() == [0, 0, 0, 1, 0, 0, 1, 0, 1]
    assert left["terminals"].dtype == bool
    np.testing.assert_array_equal(left["masks"], arrays["masks"][rows])


def test_a_cut_is_a_truncation():
    """Row 6 is bad, so its episode stops in row 5 and is bootstrapped from there."""
    arrays = compact()
    arrays["observations"][6] = np.nan
    data = files.to_transitions(drop_bad_rows(arrays)[0], NOWHERE)
    assert data.terminal.tolist() == [0, 0, 1, 1, 1, 0, 1]
    assert data.mask.tolist() == [1, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("name", STEP)
def test_the_end_of_an_episode_survives_a_final_row_without_an_action(name):
    """Nothing follows a final observation, and some files say so with NaN."""
    arrays = compact()
    before = learned_from(arrays)
    arrays[name][ENDS] = np.nan
    left, dropped = drop_bad_rows(arrays)
    assert dropped == 0
    np.testing.assert_array_equal(learned_from(left), before)


def test_a_bandit_keeps_its_good_rows():
    arrays = spelled_out() | {"terminals": np.ones(N - len(ENDS))}
    arrays["rewards"][[0, 4]] = np.nan
    left, dropped = drop_bad_rows(arrays)
    assert dropped == 2
    assert len(learned_from(left)) == 7


def test_arrays_that_are_fine_or_of_another_length_stay_as_they_are():
    arrays = compact(version=np.array(3), names=np.zeros(5))
    assert drop_bad_rows(arrays) == (arrays, 0)
    arrays["observations"][0] = np.nan
    given = arrays["actions"].copy()
    left, _ = drop_bad_rows(arrays)
    assert left["version"] == 3
    assert len(left["names"]) == 5
    np.testing.assert_array_equal(arrays["actions"], given)


# Actions


def test_each_dimension_gets_its_own_scale():
    actions = np.zeros((N, 3), np.float32)
    actions[:, 0] = np.resize([0, 10, 5], N)
    actions[:, 1] = np.resize([-0.5, 0.5, 0.25], N)
    actions[:, 2] = 7
    arrays, low, high = rescale(compact(actions=actions))
    assert low.tolist() == [0, -0.5, 7]
    assert high.tolist() == [10, 0.5, 7]
    used = ~arrays["terminals"]
    expected = np.stack([np.resize([-1, 1, 0], N), np.resize([-1, 1, 0.5], N), np.zeros(N)], axis=1)
    np.testing.assert_array_equal(arrays["actions"][used], expected[used])
    np.testing.assert_array_equal(unscale(arrays["actions"], low, high), actions)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(-100, 100), st.floats(1e-3, 1e3), st.booleans())
def test_there_and_back(seed, shift, width, spelled):
    arrays = spelled_out() if spelled else compact()
    draw, used = np.random.default_rng(seed), files.used(arrays)
    actions = shift + width * draw.normal(size=arrays["actions"].shape)
    scaled, low, high = rescale(arrays | {"actions": actions})
    files.check(scaled, NOWHERE)
    assert scaled["actions"][used].min(axis=0).tolist() == [-1, -1]
    assert scaled["actions"][used].max(axis=0).tolist() == [1, 1]
    back = unscale(scaled["actions"], low, high)
    np.testing.assert_allclose(back[used], actions[used], atol=1e-5 * (abs(shift) + 5 * width))


def test_an_action_that_is_not_taken_has_no_say():
    arrays = compact()
    arrays["actions"][ENDS] = 1000
    scaled, _, high = rescale(arrays)
    assert (high < 1).all()
    files.check(scaled, NOWHERE)


def test_a_missing_number_is_not_hidden():
    arrays = compact()
    arrays["actions"][:, 1] = 3
    arrays["actions"][2] = np.nan
    scaled, _, _ = rescale(arrays)
    assert np.isnan(scaled["actions"][2]).all()
    assert np.isfinite(np.delete(scaled["actions"], 2, axis=0)).all()
