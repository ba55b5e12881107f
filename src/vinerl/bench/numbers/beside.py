"""Ours beside what others published, after the same number of steps: vinerl results beside.

Only a cell that was run as its agent was published is compared: the task's own values, nothing
before and nothing after. Its evaluations on the way count, too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vinerl.bench.numbers import reference, stats, summary
from vinerl.bench.numbers.reference import Published, Score
from vinerl.bench.numbers.results import Seed
from vinerl.bench.numbers.stats import Estimate
from vinerl.bench.numbers.summary import as_published
from vinerl.bench.run import tasks

ALARM = 0.12  # share of comparisons without a difference that are outside, with 4 seeds of ours
HEAD = ("task", "agent", "step", "episodes", "seeds", "ours", "published", "difference", "verdict")


class Pair(NamedTuple):
    """One evaluation of ours and its counterpart."""

    task: str
    agent: str  # with a hash where cells differ in data, precision or evaluation alone
    step: int
    episodes: int  # of each of our seeds
    seeds: int
    ours: Score
    theirs: Score
    difference: Estimate
    inside: bool


def pairs(seeds: Sequence[Seed]) -> list[Pair]:
    return [
        pair(row, int(step), scores, found)
        for row in summary.rows(seeds)
        if "success" in row.lines and as_published(row.cell.recipe)
        for step, scores in zip(row.lines["success"].x, row.lines["success"].y.T, strict=True)
        if (found := counterpart(row.cell.recipe, int(step)))
    ]


def counterpart(recipe: dict[str, Any], step: int) -> Published | None:
    return reference.published(recipe["agent"]["name"], tasks.named(recipe["task"]), step)


def pair(row: summary.Row, step: int, scores: np.ndarray, found: Published) -> Pair:
    protocol = row.cell.recipe["protocol"]
    last = step == row.steps and all(seed.facts["final"] for seed in row.cell.seeds)
    episodes = protocol["final_episodes" if last else "eval_episodes"]
    ours = Score(float(scores.mean()), *stats.bootstrap(scores).tolist())
    difference, inside = compare(scores, found)
    where = (row.task, row.name, step, episodes, len(scores))
    return Pair(*where, ours, found.score, difference, inside)


def compare(scores: np.ndarray, found: Published) -> tuple[Estimate, bool]:
    """Ours less theirs, and whether that can be chance."""
    gap = reference.difference(scores, found)
    return gap, bool(gap.low <= 1e-9 and gap.high >= -1e-9)


def table(found: Sequence[Pair]) -> list[tuple[str, ...]]:
    return [HEAD, *map(_words, found)]


def _words(pair: Pair) -> tuple[str, ...]:
    counts = (f"{pair.step // 1000}k", str(pair.episodes), str(pair.seeds))
    gap = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*map(float, pair.difference))
    numbers = (_score(pair.ours), _score(pair.theirs), gap)
    return (pair.task, pair.agent, *counts, *numbers, "inside" if pair.inside else "outside")


def _score(score: Score) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*score)


def summed_up(found: Sequence[Pair]) -> str:
    outside = sum(not pair.inside for pair in found)
    return (
        f"{outside} of {len(found)} comparisons are outside: 0 is not in the 95% interval of the "
        f"difference ({reference.RESAMPLES} draws of the seeds of both sides; where no seeds were "
        "published, of the mean, from its interval). By chance alone about "
        f"{ALARM * len(found):.1f} would be: {ALARM:.0%} of those of QAM's cells whose seeds "
        "differ are when 4 of their seeds at 1M steps, drawn at random, stand against the other 8, "
        "these known one by one or by mean and interval. Steps of one run are no separate tests."
    )
