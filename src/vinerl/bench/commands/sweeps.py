"""vinerl sweep: what it does, what it will cost, and the table at its end."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from tyro.constructors import PrimitiveConstructorSpec

from vinerl import disk
from vinerl.bench.commands import options
from vinerl.bench.commands.options import Given
from vinerl.bench.numbers.stats import bootstrap
from vinerl.bench.pictures import show
from vinerl.bench.plans import crew, estimate, sweep
from vinerl.bench.plans.entries import Entry, check_folder, ended, reached
from vinerl.bench.plans.sharing import shared
from vinerl.bench.run import jobs, runs
from vinerl.bench.run.progress import duration
from vinerl.bench.run.runs import Run
from vinerl.data import files
from vinerl.errors import InputError
from vinerl.owner import Owner
from vinerl.train import metrics

ADDRESS = PrimitiveConstructorSpec(
    nargs=(0, 1),
    metavar="[HOST:PORT]",
    instance_from_str=lambda words: words[0] if words else "",
    is_instance=lambda x: isinstance(x, str),
    str_from_instance=lambda x: [x] if x else [],
)


@dataclass(frozen=True)
class Sweep:
    """Run a grid: every cell is a run, and the table at the end is made of all of them.

    What has ended is not run again, what was begun goes on from its last checkpoint, and a cell
    that fails does not stop the others.
    """

    spec: tyro.conf.Positional[Path]  # a .toml file: what to run; examples/sweep.toml shows how
    out: Given[Path] = None  # the folder of the runs and of table.csv (else runs/sweeps/NAME)
    jobs: int = 1  # cells at once on this machine
    dir: Given[Path] = None  # folder of datasets (else $VINERL_DATA, else ~/.cache/vinerl/data)
    ray: Given[Annotated[str, ADDRESS]] = None  # on this Ray cluster; no address: a local one
    dry_run: bool = False  # say what would be run and what it would cost, and do nothing


def command(args: list[str]) -> None:
    asked = options.parse(Sweep, args, "sweep")
    if asked.jobs < 1:
        raise InputError(f"--jobs {asked.jobs}: expected a whole number, 1 or more")
    if asked.jobs > 1 and asked.ray is not None:
        raise InputError("--jobs is for this machine alone; with --ray the cluster's CPUs decide")
    cells = sweep.read(asked.spec)
    out = (asked.out or Path("runs/sweeps") / asked.spec.stem).resolve()
    check_folder(cells, out)
    if asked.dry_run:
        print(cost(cells, out, asked.jobs))
        return
    folder = files.folder(asked.dir).resolve()
    with Owner(out):
        failed = _do(asked, cells, out, folder)
        rows = table(cells, out)
        disk.write(out / "table.csv", as_csv(rows).encode())
    print(f"\n{as_text(rows)}\n\n{out / 'table.csv'}")
    if failed:
        told = "\n".join(f"  {why}" for why in failed.values())
        print(
            f"\n{len(failed)} of {len(cells)} cells failed; the same command tries again:\n{told}"
        )
        raise SystemExit(1)


def _do(asked: Sweep, cells: Sequence[Entry], out: Path, folder: Path) -> dict[str, str]:
    if all(ended(out / cell.name) for cell in cells):
        return {}
    sweep.prepare(cells, folder)
    if asked.ray is None:
        where = crew.here(asked.jobs)
    else:
        from vinerl.bench.plans import cluster

        where = cluster.nodes(asked.ray)
    with shared(asked.jobs), where as submit:
        return sweep.work(cells, out, folder, submit)


def cost(cells: Sequence[Entry], out: Path, count: int) -> str:
    """Every cell with its members and what is to be done for it."""
    rows = [("run", "members", "steps", "done", "about")]
    left = []
    for cell in cells:
        done, about = reached(cell, out / cell.name), "-"
        if not ended(out / cell.name):
            left.append(cell.cost(done))
            about = duration(left[-1].seconds)
        rows.append((cell.name, str(cell.members), str(cell.steps), str(done), about))
    seconds = max(estimate.over(left, count), default=0.0)
    whole = f"in all about {duration(seconds)} at the speed of an H200, once the data are there"
    return f"{show.table(rows)}\n{whole}"


class Row(NamedTuple):
    """Members of a cell that differ in their seed alone."""

    task: str
    agent: str
    differs: str  # fields that tell it from other rows
    members: int
    metric: str  # success, else the loss it was trained by
    mean: float
    low: float
    high: float
    remarks: str
    run: str


def table(cells: Sequence[Entry], out: Path) -> list[Row]:
    """From the runs as they are on disk."""
    return [row for cell in cells for row in _rows(cell, Run(out / cell.name))]


def _rows(cell: Entry, run: Run) -> list[Row]:
    where = (cell.task or str(cell.data), jobs.portable(cell.agent))
    if not (run.path / "manifest.json").exists():
        nothing = ("", np.nan, np.nan, np.nan, "not begun", run.path.name)
        return [Row(*where, _words(cell.own), cell.members, *nothing)]
    members = run.manifest["members"]
    own = _words({k: v for k, v in cell.own.items() if k not in members[0]})
    metric, values = _last(run)
    found = []
    for title, of in runs.groups(members).items():
        differs = ", ".join(filter(None, (own, title)))
        mean, (low, high) = values[of].mean(), bootstrap(values[of])
        numbers = (metric, float(mean), float(low), float(high))
        found.append(Row(*where, differs, len(of), *numbers, show.remarks(run), run.path.name))
    return found


def _words(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items())


def _last(run: Run) -> tuple[str, np.ndarray]:
    """The name and the members' values of what a run is judged by."""
    lines = run.metrics
    losses = sorted({name for line in lines for name in line if name.endswith("/loss")})
    for name in ("eval/success", "critic/loss", *losses):
        values = metrics.curve(lines, name)[1]
        if len(values):
            return name, values[-1]
    return "", np.full(len(run.manifest["members"]), np.nan)


def as_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    for row in rows:
        writer.writerow(f"{x:.6g}" if isinstance(x, float) else x for x in row)
    return text.getvalue()


def as_text(rows: Sequence[Row]) -> str:
    """For people: the mean with its interval, and no column that says the same everywhere."""
    shown = [
        row._asdict() | {"mean": f"{row.mean:.3f} [{row.low:.3f}, {row.high:.3f}]"} for row in rows
    ]
    every = [name for name in Row._fields if name not in ("low", "high")]
    same = lambda name: name in ("task", "remarks") and len({row[name] for row in shown}) == 1
    kept = [name for name in every if not same(name)]
    notes = [f"{name}: {shown[0][name]}" for name in every if same(name) and shown[0][name]]
    lines = [tuple(kept), *(tuple(str(row[name]) for name in kept) for row in shown)]
    return "\n".join([show.table(lines), *notes])
