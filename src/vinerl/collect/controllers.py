"""What moves a robot in a direction: nothing for the point, a small network for those with legs.

A controller is a safetensors file: hidden layers `0.w`, `0.b`, `1.w`, ..., and `mean.w`, `mean.b`;
its metadata name the robot. It maps [state without its place, direction] to tanh(mean).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from vinerl.errors import InputError

ASSETS = Path(__file__).parent / "assets"
FORMAT = "vinerl controller 1"
SIZES = {"ant": (29, 8), "humanoid": (69, 21)}  # of what a controller sees, and of an action

Controller = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (obs, direction [E, 2]) -> [E, A]


def shipped(robot: str) -> Path | None:
    """The controller that comes with the package, where there is one."""
    path = ASSETS / f"{robot}.safetensors"
    return path if path.is_file() else None


def point(obs: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The point moves where it is told."""
    del obs
    return direction


def walker(weights: Mapping[str, np.ndarray]) -> Controller:
    """The network in NumPy. Its observation starts with the place, which it does not see."""
    depth = sum(name.endswith(".w") for name in weights) - 1

    def act(obs, direction):
        h = np.concatenate([obs[:, 2:], direction], axis=1).astype(np.float32)
        for i in range(depth):
            h = gelu(h @ weights[f"{i}.w"] + weights[f"{i}.b"])
        return np.tanh(h @ weights["mean.w"] + weights["mean.b"])

    return act


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form, which is the one that controllers are trained with."""
    inner = np.float32(np.sqrt(2 / np.pi)) * x * (1 + np.float32(0.044715) * x * x)
    return 0.5 * x * (1 + np.tanh(inner))


def save(path: Path, weights: Mapping[str, np.ndarray], robot: str) -> None:
    from safetensors.numpy import save as to_bytes

    from vinerl import disk

    disk.write(path, to_bytes(dict(weights), metadata={"format": FORMAT, "robot": robot}))


def load(path: Path, robot: str) -> Controller:
    return walker(read(path, robot))


def read(path: Path, robot: str) -> dict[str, np.ndarray]:
    """The weights of a controller for `robot`, everything about them checked."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            facts = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    # The last two are NumPy's, for numbers it has no format for, such as bfloat16.
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a readable controller ({error})") from error
    if facts.get("format") != FORMAT or facts.get("robot") != robot:
        raise InputError(
            f"{path}: expected a controller of {robot!r} ({FORMAT}), its metadata say "
            f"{json.dumps(facts)}"
        )
    _check(path, weights, robot)
    return weights


def _check(path: Path, weights: Mapping[str, np.ndarray], robot: str) -> None:
    depth = sum(name.endswith(".w") for name in weights) - 1
    layers = [*map(str, range(depth)), "mean"]
    if set(weights) != {f"{layer}.{part}" for layer in layers for part in "wb"}:
        raise InputError(f"{path}: has {sorted(weights)}, expected weights and biases of {layers}")
    width, actions = SIZES[robot]
    for layer in layers:
        w, b = weights[f"{layer}.w"], weights[f"{layer}.b"]
        fits = w.ndim == 2 and b.shape == w.shape[1:] and len(w) == width
        fits = fits and (layer != "mean" or w.shape[1] == actions)
        if not fits or not all(x.dtype == np.float32 and np.isfinite(x).all() for x in (w, b)):
            raise InputError(f"{path}: layer {layer} is not finite float32 of a shape that fits")
        width = w.shape[1]
