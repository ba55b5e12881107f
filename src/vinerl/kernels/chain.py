"""All K steps of a sampler, and the way back through them, as one GPU kernel each.

For velocity fields of plain layers. The numbers are those of `samplers.trace` with hidden layers in
bfloat16, up to rounding. Gradients of weights are products over all steps at once, which XLA makes
from what the kernels leave: activations h and the gradients dz that arrive before them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp

from vinerl.types import Array, Velocity

ROWS = 64  # of the batch, for one block of threads
DIM = 64  # of an action, padded
WIDTHS = (512,)  # of the layers


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


class Plan(NamedTuple):
    """Sizes that a kernel is made for; `layers` leaves the first hidden one out."""

    steps: int
    layers: int
    width: int
    batch: int


def usable() -> bool:
    """On one Hopper, with the Pallas that the kernels are written for; interpreted on a CPU."""
    device = jax.devices()[0]
    capable = device.platform == "cpu" or getattr(device, "compute_capability", "") == "9.0"
    return capable and jax.__version_info__ >= (0, 11)


def fits(field: Velocity, noises: Array) -> TypeGuard[Field]:
    """Whether the kernels can make a path from noises [K + 1, B, A]."""
    if not isinstance(field, Field) or noises.ndim != 3 or not usable():
        return False
    _, batch, dim = noises.shape
    width = field.layers.start.shape[1]
    return batch % ROWS == 0 and dim <= DIM and width in WIDTHS and len(noises) > 1


@jax.custom_vjp
def trace(layers: Layers, rule: Rule, noises: Array) -> Array:
    """The path [K + 1, B, A], its first entry the first noise."""
    path, _ = _forward(layers, rule, noises, save=False)
    return path


def _keep(layers, rule, noises):
    path, kept = _forward(layers, rule, noises, save=True)
    return path, (layers, rule, noises, path, kept)


def _back(saved, dpath):
    from vinerl.kernels import hopper  # no part of JAX on every system

    layers, rule, noises, path, (z, h) = saved
    steps, batch, dim = len(rule.t), *noises.shape[1:]
    plan = _plan(layers, steps, batch)
    direct = _padded(dpath)
    stream = _stream(
        layers.last.T, [kernel.T for kernel in reversed(layers.kernels)], layers.action
    )
    du, *dz = hopper.backward(plan)(direct[-1], direct[:-1], _table(rule), stream, *z)
    du = du[..., :dim]

    along = lambda c: c[:, None, None]  # [K] beside [K, B, A]
    arriving = jnp.concatenate([(dpath[:-1] + along(rule.p) * du), dpath[-1:]])  # at a_0 .. a_K
    dv = along(rule.r) * arriving[1:]
    u = along(rule.p) * path[:-1] + along(rule.q) * noises[1:]
    sums = [_over_rows(d) for d in dz]  # [K, W]
    over = lambda x, y: jnp.einsum("kbi,kbo->io", x, y, preferred_element_type=jnp.float32)
    halves = lambda x: jnp.concatenate(_halves(x), axis=-1)
    both = lambda x, axis: jnp.add(*jnp.split(x, 2, axis))
    dlayers = Layers(
        start=dz[0].astype(jnp.float32).sum(axis=0),
        action=both(over(halves(u), dz[0]), 0),
        time=rule.t @ sums[0],
        kernels=tuple(map(over, h[:-1], dz[1:])),
        biases=tuple(each.sum(axis=0) for each in sums[1:]),
        last=both(over(h[-1], halves(dv)), 1),
        last_bias=dv.sum(axis=(0, 1)),
    )
    dnoises = along(rule.q) * du + along(rule.s) * arriving[1:]
    return dlayers, None, jnp.concatenate([arriving[:1], dnoises])


trace.defvjp(_keep, _back)


def _forward(layers: Layers, rule: Rule, noises: Array, save: bool) -> tuple[Array, Any]:
    """The path, and of every hidden layer what enters and leaves its gelu, [K, B, W] each."""
    from vinerl.kernels import hopper

    steps, batch, dim = len(rule.t), *noises.shape[1:]
    stream = _stream(layers.action, layers.kernels, layers.last.T)
    shifts = jnp.concatenate([rule.t[:, None] * layers.time, jnp.stack(layers.biases)])
    given = _padded(noises)
    bias = jnp.pad(layers.last_bias, (0, DIM - dim))
    call = hopper.forward(_plan(layers, steps, batch), save)
    seen, *kept = call(given[0], given[1:], _table(rule), layers.start, shifts, stream, bias)
    path = jnp.concatenate([noises[:1], seen[..., :dim]])
    return path, (kept[: len(kept) // 2], kept[len(kept) // 2 :])


def _plan(layers: Layers, steps: int, batch: int) -> Plan:
    return Plan(steps, len(layers.kernels), layers.start.shape[1], batch)


def _stream(entering: Array, kernels: Iterable[Array], leaving: Array) -> Array:
    """All weights of a step in the order in which the kernels read them, [.., W].

    The small ones are in two parts, whose sum is beyond bfloat16, and padded with rows of zeros.
    """
    pad = lambda rows: jnp.pad(rows, ((0, DIM - len(rows)), (0, 0)))
    first, last = (list(map(pad, _halves(rows))) for rows in (entering, leaving))
    return jnp.concatenate([*first, *(kernel.astype(jnp.bfloat16) for kernel in kernels), *last])


def _halves(x: Array) -> tuple[Array, Array]:
    """Two bfloat16 numbers whose sum is nearly x."""
    high = x.astype(jnp.bfloat16)
    return high, (x - high.astype(jnp.float32)).astype(jnp.bfloat16)


def _table(rule: Rule) -> Array:
    return jnp.stack([rule.p, rule.q, rule.m, rule.r, rule.s], axis=1)


def _padded(x: Array) -> Array:
    return jnp.pad(x, ((0, 0), (0, 0), (0, DIM - x.shape[-1])))


def _over_rows(dz: Array) -> Array:
    """The sum over the batch, [K, W]: in two passes, as XLA is slow to sum a long column."""
    steps, batch, width = dz.shape
    tiles = dz.astype(jnp.float32).reshape(steps, batch // ROWS, ROWS, width).sum(axis=2)
    return jax.lax.optimization_barrier(tiles).sum(axis=1)
