"""GPU kernels of our own; each equals its plain form up to bfloat16 rounding."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from vinerl.types import Array

FEWEST = 16  # a batch is a multiple of this

_fused = ContextVar("fused", default=False)


@contextmanager
def chosen(fused: bool | None) -> Iterator[None]:
    """While tracing: whether networks may use the kernels.

    None: on a single GPU. XLA cannot divide a kernel that it has not made, so among several GPUs
    it would gather all members for it.
    """
    alone = jax.default_backend() == "gpu" and jax.device_count() == 1
    token = _fused.set(alone if fused is None else fused)
    try:
        yield
    finally:
        _fused.reset(token)


def fused() -> bool:
    return _fused.get()


def fit(x: Array, dtype: Any, activation: Any) -> bool:
    """Whether a layer of x [B, ...] may have a kernel."""
    even = x.ndim == 2 and len(x) % FEWEST == 0
    return fused() and even and dtype == jnp.bfloat16 and activation is nn.gelu
