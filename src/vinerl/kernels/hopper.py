"""The kernels of `chain`, for GPUs that multiply as Hopper does (wgmma, TMA), through Pallas.

A block of threads takes ROWS rows of the batch through all steps; their activations never leave the
chip, except to be kept for the way back. Two groups of threads have half of a layer's columns
each. A third brings the weights, slice after slice, to the blocks of a cluster at once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as gpu

from vinerl.kernels.chain import DIM, ROWS, Plan
from vinerl.types import Array

SLICE = 64  # rows of the weights that are multiplied at once
STAGES = 4  # slices' halves on the chip
CLUSTER = 4  # blocks that share a slice, at most
CHUNK = 64  # columns that a thread group works on between two products
A, B = 0.7978845608028654, 0.044715  # gelu(z) = z (1 + tanh(A (z + B z^3))) / 2


def forward(plan: Plan, save: bool) -> Callable[..., Any]:
    """(start, noises, table, base, shifts, stream, bias) -> path, and with `save` all z, all h."""

    def body(start, noises, table, base, shifts, stream, bias, seen, *refs):
        kept, scratch = refs[: -len(_scratch(plan))], refs[-len(_scratch(plan)) :]
        zs, hs = kept[: plan.layers + 1], kept[plan.layers + 1 :]

        def work(crew: "_Crew") -> None:
            rows = crew.rows

            def step(k, x):
                noise = _load(noises.at[k, rows])
                u = table[k, 0] * x + table[k, 1] * noise
                at = k * _slices(plan)
                for layer in range(plan.layers + 1):
                    sums = crew.hidden(at) if layer else crew.expand(at, u)
                    at += plan.width // SLICE if layer else 2

                    def activate(sums, columns, layer=layer):
                        z = sums if layer else sums + _load(base.at[rows, columns])
                        shift = _load(shifts.at[plan.steps + layer - 1 if layer else k, columns])
                        z += lax.broadcast_in_dim(shift, z.shape, [1])
                        if save:
                            zs[layer][k, rows, columns] = z.astype(jnp.bfloat16)
                        return _gelu(z)

                    crew.replace(sums, activate, hs[layer].at[k] if save else None)
                v = crew.contract(at)
                v += lax.broadcast_in_dim(_load(bias), v.shape, [1])
                x = table[k, 2] * u + table[k, 3] * v + table[k, 4] * noise
                crew.once(lambda: _store(seen.at[k, rows], x))
                return x

            lax.fori_loop(0, plan.steps, step, crew.first(start))

        _run(plan, stream, scratch, work)

    path = jax.ShapeDtypeStruct((plan.steps, plan.batch, DIM), jnp.float32)
    return _call(plan, body, [path, *(_activations(plan) * 2 if save else [])])


def backward(plan: Plan) -> Callable[..., Any]:
    """(arriving at the end, directly at a_0 .., table, stream, *z) -> du, and all dz."""

    def body(end, direct, table, stream, *refs):
        zs, (du, *dzs) = refs[: plan.layers + 1], refs[plan.layers + 1 : 2 * plan.layers + 3]
        scratch = refs[2 * plan.layers + 3 :]

        def work(crew: "_Crew") -> None:
            rows = crew.rows

            def step(i, g):
                k, at = plan.steps - 1 - i, i * _slices(plan)
                for layer in range(plan.layers, -1, -1):
                    last = layer == plan.layers
                    sums = crew.expand(at, table[k, 3] * g) if last else crew.hidden(at)
                    at += 2 if last else plan.width // SLICE

                    def through(sums, columns, layer=layer):
                        z = _load(zs[layer].at[k, rows, columns]).astype(jnp.float32)
                        return sums * _slope(z)

                    crew.replace(sums, through, dzs[layer].at[k])
                u = table[k, 2] * g + crew.contract(at)
                crew.once(lambda: _store(du.at[k, rows], u))
                return table[k, 0] * u + _load(direct.at[k, rows])

            lax.fori_loop(0, plan.steps, step, crew.first(end))

        _run(plan, stream, scratch, work)

    path = jax.ShapeDtypeStruct((plan.steps, plan.batch, DIM), jnp.float32)
    return _call(plan, body, [path, *_activations(plan)])


class _Crew:
    """What one of the two thread groups that compute can do. Both do the same, in step."""

    def __init__(self, plan: Plan, group: Array, rows: Any, scratch: Any):
        self.plan, self.group, self.rows = plan, group, rows
        self.act, self.ring, self.full, self.empty, self.read, self.written = scratch

    def first(self, start: Any) -> Array:
        return gpu.layout_cast(_load(start.at[self.rows]), gpu.Layout.WGMMA)

    def once(self, work: Callable[[], None]) -> None:
        pl.when(self.group == 0)(work)

    def meet(self, barrier: Any) -> None:
        gpu.barrier_arrive(barrier)
        gpu.barrier_wait(barrier)

    def piece(self, j: Any) -> Any:
        """SLICE columns of the activations."""
        each = _half(self.plan) // SLICE
        return self.act.at[lax.div(j, each), :, pl.ds(lax.rem(j, each) * SLICE, SLICE)]

    def slice(self, at: Any, sums: Any, *multiply: Callable[[Any], tuple[Any, Any]]) -> None:
        """Adds products with a slice's half to `sums` and gives its place back."""
        place = lax.rem(2 * at + self.group, STAGES)
        gpu.barrier_wait(self.full.at[place])
        for factors in multiply:
            gpu.wgmma(sums, *factors(self.ring.at[place]))
        gpu.wgmma_wait(0)
        gpu.barrier_arrive(self.empty.at[place])

    def sums(self, columns: int, multiply: Callable[[Any], Any]) -> Array:
        def scope(sums):
            multiply(sums)
            return sums[...]

        return pl.run_scoped(scope, gpu.WGMMAAccumulatorRef((ROWS, columns), jnp.float32))

    def hidden(self, at: Any) -> Array:
        """The activations times a layer's weights, this group's columns."""

        def multiply(sums):
            def one(j, _):
                self.slice(at + j, sums, lambda weights: (self.piece(j), weights))
                return ()

            lax.fori_loop(0, self.plan.width // SLICE, one, ())

        return self.sums(_half(self.plan), multiply)

    def expand(self, at: Any, x: Array) -> Array:
        """x times the first weights, both in two parts."""
        high, low = self.piece(0), self.piece(1)

        def put():
            self.split(x, high, low)
            gpu.commit_smem()

        self.once(put)
        self.meet(self.written)

        def multiply(sums):
            self.slice(at, sums, lambda w: (high, w), lambda w: (low, w))
            self.slice(at + 1, sums, lambda w: (high, w))

        return self.sums(_half(self.plan), multiply)

    def contract(self, at: Any) -> Array:
        """The activations times the last weights, [ROWS, DIM]; each group has half of the sum."""

        def multiply(sums):
            for i in range(2):
                self.slice(at + i, sums, lambda w: (self.act.at[self.group], w.T))

        own = self.sums(DIM, multiply)
        gpu.wait_smem_to_gmem(0, wait_read_only=True)
        self.meet(self.read)
        parts = lambda group: [self.piece(2 + 2 * group + i) for i in range(2)]
        self.split(own, *parts(self.group))
        gpu.commit_smem()
        self.meet(self.written)
        high, low = (part[...].astype(jnp.float32) for part in parts(1 - self.group))
        return own + (high + low)

    def split(self, x: Array, high: Any, low: Any) -> None:
        main = x.astype(jnp.bfloat16)
        high[...] = main
        low[...] = (x - main.astype(jnp.float32)).astype(jnp.bfloat16)

    def replace(self, sums: Array, work: Callable[[Array, Any], Array], keep: Any) -> None:
        """The activations become work(sums, columns), once neither group reads them any more."""
        gpu.barrier_arrive(self.read)
        first = self.group * _half(self.plan)
        chunks = range(0, _half(self.plan), CHUNK)
        columns = [pl.ds(first + c, CHUNK) for c in chunks]
        made = [work(sums[:, c : c + CHUNK], at) for c, at in zip(chunks, columns, strict=True)]
        gpu.wait_smem_to_gmem(0, wait_read_only=True)
        gpu.barrier_wait(self.read)
        for c, values in zip(chunks, made, strict=True):
            self.act[self.group, :, c : c + CHUNK] = values.astype(jnp.bfloat16)
        gpu.commit_smem()
        if keep is not None:
            mine = keep.at[self.rows, pl.ds(first, _half(self.plan))]
            gpu.copy_smem_to_gmem(self.act.at[self.group], mine)
        self.meet(self.written)


def _half(plan: Plan) -> int:
    """Columns of a thread group."""
    return plan.width // 2


def _slices(plan: Plan) -> int:
    """Of the weights, in a step: two at either end, for the high and the low parts."""
    return 2 + plan.layers * (plan.width // SLICE) + 2


def _cluster(plan: Plan) -> int:
    """Blocks that are given slices together; the interpreter has threads for one alone."""
    tiles = plan.batch // ROWS
    return 1 if _interpreted() else next(n for n in (CLUSTER, 2, 1) if tiles % n == 0)


def _run(plan: Plan, stream: Any, scratch: Any, work: Callable[[_Crew], None]) -> None:
    """Two groups work on rows of the batch; the third brings what they multiply with."""
    group = lax.axis_index("group")
    place = lax.axis_index("cluster") if _cluster(plan) > 1 else 0
    tile = lax.axis_index("tile") * _cluster(plan) + place

    @pl.when(group == 2)
    def _():
        gpu.set_max_registers(40, action="decrease")
        _bring(plan, stream, scratch)

    @pl.when(group < 2)
    def _():
        gpu.set_max_registers(232, action="increase")
        work(_Crew(plan, group, pl.ds(tile * ROWS, ROWS), scratch))
        gpu.wait_smem_to_gmem(0)


def _bring(plan: Plan, stream: Any, scratch: Any) -> None:
    """All weights, once a step, half a slice at a time."""
    _, ring, full, empty, *_ = scratch
    count = plan.steps * _slices(plan) * 2
    shared = "cluster" if _cluster(plan) > 1 else None

    def load(i, _):
        place = lax.rem(i, STAGES)
        pl.when(i >= STAGES)(lambda: gpu.barrier_wait(empty.at[place]))
        row = lax.rem(lax.div(i, 2), _slices(plan)) * SLICE
        columns = pl.ds(lax.rem(i, 2) * _half(plan), _half(plan))
        part = stream.at[pl.ds(row, SLICE), columns]
        gpu.copy_gmem_to_smem(part, ring.at[place], full.at[place], collective_axes=shared)
        return ()

    def drain(i, _):
        gpu.barrier_wait(empty.at[lax.rem(i, STAGES)])
        return ()

    lax.fori_loop(0, count, load, ())
    lax.fori_loop(count - STAGES, count, drain, ())  # no block leaves while others need it


def _scratch(plan: Plan) -> list[Any]:
    tiled = (gpu.TilingTransform((8, SLICE)), gpu.SwizzleTransform(128))
    empty = gpu.Barrier(num_barriers=STAGES)
    if _cluster(plan) > 1:
        empty = gpu.ClusterBarrier(collective_axes=("cluster",), num_barriers=STAGES)
    return [
        gpu.SMEM((2, ROWS, _half(plan)), jnp.bfloat16, transforms=tiled),
        gpu.SMEM((STAGES, SLICE, _half(plan)), jnp.bfloat16, transforms=tiled),
        gpu.Barrier(num_barriers=STAGES),
        empty,
        gpu.Barrier(num_arrivals=2),
        gpu.Barrier(num_arrivals=2),
    ]


def _call(plan: Plan, body: Callable[..., None], out: list[Any]) -> Callable[..., Any]:
    several = _cluster(plan) > 1
    return gpu.kernel(
        body,
        out_type=out,
        scratch_types=_scratch(plan),
        grid=(plan.batch // ROWS // _cluster(plan),),
        grid_names=("tile",),
        cluster=(_cluster(plan),) if several else (),
        cluster_names=("cluster",) if several else (),
        num_threads=3,
        thread_name="group",
        interpret=_interpreter(),
        compiler_params=gpu.CompilerParams(approx_math=True),
    )


def _activations(plan: Plan) -> list[Any]:
    shape = plan.steps, plan.batch, plan.width
    return [jax.ShapeDtypeStruct(shape, jnp.bfloat16)] * (plan.layers + 1)


def _interpreted() -> bool:
    return jax.default_backend() != "gpu"


def _interpreter() -> Any:
    params = getattr(gpu, "InterpretGPUParams", None)  # from JAX 0.11 on
    return params() if params and _interpreted() else None


def _load(ref: Any) -> Array:
    return gpu.load(ref, optimized=False)  # pyright: ignore[reportCallIssue]


def _store(ref: Any, value: Array) -> None:
    ref[...] = value


def _gelu(z: Array) -> Array:
    return 0.5 * z * (1 + jnp.tanh(A * z * (1 + B * z * z)))


def _slope(z: Array) -> Array:
    """gelu's derivative."""
    th = jnp.tanh(A * z * (1 + B * z * z))
    return 0.5 * (1 + th) + 0.5 * z * (1 - th * th) * A * (1 + 3 * B * z * z)
