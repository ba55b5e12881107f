"""Bias, gelu and LayerNorm of a layer's products in one pass over them, and one pass back.

A program owns some rows and walks through them a few at a time: fewer registers, more warps at
once. Columns are cut into pieces as wide as a warp reads at once, since Triton then gives a warp
whole rows and their means need nothing of other warps:

```
512 bfloat16  |  256: warp 0  |  256: warp 0  |
              |  256: warp 1  |  256: warp 1  |    as a single piece: warps 0, 1 in the first row
```
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from vinerl import kernels
from vinerl.kernels.arithmetic import fma, gelu, interpreted
from vinerl.types import Array


class Tile(NamedTuple):
    """How a program walks through its rows; the numbers are powers of two."""

    rows: int  # of the batch, for one program
    step: int  # rows a pass
    warps: int
    ahead: bool  # read the next rows before this pass is done


FORTH = Tile(rows=16, step=4, warps=4, ahead=False)
BACK = Tile(rows=32, step=4, warps=4, ahead=True)  # each leaves three column sums: more rows
CONSTANT = Tile(rows=32, step=8, warps=4, ahead=True)  # back, where it leaves none
LANES = 32 * 16  # bytes that a warp reads at once
EPSILON = 1e-6  # as in Flax


def fits(width: int, x: Array, dtype: Any, activation: Any) -> bool:
    """Whether the kernel can stand in for a layer of x [B, ...]."""
    return kernels.fit(x, dtype, activation) and width == pl.next_power_of_2(width)


@jax.custom_vjp
def gelu_norm(u: Array, bias: Array, scale: Array, offset: Array) -> Array:
    """LayerNorm(gelu(u + bias)) for u [B, W], in bfloat16; everything inside is float32."""
    out = jax.ShapeDtypeStruct(u.shape, jnp.bfloat16)
    return _by_rows(_forward, _tile(FORTH, u), u, out)(u, bias, scale, offset)


def _keep(u, bias, scale, offset):
    """Sums over the rows are needed only where bias, scale or offset learn."""
    learned = any(x.perturbed for x in (bias, scale, offset))
    u, bias, scale, offset = (x.value for x in (u, bias, scale, offset))
    return gelu_norm(u, bias, scale, offset), (u, bias, scale, () if learned else None)


def _back(kept, dy):
    u, bias, scale, learned = kept
    tile = _tile(CONSTANT if learned is None else BACK, u)
    out = [jax.ShapeDtypeStruct(u.shape, jnp.bfloat16)]
    if learned is not None:
        sums = (len(u) // tile.rows, 3, u.shape[1])
        out.append(jax.ShapeDtypeStruct(sums, jnp.float32))
    du, *sums = _by_rows(_backward, tile, u, out)(u, bias, scale, dy)
    return du.astype(u.dtype), *(sums[0].sum(axis=0) if sums else (None,) * 3)


gelu_norm.defvjp(_keep, _back, symbolic_zeros=True)


def _forward(tile, u, bias, scale, offset, y):
    pieces = _pieces(u)
    bias, scale, offset = ([x[p][None] for p in pieces] for x in (bias, scale, offset))

    def some(rows, us, carry):
        g, _ = _each(gelu, [x + b for x, b in zip(us, bias, strict=True)])
        normal, _ = _normal(g)
        for p, n, s, o in zip(pieces, normal, scale, offset, strict=True):
            y[rows, p] = fma(n, s, o).astype(y.dtype)
        return carry

    _walk(tile, lambda rows: [u[rows, p] for p in pieces], some, ())


def _backward(tile, u, bias, scale, dy, du, *sums):
    pieces = _pieces(u)
    bias, scale = ([x[p][None] for p in pieces] for x in (bias, scale))

    def some(rows, read, columns):
        us, ds = read
        g, slope = _each(gelu, [x + b for x, b in zip(us, bias, strict=True)])
        normal, rate = _normal(g)
        ds = [d.astype(jnp.float32) for d in ds]
        inner = [d * s for d, s in zip(ds, scale, strict=True)]
        mean, along = rate * _mean(inner), rate * _mean_product(inner, normal)

        def piece(p, columns, d, normal, inner, slope):
            dz = slope * fma(normal, -along, fma(inner, rate, -mean))
            du[rows, p] = dz.astype(du.dtype)
            if not sums:
                return ()
            dz_sum, scale_sum, d_sum = columns
            return dz_sum + dz, fma(d, normal, scale_sum), d_sum + d

        return list(map(piece, pieces, columns, ds, normal, inner, slope))

    read = lambda rows: ([u[rows, p] for p in pieces], [dy[rows, p] for p in pieces])
    zeros = [(jnp.zeros((tile.step, p.size)),) * 3 if sums else () for p in pieces]
    columns = _walk(tile, read, some, zeros)
    for p, three in zip(pieces, columns, strict=True):
        for k, x in enumerate(three):
            sums[0][pl.program_id(0), k, p] = x.sum(axis=0)


def _walk(tile: Tile, read: Callable, some: Callable, carry: Any) -> Any:
    """carry = some(rows, read(rows), carry) for all rows of this program."""
    passes, first = tile.rows // tile.step, pl.program_id(0) * tile.rows

    def at(i):
        return pl.ds(first + i * tile.step, tile.step)

    def one(i, carry):
        return some(at(i), read(at(i)), carry)

    def one_ahead(i, state):
        now, carry = state
        following = read(at(jnp.minimum(i + 1, passes - 1)))
        return following, some(at(i), now, carry)

    if tile.ahead and passes > 1:
        return jax.lax.fori_loop(0, passes, one_ahead, (read(at(0)), carry))[1]
    return jax.lax.fori_loop(0, passes, one, carry)


def _each(function: Callable, xs: Sequence[Array]) -> Any:
    return zip(*map(function, xs), strict=True)


def _normal(g: Sequence[Array]) -> tuple[list[Array], Array]:
    """g with mean 0 and variance 1 in every row, and what it was multiplied by."""
    mean = _mean(g)
    centred = [x - mean for x in g]
    rate = jax.lax.rsqrt(_mean_product(centred, centred) + EPSILON)
    return [x * rate for x in centred], rate


def _mean(xs: Sequence[Array]) -> Array:
    """Of every row, given its pieces."""
    total = sum(xs[1:], xs[0])
    return total.sum(axis=1, keepdims=True) / (len(xs) * total.shape[1])


def _mean_product(xs: Sequence[Array], ys: Sequence[Array]) -> Array:
    total = xs[0] * ys[0]
    for x, y in zip(xs[1:], ys[1:], strict=True):
        total = fma(x, y, total)
    return _mean([total]) / len(xs)


def _pieces(u: Any) -> list[Any]:
    width, piece = u.shape[1], LANES // u.dtype.itemsize
    return [pl.ds(start, min(piece, width)) for start in range(0, width, piece)]


def _tile(tile: Tile, u: Array) -> Tile:
    """With fewer rows where they would not divide the batch."""
    rows = gcd(tile.rows, len(u))
    return tile._replace(rows=rows, step=min(tile.step, rows))


def _by_rows(kernel: Any, tile: Tile, u: Array, out: Any) -> Callable[..., Any]:
    return pl.pallas_call(
        partial(kernel, tile),
        out,
        grid=(len(u) // tile.rows,),
        compiler_params=triton.CompilerParams(num_warps=tile.warps, num_stages=1),
        interpret=interpreted(),
        name=kernel.__name__,
    )
