"""Some minutes of one machine: what of the queue fits into them, and the doing of it.

Entries of one dataset follow each other. Where there are no data they are made: the first before
anything trains, the next beside what trains, at low priority.
"""

import math
import operator
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vinerl.bench.numbers import publishing
from vinerl.bench.plans import crew, estimate, leash
from vinerl.bench.plans.crew import Over
from vinerl.bench.plans.entries import Dataset, Entry, check_folder, ended, reached, to_do
from vinerl.bench.plans.estimate import Cost
from vinerl.bench.plans.sharing import shared
from vinerl.bench.run import datasets, provenance, tasks
from vinerl.bench.run.progress import Progress
from vinerl.bench.run.runs import Run
from vinerl.collect import recipes
from vinerl.errors import InputError
from vinerl.owner import Owner

SLOW = 2.0  # times what one core's rate promises: so it was on sixteen, and with runs beside it


@dataclass(frozen=True)
class Place:
    """Where things are, and how many runs are worked on at once."""

    data: Path  # datasets
    runs: Path
    jobs: int = 1
    whole: bool = False  # nothing is begun that cannot end


class Turn(NamedTuple):
    what: Entry | Dataset  # a run, or data to be made
    over: float  # seconds from now


class Done(NamedTuple):
    written: list[Path]
    failed: dict[str, str]  # by name, why


def plan(
    left: Sequence[Entry],
    seconds: float,
    place: Place,
    begun: Mapping[str, float] | None = None,
    first: bool = True,
) -> list[Turn]:
    """What to begin, in order; `begun` says how long what is being worked on has taken so far.

    Nothing is begun that would end too late, or make something else do so. Unless only whole runs
    are asked for, the `first` is begun all the same, and goes on another time.
    """

    def limit(end: float) -> float:
        """Of a run that would be over by then, when it has to be."""
        return seconds if end <= seconds else end if place.whole else math.inf

    ages = begun or {}
    running = [entry for entry in left if entry.name in ages]
    costs = [rest(entry, place, ages[entry.name]) for entry in running]
    chosen: list[Entry] = []
    order: list[Entry | Dataset] = []
    ends, made, data = estimate.over(costs, place.jobs), 0.0, {}
    for dataset in dict.fromkeys(entry.dataset for entry in left):
        name = name_of(dataset)
        making = max(0.0, data_seconds(dataset, place.data) - ages.get(name, 0.0))
        found = []
        for entry in (e for e in left if e.dataset == dataset and e.name not in ages):
            cost = rest(entry, place)._replace(wait=made + making if making else 0.0)
            after = estimate.over([*costs, cost], place.jobs)
            fits = all(map(operator.le, after, [*map(limit, ends), seconds]))
            if fits or (first and not place.whole and not chosen + found):
                costs, ends = [*costs, cost], after
                found.append(entry)
        if found and making:
            made += making
            data[name] = made
            order += [] if name in ages else [dataset]
        chosen += found
        order += found
    known = data | dict(zip((entry.name for entry in running + chosen), ends, strict=True))
    return [Turn(what, known[name_of(what)]) for what in order]


def rest(entry: Entry, place: Place, age: float = 0.0) -> Cost:
    """What is left of a run that has been worked on for `age` seconds since it was started."""
    out = place.runs / entry.name
    if ended(out):
        return Cost(0.0, 0.0, 0.0)
    cost = entry.cost(reached(entry, out))
    return cost._replace(start=max(0.0, cost.start - age))


def name_of(what: Entry | Dataset) -> str:
    if isinstance(what, Entry) or not what.seed:
        return what.name
    return f"{what.name}-seed-{what.seed}"


def data_seconds(dataset: Dataset, folder: Path) -> float:
    """To make a dataset where there is none; 0 where it is, or cannot be made."""
    name = dataset.name
    found = tasks.find_dataset(name, dataset.folder(folder))
    if found:
        check_seed(dataset, found)
    if found or not datasets.can_make(name):
        return 0.0
    return SLOW * recipes.cost(recipes.OFFICIAL[name], provenance.cores())[0]


