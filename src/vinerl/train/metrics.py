"""metrics.jsonl: one object a line, `step` and lists with one entry a member.

eval/success, eval/success_noise0, critic/q, actor/bc, grad_norm/actor: a number each;
grad_norm/step: K + 1 numbers each. What is not finite is written as null. Lines of one step may
be several: an evaluation that runs beside the training comes in when it is done.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vinerl.errors import InputError


def write(path: Path, step: int, metrics: Mapping[str, Any]) -> None:
    line = {"step": step} | {name: strict(np.asarray(m).tolist()) for name, m in metrics.items()}
    with path.open("a") as file:
        file.write(json.dumps(line, allow_nan=False) + "\n")


def strict(value: Any) -> Any:
    """The value with null for every number JSON has no word for."""
    if isinstance(value, list):
        return [strict(x) for x in value]
    if isinstance(value, dict):
        return {name: strict(x) for name, x in value.items()}
    return value if not isinstance(value, float) or math.isfinite(value) else None


def read(path: Path) -> list[dict[str, Any]]:
    """One object a step, in order of steps; lines of the same step are joined.

    A last line without its end is one that is just being written, or was when the run was killed.
    """
    steps: dict[int, dict[str, Any]] = {}
    whole = path.read_text().split("\n")[:-1]
    for number, line in enumerate(whole, start=1):
        try:
            found = json.loads(line)
            steps.setdefault(found["step"], {}).update(found)
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path}: line {number} is damaged ({error})") from error
    return [steps[step] for step in sorted(steps)]


def curve(lines: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [N] and values [N, S, ...] of one metric, NaN for null."""
    found = [(line["step"], line[name]) for line in lines if name in line]
    steps, values = zip(*found, strict=True) if found else ((), ())
    return np.array(steps, int), np.array(values, float)
