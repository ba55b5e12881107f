"""Standardised observations: statistics of the data, carried along with a policy."""

from typing import Any, NamedTuple

import jax
import numpy as np

from vinerl.types import Obs


class Normaliser(NamedTuple):
    """mean and std, trees like one observation; images keep theirs (0 and 1)."""

    mean: Any
    std: Any

    def __call__(self, obs: Obs) -> Obs:
        scale = lambda x, mean, std: x if x.dtype == np.uint8 else (x - mean) / std
        return jax.tree.map(scale, obs, self.mean, self.std)


def fit(obs: Obs) -> Normaliser:
    """From observations [R, ...]; a coordinate that never changes is only centred."""
    leaves, tree = jax.tree.flatten(obs)
    means, stds = zip(*map(_moments, leaves), strict=True)
    return Normaliser(tree.unflatten(means), tree.unflatten(stds))


def _moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if x.dtype == np.uint8:
        return np.zeros(x.shape[1:], np.float32), np.ones(x.shape[1:], np.float32)
    mean = x.mean(axis=0, dtype=np.float64, keepdims=True)
    std = x.std(axis=0, dtype=np.float64, mean=mean)
    return mean[0].astype(np.float32), np.where(std > 1e-6, std, 1).astype(np.float32)
