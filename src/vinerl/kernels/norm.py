"""Bias, gelu and LayerNorm of a layer's products in one pass over them, and one pass back."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from vinerl import kernels
from vinerl.types import Array

ROWS = 16  # of the batch, for one program
EPSILON = 1e-6  # as in Flax
A, B = 0.7978845608028654, 0.044715  # gelu(z) = z (1 + tanh(A (z + B z^3))) / 2


def fits(width: int, x: Array, dtype: Any, activation: Any) -> bool:
    """Whether the kernel can stand in for a layer of x [B, ...]."""
    even = x.ndim == 2 and len(x) % ROWS == 0 and width == pl.next_power_of_2(width)
    return kernels.fused() and even and dtype == jnp.bfloat16 and activation is nn.gelu


@jax.custom_vjp
def gelu_norm(u: Array, bias: Array, scale: Array, offset: Array) -> Array:
    """LayerNorm(gelu(u + bias)) for u [B, W], in bfloat16; everything inside is float32."""
    out = jax.ShapeDtypeStruct(u.shape, jnp.bfloat16)
    return _by_rows(_forward, u, out)(u, bias, scale, offset)


def _keep(u, bias, scale, offset):
    return gelu_norm(u, bias, scale, offset), (u, bias, scale)


def _back(kept, dy):
    u, bias, scale = kept
    sums = jax.ShapeDtypeStruct((len(u) // ROWS, 3, u.shape[1]), jnp.float32)
    out = jax.ShapeDtypeStruct(u.shape, u.dtype), sums
    du, sums = _by_rows(_backward, u, out)(u, bias, scale, dy)
    return du, *sums.sum(axis=0)


gelu_norm.defvjp(_keep, _back)


def _forward(u, bias, scale, offset, y):
    rows = pl.ds(pl.program_id(0) * ROWS, ROWS)
    g, _ = _gelu(u[rows, :] + bias[...][None])
    normal, _ = _normal(g)
    y[rows, :] = (normal * scale[...][None] + offset[...][None]).astype(y.dtype)


def _backward(u, bias, scale, dy, du, sums):
    tile = pl.program_id(0)
    rows = pl.ds(tile * ROWS, ROWS)
    g, slope = _gelu(u[rows, :] + bias[...][None])
    normal, rate = _normal(g)
    d = dy[rows, :].astype(jnp.float32)
    inner = d * scale[...][None]
    dz = slope * rate * (inner - _mean(inner) - normal * _mean(inner * normal))
    du[rows, :] = dz.astype(du.dtype)
    sums[tile, 0, :] = dz.sum(axis=0)
    sums[tile, 1, :] = (d * normal).sum(axis=0)
    sums[tile, 2, :] = d.sum(axis=0)


def _gelu(z: Array) -> tuple[Array, Array]:
    """gelu(z) and its derivative."""
    th = _tanh(A * (z + B * z**3))
    return 0.5 * z * (1 + th), 0.5 * (1 + th) + 0.5 * z * (1 - th**2) * A * (1 + 3 * B * z**2)


def _normal(g: Array) -> tuple[Array, Array]:
    """g with mean 0 and variance 1 in every row, and what it was multiplied by."""
    centred = g - _mean(g)
    rate = jax.lax.rsqrt(_mean(centred**2) + EPSILON)
    return centred * rate, rate


_mean = partial(jnp.mean, axis=1, keepdims=True)


def _by_rows(kernel: Any, u: Array, out: Any) -> Callable[..., Any]:
    return pl.pallas_call(
        kernel,
        out,
        grid=(len(u) // ROWS,),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        interpret=_interpreted(),
    )


def _tanh(x: Array) -> Array:
    return jnp.tanh(x) if _interpreted() else triton.approx_tanh(x)


def _interpreted() -> bool:
    """Without a GPU the kernel runs as plain JAX, slowly: for tests."""
    return jax.default_backend() != "gpu"
