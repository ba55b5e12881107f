"""The two ends of a velocity field: into its first layer, and out of its last hidden one.

An action has few numbers, so a product with them is a few operations for each activation. They
are done in the pass that adds biases and takes gelu, or its slope on the way back: no products are
written to memory to be read again. Products over whole rows of activations stay with XLA.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from vinerl.kernels.arithmetic import dot, gelu
from vinerl.kernels.gelu import Tile, bias_gelu, by_tiles, place, tile_of
from vinerl.types import Array

ENTER = Tile(rows=32, columns=128, warps=4)
LEAVE = Tile(rows=32, columns=128, warps=4)
DIMS = 16  # an action is padded to so many numbers: the fewest that a GPU multiplies


class Entrance(NamedTuple):
    """Parameters of the first layer, and the rates m, s, p, q of

    a = m u + velocity + lift + s noise,  u' = p a + q noise'
    """

    lift: Array  # [A]
    start: Array  # [B, W], what the observations add to the first layer
    shift: Array  # [W], what the time adds to it
    first: Array  # [A, W], from u' to it
    rates: Array  # [4]


@jax.custom_vjp
def enter(
    velocity: Array, u: Array, noise: Array, following: Array, entrance: Entrance
) -> tuple[Array, Array, Array]:
    """a and u' [B, A], and the first activations gelu(start + shift + u' first) [B, W], bfloat16.

    The velocity is what this step adds to a. Noises are of this step and of the following one.
    """
    small = jax.ShapeDtypeStruct(u.shape, jnp.float32)
    start = entrance.start
    out = small, small, jax.ShapeDtypeStruct(start.shape, jnp.bfloat16)
    given = velocity, u, noise, following, *entrance
    return by_tiles(_enter, ENTER, start, out)(*given)


def _entered(velocity, u, noise, following, entrance):
    a, u, h = enter(velocity, u, noise, following, entrance)
    return (a, u, h), (u, entrance)


def _enter_back(saved, arriving):
    u, entrance = saved
    da, du, dh = arriving
    _, start, shift, first, (m, s, p, q) = entrance
    out = jax.ShapeDtypeStruct(start.shape, jnp.bfloat16)
    dz = by_tiles(_slopes, ENTER, start, out)(u, dh, start, shift, first).astype(jnp.float32)
    ones = jnp.ones_like(u[:, :1])
    weights = jnp.concatenate([u, ones], axis=1).T @ dz
    du += dz @ first.T
    da += p * du
    dentrance = Entrance(
        lift=da.sum(axis=0),
        start=dz,
        shift=weights[-1],
        first=weights[:-1],
        rates=jnp.zeros_like(entrance.rates),  # they come from the grid of times
    )
    return da, m * da, s * da, q * du, dentrance


enter.defvjp(_entered, _enter_back)


@jax.custom_vjp
def leave(products: Array, bias: Array, last: Array) -> Array:
    """gelu(products + bias) last' [B, A], in float32.

    products [B, W], bfloat16; last [A, W], float32.
    """
    return bias_gelu(products, bias).astype(jnp.float32) @ last.T


def _left(products, bias, last):
    h = bias_gelu(products, bias)
    return h.astype(jnp.float32) @ last.T, (products, h, bias, last)


def _leave_back(saved, dv):
    products, h, bias, last = saved
    sums = (len(products) // tile_of(LEAVE, products).rows, products.shape[1])
    out = (
        jax.ShapeDtypeStruct(products.shape, jnp.bfloat16),
        jax.ShapeDtypeStruct(sums, jnp.float32),
    )
    dproducts, sums = by_tiles(_leave_slopes, LEAVE, products, out)(products, bias, last, dv)
    return dproducts, sums.sum(axis=0), dv.T @ h.astype(jnp.float32)


leave.defvjp(_left, _leave_back)


def _enter(tile, velocity, u, noise, following, lift, start, shift, first, rates, a, u_next, h):
    rows, columns = place(tile)
    estimate = velocity[rows, :] + lift[...][None]
    estimate += rates[0] * u[rows, :] + rates[1] * noise[rows, :]
    inside = rates[2] * estimate + rates[3] * following[rows, :]
    z = start[rows, columns] + shift[columns][None] + dot(inside, first[:, columns])
    h[rows, columns] = gelu(z)[0].astype(h.dtype)

    @pl.when(pl.program_id(1) == 0)
    def _():
        a[rows, :] = estimate
        u_next[rows, :] = inside


def _slopes(tile, u, dh, start, shift, first, dz):
    rows, columns = place(tile)
    z = start[rows, columns] + shift[columns][None] + dot(u[rows, :], first[:, columns])
    dz[rows, columns] = (gelu(z)[1] * dh[rows, columns].astype(jnp.float32)).astype(dz.dtype)


def _leave_slopes(tile, products, bias, last, dv, dproducts, sums):
    rows, columns = place(tile)
    _, slope = gelu(products[rows, columns] + bias[columns][None])
    dz = slope * dot(dv[rows, :], last[:, columns])
    dproducts[rows, columns] = dz.astype(dproducts.dtype)
    sums[pl.program_id(0), columns] = dz.sum(axis=0)
