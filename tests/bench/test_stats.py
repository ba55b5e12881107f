"""Intervals and areas against plain arithmetic, exact distributions and hand-made cases."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from vinerl.bench.numbers.stats import (
    Estimate,
    area,
    bootstrap,
    difference,
    domain_mean,
    improvement,
    iqm,
    iqm_estimate,
    overall_mean,
    profile,
)

RNG = np.random.default_rng(3)
A, B = RNG.uniform(size=(6, 3)), RNG.uniform(0.1, 1.1, size=(5, 3))


def ends(numbers: list[float]) -> tuple[float, float]:
    """Of 2000 numbers, those that 2.5% lie below and above."""
    ordered = sorted(numbers)
    return ordered[50], ordered[1949]


def redraw(column: list[float], draw: np.random.Generator) -> list[float]:
    return [column[draw.integers(len(column))] for _ in column]


def redraw_tasks(scores: np.ndarray, draw: np.random.Generator) -> list[list[float]]:
    """The seeds of each task by themselves, one list a task."""
    return [redraw(column, draw) for column in scores.T.tolist()]


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def beats(a: list[list[float]], b: list[list[float]]) -> float:
    """Wins over all pairs of runs on each task, then over tasks."""
    shares = []
    for ours, theirs in zip(a, b, strict=True):
        wins = [1.0 if x > y else 0.5 if x == y else 0.0 for x in ours for y in theirs]
        shares.append(mean(wins))
    return mean(shares)


def check(found: Estimate, value: float, numbers: list[float], within: float) -> None:
    assert found.value == pytest.approx(value)
    assert (found.low, found.high) == pytest.approx(ends(numbers), abs=within)


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
    against_b = lambda x, resamples, seed: improvement(x, B, resamples, seed)
    for make in (domain_mean, iqm_estimate, against_b):
        assert make(A, 99, 0) == make(A, 99, 0)
        assert make(A, 99, 0)[1:] != make(A, 99, 1)[1:]


def test_the_mean_of_zeros_and_ones_has_the_binomials_interval():
    scores = np.repeat([0.0, 1.0], [12, 8])
    expected = scipy_stats.binom.ppf([0.025, 0.975], 20, 0.4) / 20
    assert bootstrap(scores).tolist() == pytest.approx(expected.tolist())


def test_a_domains_interval_equals_a_plain_loop_over_whole_seeds():
    draw = np.random.default_rng(0)
    rows = [mean(row) for row in A.tolist()]
    check(domain_mean(A), mean(rows), [mean(redraw(rows, draw)) for _ in range(2000)], 0.02)


def test_a_seed_keeps_its_tasks_in_a_domains_mean_but_not_in_the_interquartile_mean():
    """What one task gains the other loses, so every seed is equally good over the domain."""
    task = np.linspace(0.0, 1.0, 8)
    scores = np.stack([task, 1 - task], axis=-1)
    whole, apart = domain_mean(scores), iqm_estimate(scores)
    assert whole == pytest.approx((0.5, 0.5, 0.5))
    assert apart.high - apart.low > 0.2


def test_the_overall_interval_is_over_tasks():
    """Seeds that agree leave all of the doubt to which tasks were chosen."""
    scores = np.tile(np.repeat([0.0, 1.0], [12, 8]), (3, 1))
    expected = scipy_stats.binom.ppf([0.025, 0.975], 20, 0.4) / 20
    assert overall_mean(scores.mean(axis=0)) == pytest.approx((0.4, *expected))
    assert domain_mean(scores) == pytest.approx((0.4, 0.4, 0.4))


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end():
    assert iqm(np.arange(1.0, 9.0).reshape(4, 2)) == 4.5
    assert iqm(np.array([[0.0, 7.0], [1.0, 100.0]])) == 4.0
    assert iqm(np.array([[5.0, 0.0, 4.0]])) == 3.0  # a quarter of three runs is none
    for shape in ((5, 3), (7, 2), (12, 40)):
        scores = RNG.uniform(size=shape)
        assert iqm(scores) == pytest.approx(scipy_stats.trim_mean(scores.ravel(), 0.25))


def test_the_interquartile_means_interval_equals_a_plain_loop():
    draw = np.random.default_rng(0)
    middle = lambda tasks: mean(sorted(x for task in tasks for x in task)[4:14])  # of 18
    drawn = [middle(redraw_tasks(A, draw)) for _ in range(2000)]
    check(iqm_estimate(A), middle(A.T.tolist()), drawn, 0.02)


def test_a_profile_counts_the_runs_above_each_threshold():
    scores = np.array([[0.0, 0.5], [0.5, 1.0]])
    found = profile(scores, np.array([-0.1, 0.0, 0.5, 0.9, 1.0]))
    assert found.value.tolist() == [1.0, 0.75, 0.25, 0.25, 0.0]
    assert (found.low[0], found.high[0], found.low[-1], found.high[-1]) == (1, 1, 0, 0)


def test_a_profiles_band_is_the_binomials_and_draws_tasks_apart():
    task = np.repeat([0.2, 0.8], [12, 8])
    one = profile(task[:, None], np.array([0.5]))
    expected = scipy_stats.binom.ppf([0.025, 0.975], 20, 0.4) / 20
    assert (one.low[0], one.high[0]) == pytest.approx(tuple(expected))
    four = profile(np.tile(task[:, None], (1, 4)), np.array([0.5]))
    expected = scipy_stats.binom.ppf([0.025, 0.975], 80, 0.4) / 80
    assert (four.low[0], four.high[0]) == pytest.approx(tuple(expected), abs=1 / 80)


def test_a_profiles_band_equals_a_plain_loop():
    draw, found = np.random.default_rng(0), profile(A, np.array([0.3, 0.6]))
    drawn = [[x for task in redraw_tasks(A, draw) for x in task] for _ in range(2000)]
    for i, threshold in enumerate((0.3, 0.6)):
        shares = [mean([x > threshold for x in runs]) for runs in drawn]
        value = mean([x > threshold for x in A.ravel().tolist()])
        check(Estimate(*(part[i] for part in found)), value, shares, 1 / 18 + 1e-9)


def test_the_probability_of_improvement_by_hand():
    low, high = np.array([[0.1], [0.2]]), np.array([[0.5], [0.6], [0.7]])
    assert improvement(high, low) == (1, 1, 1)
    assert improvement(low, high) == (0, 0, 0)
    assert improvement(high[:1], high[:1]) == (0.5, 0.5, 0.5)
    # Of the six pairs, four wins and a tie on the first task; on the second every pair is a win.
    a = np.array([[0.2, 1.0], [0.4, 1.0], [0.9, 1.0]])
    b = np.array([[0.2, 0.0], [0.3, 0.0]])
    assert improvement(a, b).value == pytest.approx((4.5 / 6 + 1) / 2)


def test_the_probability_of_improvement_is_mann_and_whitneys():
    a, b = np.round(A, 1), np.round(B, 1)
    u = [scipy_stats.mannwhitneyu(a[:, t], b[:, t]).statistic for t in range(3)]
    assert improvement(a, b).value == pytest.approx(np.mean(u) / (6 * 5))


def test_its_interval_equals_a_plain_loop():
    a, b = np.round(A, 1), np.round(B, 1)
    draw = np.random.default_rng(0)
    drawn = [beats(redraw_tasks(a, draw), redraw_tasks(b, draw)) for _ in range(2000)]
    check(improvement(a, b), beats(a.T.tolist(), b.T.tolist()), drawn, 0.02)


def test_a_difference_of_unrelated_seeds_is_that_of_two_binomials():
    a, b = np.repeat([0.0, 1.0], [8, 12]), np.repeat([0.0, 1.0], [7, 3])
    odds = np.outer(
        scipy_stats.binom.pmf(range(21), 20, 0.6), scipy_stats.binom.pmf(range(11), 10, 0.3)
    )
    gaps = np.subtract.outer(np.arange(21) / 20, np.arange(11) / 10).ravel()
    order = np.argsort(gaps)
    exact = gaps[order][np.searchsorted(np.cumsum(odds.ravel()[order]), [0.025, 0.975])]
    found = difference(a, b)
    assert found.value == pytest.approx(0.3)
    assert (found.low, found.high) == pytest.approx(tuple(exact), abs=1e-9)


def test_the_same_seeds_are_paired_whatever_their_order():
    """One method is better by 0.1 on every seed, which hides behind the spread of the seeds."""
    b = np.array([0.1, 0.5, 0.2, 0.8])
    a, seeds = b[::-1] + 0.1, ([3, 2, 1, 0], [0, 1, 2, 3])
    assert difference(a, b, seeds) == pytest.approx((0.1, 0.1, 0.1))
    for others in (None, ([4, 2, 1, 0], seeds[1])):
        apart = difference(a, b, others)
        assert apart.value == pytest.approx(0.1)
        assert apart.low < -0.2
        assert apart.high > 0.4
    assert difference(a[:3], b, (seeds[0][:3], seeds[1])).low < 0


def test_differences_of_curves_keep_their_shape():
    curves = np.stack([A[:, 0], 2 * A[:, 0]], axis=-1)
    found = difference(curves, np.zeros((2, 2)))
    assert found.low.shape == (2,)
    assert found.low[1] == pytest.approx(2 * found.low[0])
    assert found.value.tolist() == pytest.approx(curves.mean(axis=0).tolist())


def test_the_area_of_a_straight_line_is_its_height_in_the_middle():
    steps = np.array([1000, 1500, 4000, 5000])
    lines = np.stack([0.1 + 1e-4 * steps, np.full(4, 0.5)], axis=-1)
    assert area(steps, lines).tolist() == pytest.approx([0.4, 0.5])
