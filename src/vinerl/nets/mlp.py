"""Layers. Kernels are Xavier-uniform; LayerNorm, where there is one, follows the activation.

Weights are float32. `dtype` is what hidden layers compute in; the first layer of a network takes
its inputs, and the last one gives its outputs, in float32: positions of 33.0 and 33.1 are one
number in bfloat16, and so are values of -200.1 and -200.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from vinerl.kernels import gelu, norm
from vinerl.types import Array, Params

Dense = partial(nn.Dense, kernel_init=nn.initializers.xavier_uniform())
Dtype = Any


def exact(dtype: Dtype) -> Dtype:
    """What the first and the last layer compute in: at least float32."""
    return jnp.promote_types(dtype, jnp.float32)


class Network(nn.Module):
    """A Flax module whose `apply` is typed as the output alone: nothing here is mutable."""

    @nn.nowrap
    def apply(self, params: Params, *inputs, method=None) -> Any:
        return super().apply(params, *inputs, method=method)


class Hidden(nn.Module):
    """Dense and an activation, width after width."""

    widths: Sequence[int]
    layer_norm: bool = False
    dtype: Dtype = jnp.float32
    activation: Callable[[Array], Array] = nn.gelu

    @nn.compact
    def __call__(self, *inputs: Array) -> Array:
        x = jnp.concatenate(inputs, axis=-1)
        for i, width in enumerate(self.widths):
            dense, scaled = f"Dense_{i}", f"LayerNorm_{i}"  # the same parameters either way
            entering = jnp.promote_types(x.dtype, self.dtype)
            fits = norm.fits if self.layer_norm else gelu.fits
            if fits(width, x, self.dtype, self.activation):
                product, bias = Product(width, entering, name=dense)(x)
                if self.layer_norm:
                    x = norm.gelu_norm(product, bias, *Affine(width, name=scaled)())
                else:
                    x = gelu.bias_gelu(product, bias)
                continue
            x = self.activation(Dense(width, dtype=entering, name=dense)(x).astype(self.dtype))
            x = nn.LayerNorm(dtype=self.dtype, name=scaled)(x) if self.layer_norm else x
        return x


class Product(nn.Module):
    """A Dense that leaves adding its bias to others."""

    width: int
    dtype: Dtype

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        kernel = self.param("kernel", nn.initializers.xavier_uniform(), (x.shape[-1], self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        return x.astype(self.dtype) @ kernel.astype(self.dtype), bias


class Affine(nn.Module):
    """The parameters of a LayerNorm."""

    width: int

    @nn.compact
    def __call__(self) -> tuple[Array, Array]:
        scale = self.param("scale", nn.initializers.ones, (self.width,))
        return scale, self.param("bias", nn.initializers.zeros, (self.width,))


class MLP(nn.Module):
    """Hidden layers and a linear one."""

    hidden: Sequence[int]
    out: int
    layer_norm: bool = False
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, *inputs: Array) -> Array:
        x = Hidden(self.hidden, self.layer_norm, self.dtype)(*inputs)
        return Dense(self.out, dtype=exact(self.dtype))(x)


class ResidualMLP(nn.Module):
    """A layer in, `blocks` times x + F(x) where F is the `hidden` layers, and a linear one."""

    hidden: Sequence[int]
    blocks: int
    out: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, *inputs: Array) -> Array:
        x = Hidden(self.hidden[-1:], layer_norm=True, dtype=self.dtype)(*inputs)
        for _ in range(self.blocks):
            x = x + Hidden(self.hidden, layer_norm=True, dtype=self.dtype)(x)
        return Dense(self.out, dtype=exact(self.dtype))(x)


class PreNormMLP(nn.Module):
    """Another reading of "ResNet of depth n": n two-layer branches that normalise first."""

    hidden: Sequence[int]
    out: int
    dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, *inputs: Array) -> Array:
        x = Dense(self.hidden[0], dtype=exact(self.dtype))(jnp.concatenate(inputs, axis=-1))
        x = x.astype(self.dtype)
        for width in self.hidden:
            branch = Hidden((width,), dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x))
            x = x + Dense(x.shape[-1], dtype=self.dtype)(branch)
        return Dense(self.out, dtype=exact(self.dtype))(nn.LayerNorm(dtype=self.dtype)(x))
