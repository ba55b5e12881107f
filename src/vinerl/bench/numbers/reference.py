"""What others published for the benchmark's tasks, to set our own numbers beside.

Success is a fraction, as in our metrics; the files, described in `published/README.md`, have
percent. All of it is after offline training, at `FINAL` steps unless said otherwise.
"""

import csv
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from vinerl.bench.numbers import stats
from vinerl.bench.numbers.stats import Estimate
from vinerl.bench.run.tasks import Task

FINAL = 1_000_000
RESAMPLES = 10_000  # of a difference
PAPER = "the VINE paper's tables (whole percent; single scores were not published)"
QAM = "data released with QAM (github.com/ColinQiyangLi/qam at f93efd2, 12 seeds)"
ORIGIN = {
    "paper_table": PAPER,
    "qam_seeds": QAM,
    "qam_curves": f"{QAM}; intervals computed by us",
    "qam_aggregates": f"{QAM}; means and intervals computed by us",
}
RENAMED = {"QAM-E": "qam-edit", "QAM-F": "qam-fql"}  # the others differ from ours in case only


class Key(NamedTuple):
    """What a number is about."""

    agent: str
    domain: str  # "all" is the paper's eight
    task: int | None = None  # None: the mean over tasks


class Score(NamedTuple):
    """A mean over seeds and its 95% interval, NaN where none is known."""

    mean: float
    low: float
    high: float


class Curve(NamedTuple):
    """Arrays [N]."""

    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Published(NamedTuple):
    """A score to be shown beside ours."""

    score: Score
    seeds: np.ndarray | None  # [12], in an order nobody knows: they cannot be paired with anything
    origin: str


def published(agent: str, task: Task, step: int = FINAL) -> Published | None:
    """A task's score after `step` steps, from QAM's data before the paper; None if from neither.

    QAM's runs on 100 million transitions are domains of their own, and no task leads to them.
    """
    key = Key(agent, task.domain, int(task.name.removesuffix("-v0")[-1]))
    curve = qam_curves().get(key)
    if curve and step in curve.steps:
        at = np.searchsorted(curve.steps, step)
        score = Score(*(float(line[at]) for line in (curve.mean, curve.low, curve.high)))
        seeds = qam_seeds()[key] if step == FINAL else None
        return Published(score, seeds, ORIGIN["qam_curves"])
    return _in_paper(key) if step == FINAL else None


def published_domain(agent: str, domain: str) -> Published | None:
    """The same for a domain, or "all", at the end. A domain's seeds are means over its tasks."""
    key = Key(agent, domain)
    if key in qam_aggregates() and domain != "all":
        return Published(qam_aggregates()[key], qam_seeds()[key], ORIGIN["qam_aggregates"])
    return _in_paper(key)


def difference(scores: np.ndarray, found: Published) -> Estimate:
    """Mean of our scores [S] less theirs, the seeds of each side drawn apart.

    Where no seeds were published their mean is drawn from the normal of its interval.
    """
    if found.seeds is not None:
        return stats.difference(scores, found.seeds, resamples=RESAMPLES)
    rng, (mean, low, high) = np.random.default_rng(0), found.score
    ours = rng.choice(scores, (RESAMPLES, len(scores))).mean(axis=1)
    theirs = rng.normal(mean, (high - low) / 2 / 1.96, RESAMPLES)
    return Estimate(scores.mean() - mean, *np.percentile(ours - theirs, [2.5, 97.5]))


def _in_paper(key: Key) -> Published | None:
    score = paper_table().get(key)
    return Published(score, None, PAPER) if score else None


@cache
def paper_table() -> dict[Key, Score]:
    """Fifteen agents, eight domains and all of them together."""
    return {key: Score(*_fractions(row).tolist()) for key, row in _rows("paper_table.csv")}


@cache
def qam_seeds() -> dict[Key, np.ndarray]:
    """Scores [12] of tasks and of domains. Each key has its own order of seeds."""
    return {key: _fractions(row) for key, row in _rows("qam_seeds.csv")}


@cache
def qam_curves() -> dict[Key, Curve]:
    """Of tasks, every 50,000 steps."""
    lines: dict[Key, dict[str, np.ndarray]] = {}
    for key, row in _rows("qam_curves.csv"):
        what = row.pop("what")
        of_key = lines.setdefault(key, {"steps": np.array(list(row), int)})
        of_key[what] = _fractions(row)
    return {key: Curve(**of_key) for key, of_key in lines.items()}


@cache
def qam_aggregates() -> dict[Key, Score]:
    """Of domains, and of all eight without an interval."""
    return {key: Score(*_fractions(row).tolist()) for key, row in _rows("qam_aggregates.csv")}


def _rows(name: str) -> Iterator[tuple[Key, dict[str, str]]]:
    """What the rows of a file are about, and their other columns."""
    text = (
        resources.files("vinerl.bench.numbers")
        .joinpath("published", name)
        .read_text(encoding="utf-8")
    )
    for row in csv.DictReader(text.splitlines()):
        method, domain, task = row.pop("method"), row.pop("domain"), row.pop("task")
        agent = RENAMED.get(method, method.lower())
        yield Key(agent, domain, None if task == "agg" else int(task)), row


def _fractions(row: dict[str, str]) -> np.ndarray:
    return np.array([float(percent or "nan") for percent in row.values()]) / 100
