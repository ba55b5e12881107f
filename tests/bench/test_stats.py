"""Intervals and areas against plain arithmetic."""

import numpy as np
import pytest

from vinerl.bench.stats import area, bootstrap


def test_the_bootstrap_equals_a_plain_loop():
    scores = np.random.default_rng(1).uniform(size=7)
    draw = np.random.default_rng(0)
    means = [scores[draw.integers(7, size=7)].mean() for _ in range(4000)]
    expected = sorted(means)[100], sorted(means)[3899]
    assert bootstrap(scores, 4000, seed=5) == pytest.approx(expected, abs=0.015)


def test_members_are_drawn_whole():
    """Every column of a curve is resampled with the same picks."""
    scores = np.random.default_rng(0).uniform(size=(5, 1)) * [1.0, 2.0]
    low, high = bootstrap(scores)
    assert low[1] == pytest.approx(2 * low[0])
    assert high[1] == pytest.approx(2 * high[0])


def test_equal_scores_have_no_width_and_one_score_neither():
    assert bootstrap(np.full(4, 0.3)).tolist() == pytest.approx([0.3, 0.3])
    assert bootstrap(np.array([0.7])).tolist() == [0.7, 0.7]


def test_an_interval_repeats_itself():
    scores = np.array([0.1, 0.9, 0.4])
    assert bootstrap(scores).tolist() == bootstrap(scores).tolist()


def test_the_area_of_a_straight_line_is_its_height_in_the_middle():
    steps = np.array([1000, 1500, 4000, 5000])
    lines = np.stack([0.1 + 1e-4 * steps, np.full(4, 0.5)], axis=-1)
    assert area(steps, lines).tolist() == pytest.approx([0.4, 0.5])
