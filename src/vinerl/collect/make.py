"""Writing a dataset: episodes from worker processes into files that OGBench itself can read."""

import io
import json
import platform
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from vinerl import disk
from vinerl.collect.mazes import Recipe
from vinerl.envs.workers import Workers
from vinerl.errors import InputError

Shown = Callable[[int, int], None]  # (episodes done, episodes in all)


def make(recipe: Recipe, folder: Path, processes: int, show: Shown = lambda *_: None) -> Path:
    """The training file, the validation file and a card that says how they were made."""
    train = folder / f"{recipe.dataset}.npz"
    targets = (train, folder / f"{recipe.dataset}-val.npz")
    for path in targets:
        if path.exists():
            raise InputError(f"{path} exists and is not overwritten; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)

    episodes, goals = collect(recipe, processes, show)
    cut = recipe.episodes
    for path, part in zip(targets, (episodes[:cut], episodes[cut:]), strict=True):
        buffer = io.BytesIO()
        columns: dict[str, Any] = {n: np.concatenate([e[n] for e in part]) for n in part[0]}
        np.savez_compressed(buffer, **columns)
        disk.write(path, buffer.getvalue())
    card = {
        "origin": "regenerated",
        "recipe": asdict(recipe),
        "goals_per_episode": sum(goals[:cut]) / cut,
        "sha256": {path.name: disk.sha256(path) for path in targets},
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in ("mujoco", "ogbench", "numpy")}
        | {"python": platform.python_version()},
    }
    disk.write(train.with_suffix(".json"), json.dumps(card, indent=1).encode())
    return train


def collect(
    recipe: Recipe, processes: int, show: Shown
) -> tuple[list[dict[str, np.ndarray]], list[int]]:
    """All episodes in order of their numbers, and the goals reached in each."""
    total = recipe.episodes + recipe.validation
    workers = Workers("vinerl.collect.mazes", recipe.to_json(), count=min(processes, total))
    episodes: list[dict[str, np.ndarray]] = []
    goals: list[int] = []
    try:
        for first in range(0, total, len(workers)):
            numbers = range(first, min(first + len(workers), total))
            for w, number in enumerate(numbers):
                workers.send(w, {"episode": number})
            for w, _ in enumerate(numbers):
                header, arrays = workers.receive(w)
                episodes.append(dict(zip(header["names"], arrays, strict=True)))
                goals.append(header["goals"])
            show(len(episodes), total)
    finally:
        workers.close()
    return episodes, goals
