"""Where metrics go besides metrics.jsonl, for those who ask."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
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


@contextmanager
def tensorboard(folder: Path, manifest: dict) -> Iterator[Track]:
    from tensorboardX import SummaryWriter

    del manifest
    with SummaryWriter(str(folder / "tensorboard")) as writer:

        def track(step, metrics):
            for name, value in scalars(metrics).items():
                writer.add_scalar(name, value, step)
            writer.flush()

        yield track


@contextmanager
def wandb(folder: Path, manifest: dict) -> Iterator[Track]:
    """Written to the run's folder; sent only where WANDB_MODE asks for it.

    A run of its own, whatever else this process logs; one that is taken up again is another.
    """
    import wandb  # pyright: ignore[reportMissingImports]

    mode = os.environ.get("WANDB_MODE", "offline")
    names = {"project": "vinerl", "dir": folder, "name": folder.name}
    with wandb.init(**names, config=manifest, mode=mode, reinit="create_new") as run:
        run.define_metric("*", step_metric="step")  # evaluations come in after later steps
        yield lambda step, metrics: run.log({"step": step} | scalars(metrics))


TRACKERS = {"tensorboard": tensorboard, "wandb": wandb}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


def check(names: Sequence[str]) -> None:
    """Before anything is made: those that are unknown or not installed are refused."""
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"--log {name}: there are {', '.join(TRACKERS)}")
        found = find_spec(PACKAGES[name])
        if found is None or found.origin is None:  # a folder of that name is no package
            raise InputError(f"--log {name} needs an extra package: pip install 'vinerl[{name}]'")


@contextmanager
def opened(names: Sequence[str], folder: Path, manifest: dict) -> Iterator[list[Track]]:
    """All of them, until the run ends."""
    with ExitStack() as each:
        yield [each.enter_context(TRACKERS[name](folder, manifest)) for name in names]
