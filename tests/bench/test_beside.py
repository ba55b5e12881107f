"""Ours beside the published: differences and intervals that are known in advance."""

from itertools import product

import numpy as np
import pytest

from cells import publish
from vinerl import cli
from vinerl.bench.numbers import beside, reference, results, summary
from vinerl.bench.numbers.reference import FINAL, Published, Score
from vinerl.bench.numbers.stats import Estimate, bootstrap

LARGE = "antmaze-large-navigate-singletask-task1-v0"
PUZZLE = "puzzle-3x3-play-singletask-task4-v0"
FOUR = dict.fromkeys(range(4), 0.5)


def of(*scores):
    """Published seeds."""
    seeds = np.array(scores)
    return Published(Score(float(seeds.mean()), 0.0, 1.0), seeds, "by hand")


def printed(*score):
    """Mean and interval alone."""
    return Published(Score(*score), None, "by hand")


def near(*ends):
    return pytest.approx(ends, abs=0.004)


def compare(ours, theirs):
    gap, inside = beside.compare(np.array(ours), theirs)
    return tuple(map(float, gap)), inside


def test_constant_seeds_have_a_difference_without_width():
    assert compare([0.3] * 4, of(*[0.3] * 12)) == (pytest.approx((0, 0, 0)), True)
    assert compare([0.5] * 4, of(*[0.3] * 12)) == (pytest.approx((0.2, 0.2, 0.2)), False)


def test_the_seeds_of_both_sides_are_drawn():
    """Two seeds against two, 0 and 1 each: sums of 4 coins, so the ends are -1 and 1."""
    assert compare([0.0, 1.0], of(0.0, 1.0)) == ((0, -1, 1), True)
    gap, inside = compare([0.0, 1.0], of(*[2.0] * 12))
    assert (gap, inside) == ((-1.5, -2, -1), False)


def test_the_interval_is_that_of_every_possible_draw():
    ours, theirs = [0.1, 0.4, 0.9], [0.2, 0.3, 0.35, 0.5]
    means = lambda side: [np.mean(pick) for pick in product(side, repeat=len(side))]
    every = np.subtract.outer(means(ours), means(theirs)).ravel()
    gap, inside = compare(ours, of(*theirs))
    assert gap[1:] == pytest.approx(np.percentile(every, [2.5, 97.5]), abs=0.02)
    assert inside


@pytest.mark.parametrize(("known", "count"), [(True, 2), (True, 4), (False, 4), (True, 6)])
def test_so_many_comparisons_are_false_alarms(known, count):
    """Some of QAM's seeds at the end against the others: nothing differs."""
    cells = [(key, scores) for key, scores in reference.qam_seeds().items() if scores.std()]
    tasks = [scores for key, scores in cells if key.task and "100m" not in key.domain]
    assert len(tasks) == 492
    rng, found = np.random.default_rng(0), []
    for scores in tasks * 5:
        ours, theirs = np.split(rng.permutation(scores), [count])
        interval = printed(theirs.mean(), *bootstrap(theirs))
        found.append(compare(ours, of(*theirs) if known else interval)[1])
    assert 1 - np.mean(found) == pytest.approx(beside.ALARM[count], abs=0.015)


def test_alarms_are_expected_by_seeds_and_only_where_some_differ():
    still, wide = Score(0.0, 0.0, 0.0), Score(0.5, 0.4, 0.6)
    pair = lambda count, ours, theirs: beside.Pair(
        "task", "fql", 50_000, 10, count, ours, theirs, Estimate(0.0, 0.0, 0.0), True
    )
    assert beside.alarm(pair(2, still, still)) == 0
    assert beside.alarm(pair(2, still, wide)) == beside.ALARM[2]
    assert beside.alarm(pair(12, wide, still)) == beside.ALARM[6]
    said = beside.summed_up([pair(2, wide, wide), pair(4, wide, wide), pair(4, still, still)])
    assert said.startswith("0 of 3 comparisons are outside")
    assert "By chance alone about 0.3 would be" in said  # 0.23 + 0.12


def test_against_constant_seeds_a_published_interval_stays_as_wide():
    assert compare([0.5] * 4, printed(0.5, 0.4, 0.6)) == (near(0, -0.1, 0.1), True)
    assert compare([0.45] * 4, printed(0.5, 0.3, 0.5)) == (near(-0.05, -0.15, 0.05), True)
    assert compare([0.65] * 4, printed(0.5, 0.4, 0.6)) == (near(0.15, 0.05, 0.25), False)
    assert compare([0.35] * 4, printed(0.5, 0.4, 0.6)) == (near(-0.15, -0.25, -0.05), False)


def test_a_published_interval_and_our_seeds_add_as_variances():
    """The mean of 100 seeds at 0.4 and 0.6 has a deviation of 0.01; theirs is as wide."""
    one = 1.96 * 0.01
    gap, _ = compare([0.4, 0.6] * 50, printed(0.5, 0.5 - one, 0.5 + one))
    both = np.sqrt(2) * one
    assert gap == pytest.approx((0, -both, both), rel=0.05)


def test_a_published_interval_without_width_adds_none():
    assert compare([0.3] * 4, printed(0.3, 0.3, 0.3)) == (pytest.approx((0, 0, 0)), True)
    assert compare([0.5] * 4, printed(0.3, 0.3, 0.3)) == (pytest.approx((0.2, 0.2, 0.2)), False)
    assert compare([0.0, 1.0], printed(2.0, 2.0, 2.0)) == ((-1.5, -2, -1), False)


