"""A grid of runs from one file; every cell is a run's folder, all of them make a table.

agent     whose fields are meant (else vine)
task      or tasks = [NAME, ...], or data = FILE
seeds     [0, 1, ...]
steps
run       further options of the runs: eval_every, final_episodes, ...
common    fields of the agent's config in all cells
grid      fields that tell cells apart: [{...}, ...] one by one, or a table of lists to be crossed;
          a cell may name its agent

Seeds and several values of a float field are never cells: they are trained side by side in one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from vinerl.bench.plans import crew
from vinerl.bench.plans.crew import Submit
from vinerl.bench.plans.entries import (
    KINDS,
    Entry,
    check,
    check_kinds,
    ended,
    read_toml,
    shared_name,
    to_do,
    twins,
)
from vinerl.bench.run import jobs, material
from vinerl.bench.run.progress import Progress
from vinerl.errors import InputError
from vinerl.train import stack

FILE = KINDS | {
    "task": (str, "a name"),
    "data": (str, "a file's name"),
    "grid": (list | dict, "a list of tables, or a table of lists"),
}


def read(path: Path) -> list[Entry]:
    """Every cell in order, all of it checked before anything runs."""
    spec = read_toml(path)
    _check(path, spec)
    with _told(f"{path}: grid"):
        common, grid = _cells(spec)
    common = spec.get("common", {}) | common
    data = Path(spec["data"]).resolve() if "data" in spec else None
    if data and not data.exists():
        raise InputError(f"{path}: data = {spec['data']!r}: there is no {data}")
    found = []
    for task, (number, own) in product(_tasks(spec), enumerate(grid)):
        agent = own.get("agent", spec.get("agent", "vine"))
        own = {name: value for name, value in own.items() if name != "agent"}
        options = (tuple(spec["seeds"]), spec["steps"], spec.get("run", {}), common, own, data)
        entry = Entry(path.stem, task, agent, *options)
        with _told(f"{path}: cell {number} {own or ''}"):
            check(entry)
            found.append(replace(entry, agent=entry.job.agent))
    if same := twins(found):
        raise InputError(f"{path}: {same[1].name} stands there twice (as {same[0].name})")
    if shared := shared_name(found):
        raise InputError(f"{path}: two cells would share the folder {shared}")
    return found


def _check(path: Path, spec: dict[str, Any]) -> None:
    check_kinds(str(path), spec, FILE)
    if missing := sorted({"seeds", "steps"} - set(spec)):
        raise InputError(f"{path}: has no {', '.join(missing)}")
    if len({"task", "tasks", "data"} & set(spec)) != 1:
        raise InputError(f"{path}: give one of task, tasks and data")


def _tasks(spec: dict[str, Any]) -> list[str]:
    return spec.get("tasks") or [spec.get("task", "")]


def _cells(spec: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Fields that the grid gives to all cells, and those of each."""
    grid = spec.get("grid", [{}])
    if isinstance(grid, list):
        return {}, grid
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise InputError(f"{name} = {values!r}: expected a list of values")
    agents = grid.get("agent", [spec.get("agent", "vine")])
    floats = {name for agent in agents for name in stack.stackable(jobs.agent(agent)[0])}
    crossed = {name: values for name, values in grid.items() if name not in floats}
    cells = [dict(zip(crossed, values, strict=True)) for values in product(*crossed.values())]
    return {name: values for name, values in grid.items() if name in floats}, cells


@contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def prepare(cells: Sequence[Entry], folder: Path) -> None:
    """Find, check or make what each task learns from, once, before any cell begins."""
    for cell in {(cell.task, cell.data): cell for cell in cells}.values():
        material.data_of(jobs.resolve(replace(cell.request, dir=folder)))


def work(cells: Sequence[Entry], out: Path, folder: Path, submit: Submit) -> dict[str, str]:
    """Bring every cell to its end; of those that have none, by name, why."""
    failed: dict[str, str] = {}
    left = [cell for cell in cells if not ended(out / cell.name)]
    total, turns = sum(cell.steps for cell in cells), iter(left)

    def told(cell: Entry, why: str) -> None:
        left.remove(cell)
        failed.update({cell.name: why} if why else {})

    def look(_: list[Entry]) -> None:
        bar.update(total - to_do(left, out), f"{len(cells) - len(left)} of {len(cells)} cells")

    with Progress("steps", total, total - to_do(left, out)) as bar:
        start = lambda cell: submit(crew.finish, cell, out / cell.name, folder)
        crew.follow(lambda _: next(turns, None), start, told, look)
    return failed
