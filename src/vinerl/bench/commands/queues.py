"""vinerl queue ...: what is missing, and measuring it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import jax

from vinerl.bench.commands.options import Given
from vinerl.bench.commands.results import FOLDER
from vinerl.bench.numbers import results
from vinerl.bench.pictures import show
from vinerl.bench.plans import queue, shift
from vinerl.bench.plans.queue import Entry
from vinerl.bench.plans.shift import Place, Turn
from vinerl.bench.run.progress import duration
from vinerl.data import files
from vinerl.errors import InputError


@dataclass(frozen=True)
class Status:
    """What is to be measured, what of it is missing, and what that will cost."""

    folder: Path = FOLDER  # of queue.toml and of what is published


def status(asked: Status) -> None:
    entries = queue.read(asked.folder / "queue.toml")
    print(show.table(queue.status(entries, results.read(asked.folder))))


@dataclass(frozen=True)
class Next:
    """Measure what is most worth it, for so many minutes, and publish it; asked again, it goes on.

    Nothing is begun that would not end in time, the first excepted. Data that are missing are made,
    those of later runs beside the training. What a run says is in log.txt in its folder.
    """

    minutes: float = 10.0  # of this machine
    jobs: int = 1  # runs at once; on a GPU they share it, through NVIDIA's MPS where that is there
    only_whole: bool = False  # begin no run that cannot end: for a machine whose disk is not kept
    report: bool = False  # then write the page and the table again: report.html, FOLDER/table1
    folder: Path = FOLDER  # of queue.toml and of what is published
    dir: Given[Path] = None  # folder of datasets (else $VINERL_DATA, else ~/.cache/vinerl/data)
    runs: Path = Path("runs/queue")  # where the runs are
    group: Given[str] = None  # only sections a,b of queue.toml, in this order for each dataset
    task: Given[str] = None  # only tasks with this in their name, e.g. antmaze-large
    dry_run: bool = False  # say what would be done and when, and do nothing


def following(asked: Next) -> None:
    if asked.jobs < 1:
        raise InputError(f"--jobs {asked.jobs}: expected a whole number, 1 or more")
    if not 0 < asked.minutes < inf:
        raise InputError(f"--minutes {asked.minutes}: expected a number above 0")
    entries = queue.read(asked.folder / "queue.toml")
    if asked.group:
        names = dict.fromkeys(name.strip() for name in asked.group.split(","))
        entries = [entry for name in names for entry in of(entries, name)]
    if asked.task:
        known = dict.fromkeys(entry.task for entry in entries)
        entries = [entry for entry in entries if asked.task in entry.task]
        if not entries:
            raise InputError(f"--task {asked.task}: no task has it in its name: {', '.join(known)}")
    place = Place(files.folder(asked.dir), asked.runs, asked.jobs, asked.only_whole)
    left = left_of(entries, asked.folder)
    chosen = shift.plan(left, 60 * asked.minutes, place)
    if not chosen:
        print("nothing that is missing can end in time" if left else "nothing is missing")
        return
    print(tell(chosen, place))
    if asked.dry_run:
        return
    done = work(left, asked.folder, asked.minutes, place)
    if done.written:
        _made_of_all(asked.folder, asked.report)
    end(done)


def _made_of_all(folder: Path, again: bool) -> None:
    """The page and the table: made, or how they are made."""
    if not again:
        print("\nvinerl report and vinerl reproduce table1 will have them (--report does both)")
        return
    from vinerl.bench.numbers import report
    from vinerl.bench.studies import table1

    page, table = report.write(folder, Path("report.html")), folder / "table1"
    for path in (page, *table1.reproduce(folder, table)):
        print(path)


def left_of(entries: Sequence[Entry], folder: Path) -> list[Entry]:
    """What is missing. From here on this process leaves the device to those it starts."""
    jax.config.update("jax_platforms", "cpu")
    return queue.left(entries, results.read(folder))


def work(left: Sequence[Entry], folder: Path, minutes: float, place: Place) -> shift.Done:
    done = shift.work(left, folder, minutes, place)
    for path in done.written:
        print(path)
    return done


def end(done: shift.Done) -> None:
    if done.failed:
        told = "\n".join(f"  {why}" for why in done.failed.values())
        print(f"\n{len(done.failed)} failed; the same command tries again:\n{told}")
        raise SystemExit(1)


def tell(turns: Sequence[Turn], place: Place) -> str:
    """A plan in words."""
    rows = [("what", "members", "alone", "over after")]
    for what, over in turns:
        name = shift.name_of(what)
        if isinstance(what, Entry):
            alone, words = shift.rest(what, place).seconds, (name, str(what.members))
        else:
            alone, words = shift.data_seconds(what, place.data), (f"make {name}", "")
        rows.append((*words, duration(alone), duration(over)))
    whole = f"in all about {duration(max(over for _, over in turns))} at the speed of an H200"
    return f"{show.table(rows)}\n{whole}"


def of(entries: Sequence[Entry], group: str, *others: str) -> list[Entry]:
    found = [entry for entry in entries if entry.group == group]
    if not found:
        known = dict.fromkeys((*others, *(entry.group for entry in entries)))
        raise InputError(f"there is no {group!r}; there are {', '.join(known)}")
    return found


QUEUE = {"status": (Status, status), "next": (Next, following)}
