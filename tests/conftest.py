"""Tests cost what they compile, so little is optimised. Nothing is drawn by MuJoCo."""

import os

import jax

jax.config.update("jax_disable_most_optimizations", True)
os.environ.setdefault("MUJOCO_GL", "disable")  # a machine without OpenGL is not at fault
