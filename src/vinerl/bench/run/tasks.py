"""The benchmark's tasks: their data, their environment, their row of tuned values."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from vinerl.data import files, repair
from vinerl.data.files import Arrays
from vinerl.data.fold import Transitions
from vinerl.data.repair import Box
from vinerl.envs import ogbench
from vinerl.errors import InputError

DEFAULT = "pointmaze-medium-navigate-singletask-task1-v0"


class Task(NamedTuple):
    name: str  # as OGBench spells it
    dataset: str
    env: str
    domain: str  # as the tables name it, e.g. scene-sparse
    sparse: bool  # every reward becomes -1 or 0


class Source(NamedTuple):
    """A file of transitions, and where it comes from."""

    path: Path
    origin: str  # official, regenerated, own, unknown
    facts: dict  # the card written beside a regenerated file
    passed_over: Path | None = None  # one of ours, for the official file


def named(name: str) -> Task:
    ogbench.check_task(name)
    dataset = ogbench.dataset_of(name)
    domain = re.sub(r"-(navigate|play)-v0$|-v0$", "", dataset)
    sparse = domain.startswith(("scene", "puzzle"))
    return Task(name, dataset, ogbench.env_id(name), domain + "-sparse" * sparse, sparse)


def short(name: str) -> str:
    """As folders name it, e.g. scene-play-task4."""
    return name.removesuffix("-v0").replace("-singletask", "")


def find(task: Task, folder: Path) -> Source | None:
    """The official file before one of ours, and the small one of the default job last."""
    places = [folder, demo_folder(folder)] if task.name == DEFAULT else [folder]
    return find_dataset(task.dataset, *places)


def find_dataset(dataset: str, *places: Path) -> Source | None:
    name = f"{dataset}.npz"
    official = files.OFFICIAL.expanduser() / name
    there = (place / name for place in places if (place / name).is_file())
    ours = next((path for path in there if path != official), None)
    if official.is_file():
        return Source(official, "official", {}, passed_over=ours)
    if not ours:
        return None
    card = ours.with_suffix(".json")
    facts = _card(card) if card.is_file() else {}
    return Source(ours, facts.get("origin", "unknown"), facts)


def _card(path: Path) -> dict:
    try:
        facts = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path}: cannot be read ({error}); remove it") from error
    return facts if isinstance(facts, dict) else {}


def demo_folder(folder: Path) -> Path:
    """Where the default job keeps its data: too small to stand beside full-size files."""
    return folder / "demo"


def missing(task: Task, folder: Path, advice: str) -> InputError:
    return InputError(
        f"no data for {task.name}: {task.dataset}.npz is neither in {files.OFFICIAL} "
        f"(OGBench's own place) nor in {folder} (--dir or $VINERL_DATA choose another). Get it by\n"
        f"  {advice}\nor train on a file of your own with --data."
    )


def read(path: Path, drop_bad_rows: bool) -> tuple[Arrays, int]:
    """Arrays that can be computed with, and how many rows were left out to get there."""
    arrays = files.read(path)
    files.check_shapes(arrays, path)
    if not drop_bad_rows:
        return arrays, 0
    left, dropped = repair.drop_bad_rows(arrays)
    if not len(left["actions"]):
        raise InputError(
            f"{path}: --drop-bad-rows leaves nothing, in every transition something is NaN or "
            "infinite"
        )
    return left, dropped


def load(arrays: Arrays, path: Path, task: Task | None, box: Box | None) -> Transitions:
    """Rescale from `box`, check, label, fold up: whatever is wrong with a file is said here."""
    if box:
        arrays, *_ = repair.rescale(arrays, box)
    files.check(arrays, path)
    if task:
        try:
            arrays = ogbench.label(task.name, arrays)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
    return files.to_transitions(arrays, path, sparse=bool(task and task.sparse))
