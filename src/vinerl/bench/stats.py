"""Means over seeds, and how far to trust them."""

import numpy as np


def bootstrap(scores: np.ndarray, resamples: int = 5000, seed: int = 0) -> np.ndarray:
    """Low and high end of the 95% percentile interval of the mean over axis 0, [2, ...]."""
    scores = np.asarray(scores, float)
    pick = np.random.default_rng(seed).integers(len(scores), size=(resamples, len(scores)))
    return np.percentile(scores[pick].mean(axis=1), [2.5, 97.5], axis=0)


def area(steps: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean height of curves [N, ...] between the first and the last of their steps [N]."""
    steps = np.asarray(steps, float)
    return np.trapezoid(values, steps, axis=0) / (steps[-1] - steps[0])
