"""Tests cost what they compile, so little is optimised."""

import jax

jax.config.update("jax_disable_most_optimizations", True)
