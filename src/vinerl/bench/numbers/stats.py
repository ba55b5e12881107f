"""Means over seeds and tasks, and how far to trust them.

S is seeds, T tasks, R resamples. Every interval is the 95% percentile interval of a bootstrap;
functions differ in what is drawn. Interquartile mean, profile and probability of improvement are
those of Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice
(2021).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 5000


class Estimate(NamedTuple):
    """Numbers of one shape: what was found, and the ends of its interval."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


def bootstrap(scores: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Low and high end of the 95% percentile interval of the mean over axis 0, [2, ...]."""
    return _ends(_means(np.asarray(scores, float), resamples, np.random.default_rng(seed)))


def domain_mean(scores: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Mean of [S, T]. A seed is drawn with all of its tasks, so a row must be one seed."""
    scores = np.asarray(scores, float)
    return Estimate(scores.mean(), *bootstrap(scores.mean(axis=1), resamples, seed))


def overall_mean(means: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Mean of the tasks' means [T]. Tasks are drawn: how much hangs on which were chosen."""
    means = np.asarray(means, float)
    return Estimate(means.mean(), *bootstrap(means, resamples, seed))


def iqm(scores: np.ndarray) -> np.ndarray:
    """Mean of the middle half of all runs, [..., S, T] -> [...]."""
    runs = np.sort(scores.reshape(*scores.shape[:-2], -1), axis=-1)
    count = runs.shape[-1]
    return runs[..., count // 4 : count - count // 4].mean(axis=-1)


def iqm_estimate(scores: np.ndarray, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Of [S, T], the seeds of each task drawn apart."""
    return Estimate(iqm(scores), *_ends(iqm(_redrawn(scores, resamples, seed))))


def profile(
    scores: np.ndarray, thresholds: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """Share of the runs [S, T] above each threshold [N], the seeds of each task drawn apart."""
    above = lambda x: np.stack([(x > t).mean(axis=(-2, -1)) for t in thresholds], axis=-1)
    return Estimate(above(scores), *_ends(above(_redrawn(scores, resamples, seed))))


def improvement(
    a: np.ndarray, b: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """How probably a run of a [S, T] beats one of b [S', T] on a task: the mean over tasks.

    A tie is half a win. The seeds of each task and side are drawn apart.
    """
    rng = np.random.default_rng(seed)
    wins = (1 + np.sign(a.T[:, :, None] - b.T[:, None, :])) / 2  # [T, S, S']
    # How often each seed is drawn, [T, R, S], is all that a resample's wins depend on.
    of_a, of_b = (
        rng.multinomial(n, np.full(n, 1 / n), size=(len(wins), resamples)) / n
        for n in (len(a), len(b))
    )
    drawn = ((of_a @ wins) * of_b).sum(axis=-1).mean(axis=0)
    return Estimate(wins.mean(), *_ends(drawn))


def difference(
    a: np.ndarray,
    b: np.ndarray,
    seeds: tuple[Sequence[int], Sequence[int]] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Estimate:
    """Mean over seeds of a [S, ...] less that of b [S', ...].

    `seeds` names the rows. When both sides have the same, a seed is drawn with both of its scores,
    for they share start and batches; otherwise the sides are drawn apart.
    """
    value = a.mean(axis=0) - b.mean(axis=0)
    if seeds and sorted(seeds[0]) == sorted(seeds[1]):
        paired = a[np.argsort(seeds[0])] - b[np.argsort(seeds[1])]
        return Estimate(value, *bootstrap(paired, resamples, seed))
    rng = np.random.default_rng(seed)
    return Estimate(value, *_ends(_means(a, resamples, rng) - _means(b, resamples, rng)))


def area(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean height of curves [N, ...] between the first and the last of their steps [N]."""
    steps = np.asarray(steps, float)
    return np.trapezoid(values, steps, axis=0) / (steps[-1] - steps[0])


def _means(scores: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Means over rows of [S, ...], which are drawn whole: [R, ...]."""
    pick = rng.integers(len(scores), size=(resamples, len(scores)))
    return scores[pick].mean(axis=1)


def _redrawn(scores: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """[S, T] -> [R, S, T]; a task's seeds are drawn without regard to the other tasks'."""
    pick = np.random.default_rng(seed).integers(len(scores), size=(resamples, *scores.shape))
    return scores[pick, np.arange(scores.shape[1])]


def _ends(drawn: np.ndarray) -> np.ndarray:
    """[R, ...] -> [2, ...]."""
    return np.percentile(drawn, [2.5, 97.5], axis=0)
