"""What the kernels share. Without a GPU they run interpreted, slowly: for tests."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from vinerl.types import Array

HALF = jnp.bfloat16
A, B = 0.7978845608028654, 0.044715  # gelu(z) = z (1 + tanh(A (z + B z^3))) / 2


def interpreted() -> bool:
    return jax.default_backend() != "gpu"


def call(
    kernel: Any, out_shape: Any, warps: int = 4, stages: int = 3, **options
) -> Callable[..., Any]:
    params = triton.CompilerParams(num_warps=warps, num_stages=stages)
    return pl.pallas_call(
        kernel, out_shape, compiler_params=params, interpret=interpreted(), **options
    )


def gelu(z: Array) -> Array:
    """float32, as `slope` is."""
    x = z.astype(jnp.float32)
    return 0.5 * x * (1 + tanh(A * (x + B * x**3)))


def slope(z: Array) -> Array:
    """d gelu / dz."""
    x = z.astype(jnp.float32)
    th = tanh(A * (x + B * x**3))
    return 0.5 * (1 + th) + 0.5 * x * (1 - th**2) * A * (1 + 3 * B * x**2)


def tanh(x: Array) -> Array:
    return jnp.tanh(x) if interpreted() else triton.approx_tanh(x)
