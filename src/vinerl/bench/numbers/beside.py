"""Ours beside what others published, after the same number of steps: vinerl results beside.

Only a cell that was run as its agent was published is compared: the task's own values, nothing
before and nothing after. Its evaluations on the way count, too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vinerl.bench.numbers import reference, stats, summary
from vinerl.bench.numbers.reference import Published, Score
from vinerl.bench.numbers.results import Seed, length
from vinerl.bench.numbers.stats import Estimate
from vinerl.bench.numbers.summary import as_published
from vinerl.bench.run import tasks

# Share of comparisons without a difference that are outside, by the number of our seeds: so many of
# QAM's at a million steps, drawn at random, against the others of their cell. The last is for more.
ALARM = {1: 0.54, 2: 0.23, 3: 0.13, 4: 0.12, 5: 0.10, 6: 0.09}
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
    counts = (length(pair.step), str(pair.episodes), str(pair.seeds))
    gap = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*map(float, pair.difference))
    numbers = (_score(pair.ours), _score(pair.theirs), gap)
    return (pair.task, pair.agent, *counts, *numbers, "inside" if pair.inside else "outside")


def _score(score: Score) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*score)


def alarm(pair: Pair) -> float:
    """How often a comparison like this is outside by chance; never, where nobody's seeds differ."""
    still = pair.ours.low == pair.ours.high and pair.theirs.low == pair.theirs.high
    return 0.0 if still else ALARM[min(pair.seeds, max(ALARM))]


def summed_up(found: Sequence[Pair]) -> str:
    outside, expected = sum(not pair.inside for pair in found), sum(map(alarm, found))
    return (
        f"{outside} of {len(found)} comparisons are outside: 0 is not in the 95% interval of the "
        f"difference ({reference.RESAMPLES} draws of the seeds of both sides; where no seeds were "
        f"published, of the mean, from its interval). By chance alone about {expected:.1f} would "
        "be, by how often it happens where so many of QAM's seeds at 1M steps, drawn at random, "
        f"stand against the others of their cell ({ALARM[2]:.0%} with 2, {ALARM[4]:.0%} with 4; "
        "never where neither side's seeds differ). Steps of one run are no separate tests."
    )
