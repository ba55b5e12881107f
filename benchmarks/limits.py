"""What the device can do at best: large matrix products, and a copy."""

import jax
import jax.numpy as jnp

from benchmarks import clock

PRECISIONS = ("bfloat16", "float32")  # a GPU multiplies float32 as TF32


def product(precision: str, small: bool, seconds: float) -> dict[str, float]:
    size = 64 if small else 8192
    x = jax.random.normal(jax.random.key(0), (size, size), jnp.dtype(precision))
    multiply = jax.jit(jnp.matmul)
    spent = clock.calls(lambda: multiply(x, x), seconds)
    return {"size": size, "tflops": 2 * size**3 / spent / 1e12}


def copy(small: bool, seconds: float) -> dict[str, float]:
    """Each float32 is read once and written once; adding 1 keeps the copy from being left out."""
    x = jnp.zeros(1 << (14 if small else 28))
    add = jax.jit(lambda x: x + 1)
    return {"gb_s": 2 * x.nbytes / clock.calls(lambda: add(x), seconds) / 1e9}
