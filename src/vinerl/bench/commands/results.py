"""vinerl results ... and report: what they do."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from vinerl.bench.commands import options
from vinerl.bench.commands.options import Given
from vinerl.bench.numbers import beside, publishing, results
from vinerl.bench.pictures import show
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError

FOLDER = Path("results")


@dataclass(frozen=True)
class Table:
    """Every published cell: mean success over its seeds, with an interval."""

    folder: Path = FOLDER  # of what is published


def table(asked: Table) -> None:
    seeds = results.read(asked.folder)
    print(show.table(results.table(seeds)) if seeds else f"nothing is published in {asked.folder}")


@dataclass(frozen=True)
class Add:
    """Publish a run: its manifest and metrics, and a small file for each of its seeds.

    Folders of this machine and the version of its system are left out.
    """

    run: tyro.conf.Positional[Path]  # its folder
    folder: Path = FOLDER  # where it is published
    name: Given[str] = None  # of its folder in results/TASK (else as the run's, without the task)
    unfinished: bool = False  # also one that has not ended, with the steps it has reached


def add(asked: Add) -> None:
    if asked.name is not None and Path(asked.name).name != asked.name:
        raise InputError(f"--name {asked.name}: expected the name of a folder, not a path")
    run = Run(asked.run)
    for path in publishing.publish(run, asked.folder, asked.unfinished, asked.name):
        print(path)


@dataclass(frozen=True)
class Beside:
    """Ours and what others published after as many steps: the difference, and its interval."""

    folder: Path = FOLDER  # of what is published


def compare(asked: Beside) -> None:
    found = beside.pairs(results.read(asked.folder))
    if not found:
        print(f"{asked.folder} has nothing that others published, too")
        return
    print(show.table(beside.table(found)))
    print(beside.summed_up(found))


@dataclass(frozen=True)
class Report:
    """One page with every published number, its curves and where it comes from."""

    folder: Path = FOLDER  # of what is published
    out: Path = Path("report.html")  # the page


def report(args: list[str]) -> None:
    from vinerl.bench.numbers import report as pages

    asked = options.parse(Report, args, "report")
    print(pages.write(asked.folder, asked.out))


RESULTS = {"table": (Table, table), "add": (Add, add), "beside": (Beside, compare)}
