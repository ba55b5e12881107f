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

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from vinerl.bench.numbers import results
from vinerl.bench.plans.entries import Entry, check, ended, read_toml, run, twins
from vinerl.bench.run import jobs, manifests, material
from vinerl.bench.run.progress import Progress
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError
from vinerl.owner import Owner
from vinerl.train import stack

LOG = "log.txt"  # in a cell's folder: what its processes said
KINDS = {
    "agent": (str, "a name"),
    "task": (str, "a name"),
    "tasks": (list, "a list of names"),
    "data": (str, "a file's name"),
    "seeds": (list, "a list of whole numbers"),
    "steps": (int, "a whole number"),
    "run": (dict, "a table of options"),
    "common": (dict, "a table of fields"),
    "grid": (list | dict, "a list of tables, or a table of lists"),
}
INSIDE = {"tasks": str, "seeds": int, "grid": dict}  # of a list

Start = Callable[[Entry, Path, Path], Future[str]]  # a cell, its folder, that of datasets


def read(path: Path) -> list[Entry]:
    """Every cell in order, all of it checked before anything runs."""
    spec = read_toml(path)
    _check_kinds(path, spec)
    with _told(f"{path}: grid"):
        common, grid = _cells(spec)
    common = spec.get("common", {}) | common
    data = Path(spec["data"]).resolve() if "data" in spec else None
    found = []
    for task, (number, own) in product(_tasks(spec), enumerate(grid)):
        agent = own.get("agent", spec.get("agent", "vine"))
        own = {name: value for name, value in own.items() if name != "agent"}
        options = (tuple(spec["seeds"]), spec["steps"], spec.get("run", {}), common, own, data)
        entry = Entry(path.stem, task, agent, *options)
        with _told(f"{path}: cell {number} {own or ''}"):
            check(entry)
            found.append(replace(entry, agent=jobs.resolve(entry.request).agent))
    if same := twins(found):
        raise InputError(f"{path}: {same[1].name} stands there twice (as {same[0].name})")
    names = [entry.name for entry in found]
    if shared := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{path}: two cells would share the folder {shared[0]}")
    return found


def _check_kinds(path: Path, spec: dict[str, Any]) -> None:
    for key, value in spec.items():
        if key not in KINDS:
            raise InputError(f"{path}: unknown key {key!r}; there are {', '.join(KINDS)}")
        kind, words = KINDS[key]
        parts = value if isinstance(value, list) else []
        if not isinstance(value, kind) or not all(isinstance(x, INSIDE[key]) for x in parts):
            raise InputError(f"{path}: {key} = {value!r}: expected {words}")
        if key in INSIDE and not value:
            raise InputError(f"{path}: {key} is empty")
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


def check_folder(cells: Sequence[Entry], out: Path) -> None:
    """Refuse to go on with runs that are not what the cells of their name are."""
    for cell in cells:
        folder = out / cell.name
        if not (folder / "manifest.json").exists():
            continue
        then, job = Run(folder).manifest, jobs.resolve(cell.request)
        config = {name: manifests.freeze(value) for name, value in vars(job.config).items()}
        wanted: dict[str, Any] = {"agent": {"name": job.agent, "config": config}}
        wanted["run"] = {name: manifests.freeze(getattr(job, name)) for name in manifests.KEPT}
        found = {"agent": then["agent"], "run": manifests.BEFORE | then["run"]}
        if job.data:
            wanted["data"], found["data"] = str(job.data), then["data"]["path"]
        if other := results.differences(wanted, found):
            raise InputError(
                f"{folder} holds another run: {', '.join(other)} differ. Choose another --out, or "
                "remove it."
            )


def prepare(cells: Sequence[Entry], folder: Path) -> None:
    """Find, check or make what each task learns from, once, before any cell begins."""
    for cell in {(cell.task, cell.data): cell for cell in cells}.values():
        material.data_of(jobs.resolve(replace(cell.request, dir=folder)))


def reached(cell: Entry, folder: Path) -> int:
    """The last step that its log tells of."""
    lines = Run(folder).metrics
    return cell.steps if ended(folder) else lines[-1]["step"] if lines else 0


def work(cells: Sequence[Entry], out: Path, folder: Path, start: Start) -> dict[str, str]:
    """Bring every cell to its end; of those that have none, by name, why."""
    failed: dict[str, str] = {}
    left = [cell for cell in cells if not ended(out / cell.name)]
    waiting = {start(cell, out / cell.name, folder): cell for cell in left}

    def steps() -> int:
        """The last of a cell counts when the cell has ended."""
        last = lambda cell: min(reached(cell, out / cell.name), cell.steps - 1)
        return total - sum(cell.steps - last(cell) for cell in waiting.values())

    total = sum(cell.steps for cell in cells)
    first = steps()
    with Progress("steps", total, first) as bar:
        while waiting:
            done, _ = futures.wait(waiting, timeout=1.0, return_when=futures.FIRST_COMPLETED)
            for future in done:
                cell = waiting.pop(future)
                if why := future.result():
                    failed[cell.name] = why
            if (now := steps()) > first:
                bar.update(now, f"{len(cells) - len(waiting)} of {len(cells)} cells")
    return failed


@contextmanager
def here(count: int) -> Iterator[Start]:
    """So many cells at once on this machine; leaving early asks them to save and stop."""
    over = threading.Event()
    with ThreadPoolExecutor(count) as pool:
        try:
            yield lambda cell, out, data: pool.submit(finish, cell, out, data, over.is_set)
        finally:
            over.set()
            pool.shutdown(cancel_futures=True)


def finish(cell: Entry, folder: Path, data: Path, over: Callable[[], bool] = lambda: False) -> str:
    """Bring one cell to its end, or until `over`; what went wrong, in words."""
    try:
        _wait_until_free(folder, over)
        if not over():
            run(cell, folder, data, over, folder / LOG)
    except (InputError, OSError) as error:
        return str(error)
    return ""


def _wait_until_free(folder: Path, over: Callable[[], bool]) -> None:
    """Until a process that lost its sweep has saved, or the lock of a lost machine is stale."""
    while not over():
        try:
            with Owner(folder):
                return
        except InputError:
            time.sleep(1.0)
