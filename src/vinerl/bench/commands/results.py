"""vinerl results ..., queue ... and reproduce: what they do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from vinerl.bench.numbers import beside, results
from vinerl.bench.pictures import show
from vinerl.bench.plans import queue
from vinerl.bench.plans.queue import Entry
from vinerl.bench.run.progress import duration
from vinerl.bench.run.runs import Run
from vinerl.data import files
from vinerl.errors import InputError

FOLDER = Path("results")


@dataclass(frozen=True)
class Table:
    """Every published cell: mean success over its seeds, with an interval."""

    folder: Path = FOLDER


def table(asked: Table) -> None:
    seeds = results.read(asked.folder)
    print(show.table(results.table(seeds)) if seeds else f"nothing is published in {asked.folder}")


@dataclass(frozen=True)
class Add:
    """Publish a run: a small file for each of its seeds."""

    run: tyro.conf.Positional[Path]
    folder: Path = FOLDER
    unfinished: bool = False  # also one that has not ended, with the steps it has reached


def add(asked: Add) -> None:
    for path in results.publish(Run(asked.run), asked.folder, asked.unfinished):
        print(path)


@dataclass(frozen=True)
class Beside:
    """Ours and what others published after as many steps: the difference, and its interval."""

    folder: Path = FOLDER


def compare(asked: Beside) -> None:
    found = beside.pairs(results.read(asked.folder))
    if not found:
        print(f"{asked.folder} has nothing that others published, too")
        return
    print(show.table(beside.table(found)))
    print(beside.summed_up(found))


@dataclass(frozen=True)
class Status:
    """What is to be measured, what of it is missing, and what that will cost."""

    folder: Path = FOLDER


def status(asked: Status) -> None:
    entries = queue.read(asked.folder / "queue.toml")
    print(show.table(queue.status(entries, results.read(asked.folder))))


@dataclass(frozen=True)
class Next:
    """Measure what is most worth it, for so many minutes; asked again, it goes on."""

    minutes: float = 10.0
    folder: Path = FOLDER
    dir: Path | None = None  # of datasets (else $VINERL_DATA, else ~/.cache/vinerl/data)
    runs: Path = Path("runs/queue")  # where the runs are
    group: str | None = None  # only of this section
    dry_run: bool = False  # say what would be done, and do nothing


def following(asked: Next) -> None:
    entries = queue.read(asked.folder / "queue.toml")
    if asked.group:
        entries = _of(entries, asked.group)
    folder = files.folder(asked.dir)
    chosen = queue.plan(entries, results.read(asked.folder), asked.minutes, folder)
    if not chosen:
        print("nothing is missing")
        return
    print(tell(chosen, folder))
    if not asked.dry_run:
        for path in queue.work(entries, asked.folder, asked.minutes, folder, asked.runs):
            print(path)


def tell(chosen: Sequence[tuple[Entry, float]], folder: Path) -> str:
    """A plan in words."""
    first = queue.data_seconds(chosen[0][0].task, folder)
    lines = [f"make its data, about {duration(first)}"] if first else []
    lines += [
        f"{entry.name}: {entry.members} members, about {duration(entry.seconds)}"
        for entry, _ in chosen
    ]
    return "\n".join([*lines, f"in all about {duration(chosen[-1][1])}"])


def _of(entries: Sequence[Entry], group: str) -> list[Entry]:
    found = [entry for entry in entries if entry.group == group]
    if not found:
        known = ", ".join(dict.fromkeys(entry.group for entry in entries))
        raise InputError(f"there is no {group!r}; there are {', '.join(STUDIES)}, {known}")
    return found


@dataclass(frozen=True)
class Report:
    """One page with every published number, its curves and where it comes from."""

    folder: Path = FOLDER
    out: Path = Path("report.html")


def report(args: list[str]) -> None:
    from vinerl.bench.numbers import report as pages

    asked = tyro.cli(Report, prog="vinerl report", args=args)
    print(pages.write(asked.folder, asked.out))


@dataclass(frozen=True)
class Reproduce:
    """Do an experiment again: a study, or a section of the queue such as ablation-sampler.

    toy              the paper's five modes: samplers, regularisers, a page to play with
    ladder           every agent on three bandits whose optimum is known
    ablation-steps   acting with what the sampler has after k of its steps
    variance         spread of the actions and noise of the gradient, along a training
    curves           learning curves of all that is published, beside those of others
    table1           the paper's table with our cells in it, and what the missing ones cost
    ablation         sampler x regulariser: what the cells of ablation-sampler say
    precision        bfloat16, TF32 and float32: what precision-spikes and precision-curves say

    What was begun goes on, what is done is not done again, and every seed's numbers are kept.
    """

    name: tyro.conf.Positional[str]
    dry_run: bool = False  # say what it would cost, and do nothing
    out: Path | None = None  # of a study: where pictures and numbers go (./NAME unless given)
    run: tuple[Path, ...] = ()  # ablation-steps, variance: runs to look at (else the default job's)
    folder: Path = FOLDER  # of the queue and the published results
    dir: Path | None = None  # of datasets (else $VINERL_DATA, else ~/.cache/vinerl/data)
    runs: Path = Path("runs/queue")  # where the queue's runs are


STUDIES = ("toy", "ladder", "ablation-steps", "variance", "curves", "table1", "ablation")
STUDIES += ("precision",)


def reproduce(args: list[str]) -> None:
    asked = tyro.cli(Reproduce, prog="vinerl reproduce", args=args)
    if asked.name in STUDIES:
        cost, work = _study(asked, asked.out or Path(asked.name))
        print(cost)
        for path in [] if asked.dry_run else work():
            print(path)
        return
    entries = _of(queue.read(asked.folder / "queue.toml"), asked.name)
    print(show.table(queue.status(entries, results.read(asked.folder))))
    folder = files.folder(asked.dir)
    while not asked.dry_run and queue.plan(entries, results.read(asked.folder), 1e9, folder):
        for path in queue.work(entries, asked.folder, 1e9, folder, asked.runs):
            print(path)


def _study(asked: Reproduce, out: Path) -> tuple[str, Callable[[], list[Path]]]:
    """What it will cost, and the doing of it."""
    from vinerl.bench.studies import (
        ablation,
        curves,
        ladder,
        precision,
        steps,
        table1,
        toy,
        variance,
    )

    if asked.name == "toy":
        return toy.cost(), lambda: toy.reproduce(out)
    if asked.name == "ladder":
        return ladder.cost(), lambda: ladder.reproduce(out)
    assembled = {"curves": curves, "table1": table1, "ablation": ablation, "precision": precision}
    if of_cells := assembled.get(asked.name):
        return of_cells.cost(asked.folder), lambda: of_cells.reproduce(asked.folder, out)
    study = steps if asked.name == "ablation-steps" else variance
    return study.cost(asked.run), lambda: study.reproduce(out, asked.run, asked.dir)


RESULTS = {"table": (Table, table), "add": (Add, add), "beside": (Beside, compare)}
QUEUE = {"status": (Status, status), "next": (Next, following)}
