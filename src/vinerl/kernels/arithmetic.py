"""What kernels compute with, in as few instructions as a GPU has for it."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import triton

from vinerl.types import Array

A, B = 0.7978845608028654, 0.044715  # gelu(z) = z (1 + tanh(A (z + B z^3))) / 2


def gelu(z: Array) -> tuple[Array, Array]:
    """gelu(z) and its derivative."""
    square = z * z
    th = _tanh(z * fma(square, A * B, A))
    half = fma(th, 0.5, 0.5)
    inner = z * fma(square, 3 * A * B, A)  # z times the derivative of tanh's argument
    return z * half, fma(half, fma(inner, th, inner, minus=True), half)


def fma(x: Any, y: Any, z: Any, minus: bool = False) -> Array:
    """z + x y, or z - x y, as one instruction: by itself Triton under XLA uses two."""
    if interpreted():
        return z - x * y if minus else z + x * y
    shape = jnp.broadcast_shapes(*map(jnp.shape, (x, y, z)))
    turned = "{.reg .f32 x; neg.f32 x, $1; fma.rn.f32 $0, x, $2, $3;}"
    (out,) = triton.elementwise_inline_asm(
        turned if minus else "fma.rn.f32 $0, $1, $2, $3;",
        args=[jnp.broadcast_to(jnp.asarray(a, jnp.float32), shape) for a in (x, y, z)],
        constraints="=f,f,f,f",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(shape, jnp.float32)],
    )
    return out


def _tanh(x: Array) -> Array:
    return jnp.tanh(x) if interpreted() else triton.approx_tanh(x)


def interpreted() -> bool:
    """Without a GPU the kernel runs as plain JAX, slowly: for tests."""
    return jax.default_backend() != "gpu"