def test_every_evaluation_that_others_have_too_is_compared(tmp_path):
    way = {50_000: 0.5, 75_000: 0.1, 100_000: 0.2}
    publish(tmp_path, "ifql", PUZZLE, 150_000, FOUR, way)
    found = beside.pairs(results.read(tmp_path))
    assert [(pair.step, pair.ours.mean, pair.episodes) for pair in found] == [
        (50_000, 0.5, 10),
        (100_000, 0.2, 10),
        (150_000, 0.5, 50),
    ]
    curve = reference.qam_curves()[reference.Key("ifql", "puzzle-3x3-sparse", 4)]
    assert [pair.theirs.mean for pair in found] == curve.mean[:3].tolist()
    gaps = [float(pair.difference.value) for pair in found]
    assert gaps == pytest.approx([0.5, 0.2, 0.5] - curve.mean[:3], abs=6e-5)


def test_published_seeds_are_taken_at_the_end_and_the_interval_on_the_way(tmp_path):
    """Ours are QAM's own: its mean at 100k in every seed, its scores at the end."""
    key = reference.Key("fql", "antmaze-large", 1)
    curve, seeds = reference.qam_curves()[key], reference.qam_seeds()[key]
    own = dict(enumerate(seeds.tolist()))
    publish(tmp_path, "fql", LARGE, FINAL, own, {100_000: float(curve.mean[1])})
    way, end = beside.pairs(results.read(tmp_path))
    half = (curve.high[1] - curve.low[1]) / 2
    assert (way.step, end.step) == (100_000, FINAL)
    assert tuple(way.difference) == near(0, -half, half)
    two_sides = 1.96 * np.sqrt(2 * seeds.var() / 12)
    assert tuple(end.difference[1:]) == pytest.approx((-two_sides, two_sides), rel=0.15)
    assert (end.seeds, way.inside, end.inside) == (12, True, True)


@pytest.mark.parametrize(
    "change",
    [
        {"fields": {"alpha": 7.0}},
        {"pretrain": 1000},
        {"online": {"online_steps": 50_000}},
    ],
)
def test_what_was_run_otherwise_is_not_compared(tmp_path, change):
    publish(tmp_path, "fql", LARGE, 100_000, FOUR, **change)
    seeds = results.read(tmp_path)
    assert beside.pairs(seeds) == []
    assert [row.published for row in summary.rows(seeds)] == [None]


def test_a_row_of_the_report_has_the_curve_at_its_last_step(tmp_path):
    publish(tmp_path, "fql", LARGE, 100_000, FOUR)
    (row,) = summary.rows(results.read(tmp_path))
    curve = reference.qam_curves()[reference.Key("fql", "antmaze-large", 1)]
    assert row.published
    assert row.published.score.mean == curve.mean[1]
    half, apart = (curve.high[1] - curve.low[1]) / 2, 0.5 - curve.mean[1]
    _, said = summary.numbers(row)["difference"]
    found = [float(word.strip("[],")) for word in said.split()]
    assert found == pytest.approx([apart, apart - half, apart + half], abs=0.005)


@pytest.mark.parametrize("steps", [100_000, FINAL])
def test_the_report_says_the_same(tmp_path, steps):
    """Against an interval, and against seeds."""
    publish(tmp_path, "fql", LARGE, steps, {0: 0.1, 1: 0.5, 2: 0.6, 3: 0.8})
    (row,) = summary.rows(results.read(tmp_path))
    _, (*_, words, _) = beside.table(beside.pairs(results.read(tmp_path)))
    assert summary.numbers(row)["difference"][1] == words


def test_cells_on_other_data_have_rows_of_their_own(tmp_path):
    for seed in (0, 1):
        made = {"recipe": {"dataset": "antmaze-large-navigate-v0", "seed": seed}}
        publish(tmp_path, "fql", LARGE, 100_000, dict.fromkeys(range(4), 0.1 * seed), data=made)
    found = beside.pairs(results.read(tmp_path))
    assert sorted(pair.ours.mean for pair in found) == pytest.approx([0.0, 0.1])
    assert len({pair.agent for pair in found}) == 2


def test_vine_is_compared_at_the_papers_step_alone(tmp_path):
    publish(tmp_path, "vine", LARGE, 1_000_000, FOUR, {150_000: 1.0, 900_000: 1.0})
    (pair,) = beside.pairs(results.read(tmp_path))
    assert (pair.step, pair.theirs.mean, pair.inside) == (1_000_000, 1.0, False)
    assert pair.difference == (-0.5, -0.5, -0.5)


def test_the_command_prints_a_row_a_comparison(tmp_path, capsys):
    publish(tmp_path, "rebrac", LARGE, 100_000, dict.fromkeys(range(4), 0.0))
    cli.main(["results", "beside", "--folder", str(tmp_path)])
    head, row, words = capsys.readouterr().out.strip().splitlines()
    assert head.split() == list(beside.HEAD)
    assert row.split()[:5] == ["antmaze-large-navigate-task1", "rebrac", "100k", "50", "4"]
    assert row.endswith("outside")
    assert "nan" not in row
    assert words.startswith("1 of 1 comparisons")


def test_the_command_says_that_nothing_is_there(tmp_path, capsys):
    publish(tmp_path, "vine", LARGE, 100_000, FOUR)
    cli.main(["results", "beside", "--folder", str(tmp_path)])
    assert capsys.readouterr().out == f"{tmp_path} has nothing that others published, too\n"
