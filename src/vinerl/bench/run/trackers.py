"""Where metrics go besides metrics.jsonl, for those who ask."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vinerl.errors import InputError

Track = Callable[[int, Mapping[str, Any]], None]


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """name/member for every number, name/member/k where a member has a list of them."""
    flat = {}
    for name, values in metrics.items():
        for place, x in np.ndenumerate(np.asarray(values)):
            if x.dtype.kind in "fiu" and np.isfinite(x):
                flat["/".join((name, *map(str, place)))] = float(x)
    return flat


def tensorboard(folder: Path, manifest: dict) -> Track:
    del manifest
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise _extra("tensorboard") from error
    writer = SummaryWriter(str(folder / "tensorboard"))

    def track(step, metrics):
        for name, value in scalars(metrics).items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return track


def wandb(folder: Path, manifest: dict) -> Track:
    """Written to the run's folder; sent only where WANDB_MODE asks for it."""
    try:
        import wandb  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise _extra("wandb") from error
    mode = os.environ.get("WANDB_MODE", "offline")
    run = wandb.init(project="vinerl", dir=folder, name=folder.name, config=manifest, mode=mode)
    run.define_metric("*", step_metric="step")  # evaluations come in after later steps
    return lambda step, metrics: run.log({"step": step} | scalars(metrics))


TRACKERS = {"tensorboard": tensorboard, "wandb": wandb}


def _extra(name: str) -> InputError:
    return InputError(f"--log {name} needs an extra package: pip install 'vinerl[{name}]'")
