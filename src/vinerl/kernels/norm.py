"""Bias, gelu and LayerNorm of a layer's products in one pass over them, and one pass back."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from vinerl import kernels
from vinerl.kernels.common import HALF, call, gelu, slope
from vinerl.types import Array

ROWS = 16  # of the batch, for one program
EPSILON = 1e-6


def fits(width: int, x: Array, dtype: Any, activation: Any) -> bool:
    """Whether the kernel can stand in for a layer of x [B, ...]."""
    even = len(x) % ROWS == 0 and width == pl.next_power_of_2(width) and x.ndim == 2
    return kernels.fused() and even and dtype == HALF and activation is nn.gelu


@jax.custom_vjp
def gelu_norm(u: Array, bias: Array, scale: Array, offset: Array) -> Array:
    """LayerNorm(gelu(u + bias)) for u [B, W], bfloat16; sums are float32."""
    out = jax.ShapeDtypeStruct(u.shape, HALF)
    return call(_forward, out, grid=(len(u) // ROWS,))(u, bias, scale, offset)


def _keep(u, bias, scale, offset):
    return gelu_norm(u, bias, scale, offset), (u, bias, scale)


def _back(kept, dy):
    u, bias, scale = kept
    tiles = len(u) // ROWS
    sums = jax.ShapeDtypeStruct((tiles, 3, u.shape[1]), jnp.float32)
    out = jax.ShapeDtypeStruct(u.shape, u.dtype), sums
    du, sums = call(_backward, out, grid=(tiles,))(u, bias, scale, dy)
    return du, *sums.sum(axis=0)


gelu_norm.defvjp(_keep, _back)


def _forward(u, bias, scale, offset, y):
    rows = pl.ds(pl.program_id(0) * ROWS, ROWS)
    normal, _ = _normal(gelu(u[rows, :] + bias[...][None]))
    y[rows, :] = (normal * scale[...][None] + offset[...][None]).astype(HALF)


def _backward(u, bias, scale, dy, du, sums):
    tile = pl.program_id(0)
    rows = pl.ds(tile * ROWS, ROWS)
    z, d = u[rows, :] + bias[...][None], dy[rows, :].astype(jnp.float32)
    normal, rate = _normal(gelu(z))
    inner = d * scale[...][None]
    dg = rate * (inner - _mean(inner) - normal * _mean(inner * normal))
    dz = dg * slope(z)
    du[rows, :] = dz.astype(du.dtype)
    sums[tile, 0, :] = dz.sum(axis=0)
    sums[tile, 1, :] = (d * normal).sum(axis=0)
    sums[tile, 2, :] = d.sum(axis=0)


def _normal(g: Array) -> tuple[Array, Array]:
    """g with mean 0 and variance 1 in every row, and what it was divided by, inverted."""
    centred = g - _mean(g)
    rate = jax.lax.rsqrt(_mean(centred**2) + EPSILON)
    return centred * rate, rate


_mean = partial(jnp.mean, axis=1, keepdims=True)
