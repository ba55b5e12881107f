"""vinerl reproduce: a study, or a section of the queue."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tyro

from vinerl.bench.commands import options, queues
from vinerl.bench.commands.options import Given
from vinerl.bench.commands.results import FOLDER
from vinerl.bench.numbers import results
from vinerl.bench.pictures import show
from vinerl.bench.plans import queue
from vinerl.bench.plans.entries import Entry
from vinerl.bench.plans.shift import Place
from vinerl.data import files
from vinerl.errors import InputError


@dataclass(frozen=True)
class Reproduce:
    """Do an experiment again: a study, or a section of the queue such as ablation-sampler.

    The studies:
      toy              the paper's five modes: samplers, regularisers, a page to play with
      ladder           every agent on three bandits whose optimum is known
      ablation-steps   acting with what the sampler has after k of its steps
      variance         spread of the actions and noise of the gradient, along a training
      curves           learning curves of all that is published, beside those of others
      table1           the paper's table with our cells in it, and what the missing ones cost
      ablation         sampler x regulariser: what the cells of ablation-sampler say
      precision        bfloat16, TF32 and float32: what precision-spikes and precision-curves say
      spikes           where the actor's gradient leaps, and what holds it: what spikes-small says

    What was begun goes on, what is done is not done again, and every seed's numbers are kept.
    """

    name: tyro.conf.Positional[str]  # one of these, or a section of FOLDER/queue.toml
    dry_run: bool = False  # say what it would cost, and do nothing
    out: Given[Path] = None  # of a study: where pictures and numbers go (else ./NAME)
    run: tuple[Path, ...] = ()  # ablation-steps, variance: runs to look at (else the default job's)
    folder: Path = FOLDER  # of the queue and the published results
    dir: Given[Path] = None  # folder of datasets (else $VINERL_DATA, else ~/.cache/vinerl/data)
    runs: Path = Path("runs/queue")  # where the queue's runs are


STUDIES = ("toy", "ladder", "ablation-steps", "variance", "curves", "table1", "ablation")
STUDIES += ("precision", "spikes")
OF_RUNS = ("ablation-steps", "variance")


def reproduce(args: list[str]) -> None:
    asked = options.parse(Reproduce, args, "reproduce")
    if asked.run and asked.name not in OF_RUNS:
        raise InputError(f"--run is for {' and '.join(OF_RUNS)}; {asked.name} looks at no run")
    if asked.name in STUDIES:
        cost, work = _study(asked, asked.out or Path(asked.name))
        print(cost)
        for path in [] if asked.dry_run else work():
            print(path)
        return
    entries = _section(asked)
    left = queues.left_of(entries, asked.folder)
    print(show.table(queue.status(entries, results.read(asked.folder))))
    if not asked.dry_run:
        place = Place(files.folder(asked.dir), asked.runs)
        queues.end(queues.work(left, asked.folder, math.inf, place))


def _section(asked: Reproduce) -> list[Entry]:
    """Of the queue; where that cannot be had, the studies are named all the same."""
    try:
        entries = queue.read(asked.folder / "queue.toml")
    except InputError as error:
        raise InputError(
            f"there is no study {asked.name!r}; there are {', '.join(STUDIES)}. For a section of "
            f"the queue: {error}"
        ) from error
    return queues.of(entries, asked.name, *STUDIES)


def _study(asked: Reproduce, out: Path) -> tuple[str, Callable[[], list[Path]]]:
    """What it will cost, and the doing of it."""
    from vinerl.bench.studies import (
        ablation,
        curves,
        ladder,
        precision,
        spikes,
        steps,
        table1,
        toy,
        variance,
    )

    if asked.name == "toy":
        return toy.cost(), lambda: toy.reproduce(out)
    if asked.name == "ladder":
        return ladder.cost(), lambda: ladder.reproduce(out)
    assembled = {"curves": curves, "table1": table1, "ablation": ablation}
    assembled |= {"precision": precision, "spikes": spikes}
    if of_cells := assembled.get(asked.name):
        return of_cells.cost(asked.folder), lambda: of_cells.reproduce(asked.folder, out)
    study = steps if asked.name == "ablation-steps" else variance
    return study.cost(asked.run), lambda: study.reproduce(out, asked.run, asked.dir)