def check_seed(wanted: Dataset, found: tasks.Source) -> None:
    """Refuse data that are there, but are not those that were asked for."""
    if found.origin == "official" and wanted.seed:
        raise InputError(
            f"{found.path} is official, and used before any that are made; data_seed = "
            f"{wanted.seed} asks for others. Move it, or leave that section out with --group"
        )
    seed = found.facts.get("recipe", {}).get("seed", wanted.seed)
    if seed != wanted.seed:
        raise InputError(
            f"{found.path} was made with --seed {seed}, and {wanted.seed} is asked for; move it, "
            "or choose another --dir"
        )


def work(entries: Sequence[Entry], at: Path, minutes: float, place: Place) -> Done:
    """Do what `plan` says and, whenever something has ended, what it says then.

    What was begun goes on, what has ended is published in `at`, and what fails stops nothing else.
    """
    until, todo, done = time.monotonic() + 60 * minutes, list(entries), Done([], {})
    over = lambda: time.monotonic() > until
    begun: dict[str, float] = {}
    planned: dict[str, int] = {}  # steps that were taken before

    def choose(running: list[Entry | Dataset]) -> Entry | Dataset | None:
        """A dataset, if none is being made; else the first run, if there is room and its data."""
        runs = sum(isinstance(what, Entry) for what in running)
        if over() or (runs == place.jobs and runs < len(running)):
            return None
        now, first = time.monotonic(), not any(entry.name in begun for entry in entries)
        ages = {name_of(what): now - begun[name_of(what)] for what in running}
        turns = [what for what, _ in plan(todo, until - now, place, ages, first)]
        data = next((what for what in turns if isinstance(what, Dataset)), None)
        several = [what for what in turns if isinstance(what, Entry)]
        for entry in several:
            planned.setdefault(entry.name, reached(entry, place.runs / entry.name))
        if data and runs == len(running):
            return data
        if not several or runs == place.jobs or data_seconds(several[0].dataset, place.data):
            return None
        return several[0]

    def start(what: Entry | Dataset) -> Future[str]:
        begun[name_of(what)] = time.monotonic()
        if isinstance(what, Dataset):
            return submit(make, what, place)
        return submit(crew.finish, what, place.runs / what.name, place.data)

    def told(what: Entry | Dataset, why: str) -> None:
        """What was stopped by the clock is neither published nor has it failed."""
        if isinstance(what, Entry) and not why:
            if not ended(place.runs / what.name):
                print(f"{place.runs / what.name} goes on when asked again", flush=True)
                return
            why = publish(Run(place.runs / what.name), at, done.written)
        if why:
            done.failed[name_of(what)] = why
            print(why, flush=True)
        if why or isinstance(what, Entry):
            todo[:] = [e for e in todo if what not in (e, e.dataset)]

    def look(running: list[Entry | Dataset]) -> None:
        mine = [entry for entry in entries if entry.name in planned]
        left = [entry for entry in mine if entry in todo]
        note = f"{len(mine) - len(left)} of {len(mine)} runs"
        made = [name_of(what) for what in running if isinstance(what, Dataset)]
        making = "".join(f", making {name}" for name in made)
        total = sum(entry.steps - planned[entry.name] for entry in mine)
        bar.update(total - to_do(left, place.runs), note + making, total)

    check_folder(todo, place.runs)
    with (
        Owner(place.runs),
        shared(place.jobs),
        crew.here(place.jobs + 1, over) as submit,
        Progress("steps", 0) as bar,
    ):
        crew.follow(choose, start, told, look)
    return done


def make(dataset: Dataset, place: Place, over: Over) -> str:
    """Beside what trains, and not in its way; what went wrong, in words."""
    folder = dataset.folder(place.data)
    words = ["data", "make", dataset.name, "--seed", str(dataset.seed), "--dir", str(folder)]
    try:
        crew.wait_until_free(folder / f"{dataset.name}.making", over)
        leash.hold(words, place.runs / f"{name_of(dataset)}.log", over, low=True)
    except (InputError, OSError) as error:
        return f"{name_of(dataset)}: {error}"
    return ""


def publish(run: Run, at: Path, written: list[Path]) -> str:
    try:
        written += publishing.publish(run, at, rest=True)
    except InputError as error:
        return str(error)
    return ""
