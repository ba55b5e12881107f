"""Bias and gelu of a layer's products in one pass over them, and one pass back.

The way back computes gelu's slope again from the products, so they are all that is kept, and sums
the bias' gradient over the rows of each program while they are in its registers.
"""

from functools import partial
from math import gcd
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from vinerl import kernels
from vinerl.kernels.arithmetic import gelu, interpreted
from vinerl.types import Array


class Tile(NamedTuple):
    """What one program owns; the numbers are powers of two."""

    rows: int
    columns: int
    warps: int


FORTH = Tile(rows=16, columns=256, warps=4)
BACK = Tile(rows=32, columns=128, warps=4)


def fits(width: int, x: Array, dtype: Any, activation: Any) -> bool:
    """Whether the kernel can stand in for a layer of x [B, ...]."""
    return kernels.fit(x, dtype, activation) and width % kernels.FEWEST == 0


@jax.custom_vjp
def bias_gelu(u: Array, bias: Array) -> Array:
    """gelu(u + bias) for u [B, W], in bfloat16; everything inside is float32."""
    return _by_tiles(_forward, FORTH, u, jax.ShapeDtypeStruct(u.shape, jnp.bfloat16))(u, bias)


def _keep(u, bias):
    return bias_gelu(u, bias), (u, bias)


def _back(kept, dy):
    u, bias = kept
    sums = jax.ShapeDtypeStruct((len(u) // _tile(BACK, u).rows, u.shape[1]), jnp.float32)
    out = jax.ShapeDtypeStruct(u.shape, jnp.bfloat16), sums
    du, sums = _by_tiles(_backward, BACK, u, out)(u, bias, dy)
    return du.astype(u.dtype), sums.sum(axis=0)


bias_gelu.defvjp(_keep, _back)


def _forward(tile, u, bias, y):
    rows, columns = _place(tile)
    value, _ = gelu(u[rows, columns] + bias[columns][None])
    y[rows, columns] = value.astype(y.dtype)


def _backward(tile, u, bias, dy, du, sums):
    rows, columns = _place(tile)
    _, slope = gelu(u[rows, columns] + bias[columns][None])
    dz = slope * dy[rows, columns].astype(jnp.float32)
    du[rows, columns] = dz.astype(du.dtype)
    sums[pl.program_id(0), columns] = dz.sum(axis=0)


def _place(tile: Tile) -> tuple[Any, Any]:
    row, column = pl.program_id(0), pl.program_id(1)
    return pl.ds(row * tile.rows, tile.rows), pl.ds(column * tile.columns, tile.columns)


def _tile(tile: Tile, u: Array) -> Tile:
    """With fewer rows or columns where they would not divide the layer."""
    return tile._replace(rows=gcd(tile.rows, len(u)), columns=gcd(tile.columns, u.shape[1]))


def _by_tiles(kernel: Any, tile: Tile, u: Array, out: Any) -> Any:
    tile = _tile(tile, u)
    return pl.pallas_call(
        partial(kernel, tile),
        out,
        grid=(len(u) // tile.rows, u.shape[1] // tile.columns),
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=1),
        interpret=interpreted(),
        name=f"gelu{kernel.__name__}",
    )
