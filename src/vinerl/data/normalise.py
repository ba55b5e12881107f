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
    moments = lambda x: (x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64))
    mean = jax.tree.map(lambda x: _or(x, 0, moments(x)[0]), obs)
    std = jax.tree.map(lambda x: _or(x, 1, np.where(moments(x)[1] > 1e-6, moments(x)[1], 1)), obs)
    return Normaliser(mean, std)


def _or(x: np.ndarray, for_images: float, value: np.ndarray) -> np.ndarray:
    image = x.dtype == np.uint8
    return np.full(x.shape[1:], for_images, np.float32) if image else value.astype(np.float32)
