"""The K steps of a sampler in a few GPU kernels, for velocity fields of plain layers.

A layer is one kernel: its product, bias and activation, written where the gradient will look for
it. Between two steps, the last layer of one, the step rule and the first layer of the next are one
kernel more. The gradient goes back the same way, and every weight's gradient is one product over
all K steps, summed in float32. The numbers are those of `samplers.trace` with hidden layers in
bfloat16, up to rounding.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from vinerl.kernels.common import HALF, call, gelu, slope
from vinerl.types import Array, Velocity


class Layers(NamedTuple):
    """A velocity field at its observations: gelu layers of one width W, and a linear one."""

    start: Array  # [B, W], what the observations add to the first layer, with its bias
    action: Array  # [A, W], of the first layer
    time: Array  # [W], of the first layer
    kernels: tuple[Array, ...]  # [W, W] each, of the other hidden layers
    biases: tuple[Array, ...]  # [W] each
    last: Array  # [W, A]
    last_bias: Array  # [A]


class Field(NamedTuple):
    """A velocity field that can be taken apart."""

    plain: Velocity
    layers: Layers

    def __call__(self, x: Array, t: Array) -> Array:
        return self.plain(x, t)


class Rule(NamedTuple):
    """A step that is linear in estimate, noise and velocity; K values of each coefficient.

    u = p a + q z;  a' = m u + r v(u, t) + s z
    """

    t: Array
    p: Array
    q: Array
    m: Array
    r: Array
    s: Array


@dataclass(frozen=True)
class Tile:
    """How the kernels divide their work."""

    rows: int = 64  # of the batch, for one program
    columns: int = 128  # of a layer's outputs
    slice: int = 64  # of a layer's inputs, in one product
    warps: int = 4
    stages: int = 3  # slices on their way at once
    turn: int = 16  # rows, between two steps


TILE = Tile()


def fits(field: Velocity, noises: Array, tile: Tile = TILE) -> TypeGuard[Field]:
    """Whether the kernels can make this path."""
    if not isinstance(field, Field) or noises.ndim != 3:
        return False
    batch, width = field.layers.start.shape
    whole = batch % max(tile.rows, tile.turn) == 0 and width % max(tile.columns, tile.slice) == 0
    return whole and width == pl.next_power_of_2(width)


def trace(layers: Layers, rule: Rule, noises: Array, tile: Tile = TILE) -> Array:
    """The path [K + 1, B, A] for noises [K + 1, B, A]."""
    size = noises.shape[-1]
    wide = max(16, pl.next_power_of_2(size))  # what a matrix unit takes
    pad = lambda x, axis: jnp.pad(x, [(0, wide - size if i == axis else 0) for i in range(x.ndim)])
    layers = layers._replace(
        action=pad(layers.action, 0), last=pad(layers.last, 1), last_bias=pad(layers.last_bias, 0)
    )
    return _path(tile, layers, jnp.stack(rule, axis=-1), pad(noises, 2))[..., :size]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _path(tile: Tile, layers: Layers, rule: Array, noises: Array) -> Array:
    return _forward(tile, layers, rule, noises, keep=False)[0]


def _path_forward(tile, layers, rule, noises):
    path, hidden = _forward(tile, layers, rule, noises, keep=True)
    return path, (layers, rule, noises, path, hidden)


def _path_backward(tile, kept, g):
    layers, rule, noises, path, hidden = kept
    before, after = zip(*hidden, strict=True)
    (first, *rest), g, d_entered = _backward(tile, layers, rule, before, g)
    t, p, q, _, r, s = (rule[:, i, None, None] for i in range(6))
    entered, d_velocity = p * path[:-1] + q * noises[1:], r * g[1:]
    together = partial(jnp.einsum, preferred_element_type=jnp.float32)
    over = partial(jnp.sum, dtype=jnp.float32)
    d_layers = Layers(
        start=over(first, axis=0),
        action=together("kba,kbw->aw", entered, first.astype(jnp.float32)),
        time=over(t * first, axis=(0, 1)),
        kernels=tuple(map(partial(together, "kbi,kbo->io"), after[:-1], rest)),
        biases=tuple(over(d, axis=(0, 1)) for d in rest),
        last=together("kbw,kba->wa", after[-1], d_velocity.astype(HALF)),
        last_bias=over(d_velocity, axis=(0, 1)),
    )
    d_noises = jnp.concatenate([g[:1], q * d_entered + s * g[1:]])
    return d_layers, jnp.zeros_like(rule), d_noises


_path.defvjp(_path_forward, _path_backward)


def _forward(tile: Tile, layers: Layers, rule: Array, noises: Array, keep: bool):
    """The path, and for each of L + 1 layers what enters its gelu and what leaves it, [K, B, W].

    Without `keep` only what leaves, and one step's takes the place of another's.
    """
    steps, depth = len(rule), len(layers.kernels)
    kernels = [kernel.astype(HALF) for kernel in layers.kernels]
    edge = rule, layers.start, layers.action, layers.time, layers.last, layers.last_bias, noises
    path, *spaces = _empty(noises, *[_hidden(layers, steps if keep else 1)] * (2 * depth + 2))
    hidden = [spaces[2 * i : 2 * i + 2][not keep :] for i in range(depth + 1)]
    for k in range(steps + 1):
        at = jnp.array([k, k, k - 1] if keep else [k, 0, 0])
        turn = partial(_turn, ends=k > 0, begins=k < steps)
        path, *hidden[0] = _by_rows(tile, turn, (at, *edge, hidden[-1][-1]), (path, *hidden[0]))
        for i in range(depth if k < steps else 0):
            reads = at, hidden[i][-1], kernels[i], layers.biases[i]
            hidden[i + 1] = _by_tiles(tile, _layer, reads, hidden[i + 1])
    return path, hidden


def _backward(tile: Tile, layers: Layers, rule: Array, before: tuple[Array, ...], g_path: Array):
    """What arrives before every gelu, L + 1 times [K, B, W], at the estimates and at u."""
    steps, depth = len(rule), len(layers.kernels)
    kernels = [kernel.astype(HALF) for kernel in layers.kernels]
    edge = rule, layers.action, layers.last, before[-1], g_path
    g, d_entered, *arriving = _empty(g_path, g_path[1:], *[before[0]] * (depth + 1))
    for k in reversed(range(-1, steps)):
        at = jnp.array([k])
        turn = partial(_turn_back, begins=k < steps - 1, ends=k >= 0)
        reads, writes = (at, *edge, arriving[0]), (g, d_entered, arriving[-1])
        g, d_entered, arriving[-1] = _by_rows(tile, turn, reads, writes)
        for i in reversed(range(depth if k >= 0 else 0)):
            reads = at, arriving[i + 1], kernels[i], before[i]
            (arriving[i],) = _by_tiles(tile, _layer_back, reads, (arriving[i],))
    return arriving, g, d_entered


def _turn(
    at, rule, start, action, time, last, last_bias, noises, leaving, *refs, tile, ends, begins
):
    """From the last hidden layer of step k - 1, if there is one, to the first of step k."""
    path, *hidden = refs[len(refs) // 2 :]
    rows = pl.ds(pl.program_id(0) * tile.turn, tile.turn)
    k, slot, slot_before = at[0], at[1], at[2]
    if ends:
        _, p, q, m, r, s = (rule[k - 1, i] for i in range(6))
        noise = noises[k, rows, :]
        x = p * path[k - 1, rows, :] + q * noise
        inputs = lambda part: leaving[slot_before, rows, part].astype(jnp.float32)
        v = _product(tile, inputs, lambda part: last[part, :], last.shape[0]) + last_bias[...][None]
        x = m * x + r * v + s * noise
    else:
        x = noises[0, rows, :]
    path[k, rows, :] = x
    if begins:
        x = rule[k, 1] * x + rule[k, 2] * noises[k + 1, rows, :]
        z = start[rows, :] + _dot(x, action[...]) + rule[k, 0] * time[...][None]
        _write(z, hidden, (slot, rows, slice(None)))


def _layer(at, inputs, kernel, bias, *refs, tile):
    rows, columns = _place(tile)
    z = _product(
        tile,
        lambda part: inputs[at[1], rows, part],
        lambda part: kernel[part, columns],
        len(kernel),
    )
    _write(z + bias[columns][None], refs[len(refs) // 2 :], (at[1], rows, columns))


def _turn_back(at, rule, action, last, before, g_path, first, *refs, tile, begins, ends):
    """From the first hidden layer of step k + 1, if there is one, to the last of step k."""
    g, d_entered, arriving = refs[len(refs) // 2 :]
    rows = pl.ds(pl.program_id(0) * tile.turn, tile.turn)
    k = at[0]
    total = g_path[k + 1, rows, :]
    if begins:
        inputs = lambda part: first[k + 1, rows, part].astype(jnp.float32)
        through = _product(tile, inputs, lambda part: action[:, part].T, action.shape[1])
        entered = rule[k + 1, 3] * g[k + 2, rows, :] + through
        d_entered[k + 1, rows, :] = entered
        total = total + rule[k + 1, 1] * entered
    g[k + 1, rows, :] = total
    if ends:
        d = _dot(rule[k, 4] * total, last[...].T) * slope(before[k, rows, :])
        arriving[k, rows, :] = d.astype(HALF)


def _layer_back(at, inputs, kernel, before, _, arriving, *, tile):
    (rows, columns), k = _place(tile), at[0]
    d = _product(
        tile,
        lambda part: inputs[k, rows, part],
        lambda part: kernel[columns, part].T,
        len(kernel),
    )
    arriving[k, rows, columns] = (d * slope(before[k, rows, columns])).astype(HALF)


def _by_rows(tile: Tile, kernel, reads, writes):
    return _call(tile, kernel, (writes[0].shape[1] // tile.turn,), reads, writes)


def _by_tiles(tile: Tile, kernel, reads, writes):
    _, batch, width = writes[0].shape
    return _call(tile, kernel, (batch // tile.rows, width // tile.columns), reads, writes)


def _place(tile: Tile):
    i, j = pl.program_id(0), pl.program_id(1)
    return pl.ds(i * tile.rows, tile.rows), pl.ds(j * tile.columns, tile.columns)


def _call(tile: Tile, kernel, grid, reads, writes):
    """The kernel with what it reads, and what it writes a part of: the rest stays as it is."""
    out = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in writes]
    same = {len(reads) + i: i for i in range(len(writes))}
    options = {"warps": tile.warps, "stages": tile.stages}
    kernel = partial(kernel, tile=tile)
    return call(kernel, out, grid=grid, input_output_aliases=same, **options)(*reads, *writes)


def _empty(*like) -> list[Array]:
    """Arrays whose values nobody has set."""
    return call(lambda *_: None, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in like])()


def _hidden(layers: Layers, steps: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((steps, *layers.start.shape), HALF)


def _product(tile: Tile, left, right, inner: int) -> Array:
    """Sum of left(part) @ right(part) over the parts of the inner dimension."""

    def term(c):
        part = pl.ds(c * tile.slice, tile.slice)
        return _dot(left(part), right(part))

    shape = jax.eval_shape(lambda: term(0)).shape
    add = lambda c, total: total + term(c)
    return jax.lax.fori_loop(0, inner // tile.slice, add, jnp.zeros(shape, jnp.float32))


def _dot(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _write(z: Array, refs, where) -> None:
    """What enters a gelu, where that is kept, and what leaves it."""
    z = z.astype(HALF)
    for ref, value in zip(reversed(refs), (gelu(z).astype(HALF), z)[: len(refs)], strict=True):
        ref[where] = value
