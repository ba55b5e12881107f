"""`vinerl reproduce table1`: the paper's table with our cells in it, from what is published.

table1.md    every domain, task and agent: what was published, and ours where there are any
table1.csv   the same, a number a line, as fractions
table1.png   our learning curves over QAM's
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vinerl import disk
from vinerl.bench.numbers import beside, reference, results, stats, summary
from vinerl.bench.numbers.reference import FINAL, Key, Published, Score
from vinerl.bench.numbers.results import Cell, Seed, length
from vinerl.bench.pictures import show
from vinerl.bench.plans import queue
from vinerl.bench.plans.entries import Entry
from vinerl.bench.run import datasets, tasks
from vinerl.bench.run.progress import duration
from vinerl.bench.run.tuned import DOMAINS

# As in the paper's summary, VINE last.
AGENTS = ("rebrac", "fql", "fawac", "ifql", "qam", "dac", "qsm", "cgql", "cgql-m", "cgql-l")
AGENTS += ("dsrl", "fedit", "fbrac", "bam", "vine")
TASKS = (1, 2, 3, 4, 5)
SEEDS = (0, 1, 2, 3)  # that a cell should have
ALL = "all"
PLACES = [*((domain, task) for domain in DOMAINS for task in (*TASKS, None)), (ALL, None)]

Cells = Mapping[tuple[Key, int], Sequence[Cell]]  # by what they are about, and their steps


class Scores(NamedTuple):
    """What a mean of ours is over."""

    over: np.ndarray  # [N]: of seeds; for "all", means of tasks
    precision: str  # several where cells of several are averaged


class Number(NamedTuple):
    """A line of table1.csv; a field that is None is empty."""

    domain: str
    task: int | None  # None: the mean over tasks
    agent: str
    whose: str  # paper: as printed; published: what ours is compared with; ours
    steps: int
    over: int | None = None  # what the mean is over: seeds, or the tasks of "all"
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = ""  # of ours: inside, outside, alone (nothing published at this step), missing
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    precision: str = ""  # of ours


def cost(folder: Path) -> str:
    """Of what is missing, after as many steps as such runs of the queue have, and the paper's."""
    cells = cells_of(results.read(folder))
    queued = [entry for entry in queue.read(folder / "queue.toml") if not entry.own]
    asked = sorted({entry.steps for entry in queued} | {FINAL})
    heads = (word for steps in asked for word in (f"missing at {length(steps)}", "about"))
    rows, sums = [("domain", *heads, "data")], np.zeros((len(asked), 2))
    for domain in DOMAINS:
        found = np.array([_rest(cells, domain, steps) for steps in asked])
        made = datasets.can_make(tasks.named(task_name(domain, 1)).dataset)
        rows.append((domain, *_costs(found), "can be made here" if made else "official files"))
        sums += found
    rows.append((ALL, *_costs(sums), ""))
    words = (
        "Nothing is trained: published cells are assembled, in seconds. The rest with "
        f"{len(SEEDS)} seeds in bfloat16 on an H200, by the queue's estimates (steps as they were "
        "measured at antmaze sizes), once the data are there:"
    )
    return f"{words}\n{show.table(rows)}"


def _costs(found: np.ndarray) -> list[str]:
    """Runs and seconds [N, 2] in words."""
    return [word for runs, seconds in found for word in (f"{runs:.0f} runs", duration(seconds))]


def _rest(cells: Cells, domain: str, steps: int) -> tuple[int, float]:
    """Runs that lack seeds, and their seconds."""
    rest = []
    for agent in AGENTS:
        for task in TASKS:
            there = cells.get((Key(agent, domain, task), steps), ())
            most = max((cell.seeds for cell in there), key=len, default=[])
            known = {seed.seed for seed in most}
            if missing := tuple(seed for seed in SEEDS if seed not in known):
                rest.append(_seconds(task_name(domain, task), agent, missing, steps))
    return len(rest), sum(rest)


def _seconds(task: str, agent: str, seeds: tuple[int, ...], steps: int) -> float:
    entry = Entry("table1", task, agent, seeds, steps, common={"precision": "bfloat16"})
    return entry.cost().seconds


def reproduce(folder: Path, out: Path) -> list[Path]:
    from vinerl.bench.studies import table1_figure, table1_page

    seeds = results.read(folder)
    found, pairs = numbers(cells_of(seeds)), beside.pairs(seeds)
    out.mkdir(parents=True, exist_ok=True)
    page, raw = out / "table1.md", out / "table1.csv"
    disk.write(page, table1_page.markdown(found, pairs).encode())
    disk.write(raw, table1_page.as_csv(found).encode())
    drawn = table1_figure.draw(seeds, out / "table1.png")
    return [page, raw, *([drawn] if drawn else [])]


def task_name(domain: str, task: int) -> str:
    kind = "navigate" if "maze" in domain else "play"
    return f"{domain.removesuffix('-sparse')}-{kind}-singletask-task{task}-v0"


def cells_of(seeds: Sequence[Seed]) -> Cells:
    """Those that were run as published, on the usual data. What differs in more than its steps
    stays apart."""
    found: dict[tuple[Key, int], list[Cell]] = {}
    for cell in results.cells(seeds):
        task, agent = tasks.named(cell.recipe["task"]), cell.recipe["agent"]["name"]
        known = agent in AGENTS and task.domain in DOMAINS
        usual = not results.data_seed(cell.recipe)
        if known and usual and summary.as_published(cell.recipe):
            key = Key(agent, task.domain, int(task.name.removesuffix("-v0")[-1]))
            found.setdefault((key, cell.recipe["steps"]), []).append(cell)
    return found


def numbers(cells: Cells) -> list[Number]:
    """Of every place and agent at the paper's steps, and at those after which we have something."""
    found = []
    for domain, task in PLACES:
        every = [Key(agent, domain, task) for agent in AGENTS]
        there = {steps for _, steps in cells if any(scores(cells, key, steps) for key in every)}
        found += [_number(key, "paper", FINAL, reference.paper_table()[key]) for key in every]
        for steps in sorted(there | {FINAL}):
            for key in every:
                theirs = published(key, steps)
                if theirs:
                    in_paper = theirs.origin == reference.PAPER  # which does not tell
                    count = None if in_paper else len(reference.qam_seeds()[key])
                    found.append(_number(key, "published", steps, theirs.score, count))
                ours = [_ours(key, steps, one, theirs) for one in scores(cells, key, steps)]
                found += ours or [Number(*_about(key, "ours", steps), verdict="missing")]
    return found


def scores(cells: Cells, key: Key, steps: int) -> list[Scores]:
    """Of each of our cells. A domain is there when its five tasks are, with the seeds that all of
    them have."""
    if key.task:
        there = cells.get((key, steps), ())
        return [Scores(cell.scores, results.precision(cell.recipe)) for cell in there]
    domains = DOMAINS if key.domain == ALL else (key.domain,)
    parts = [cells.get((Key(key.agent, d, t), steps)) for d in domains for t in TASKS]
    there = [max(part, key=lambda cell: len(cell.seeds)) for part in parts if part]
    if len(there) < len(parts):
        return []
    every = {results.precision(cell.recipe) for cell in there}
    precision = every.pop() if len(every) == 1 else "several precisions"
    if key.domain == ALL:
        return [Scores(np.array([cell.scores.mean() for cell in there]), precision)]
    by_seed = [{seed.seed: seed.score for seed in cell.seeds} for cell in there]
    common = sorted(set.intersection(*map(set, by_seed)))
    means = np.array([np.mean([of[seed] for of in by_seed]) for seed in common])
    return [Scores(means, precision)] if common else []


def published(key: Key, steps: int) -> Published | None:
    """What ours is compared with. "all" has every agent's interval over the 40 tasks: the paper's
    own for VINE is of another kind."""
    if key.task:
        return reference.published(key.agent, tasks.named(task_name(key.domain, key.task)), steps)
    if steps != FINAL:
        return None
    if key.domain != ALL:
        return reference.published_domain(key.agent, key.domain)
    every = [published(Key(key.agent, d, t), FINAL) for d in DOMAINS for t in TASKS]
    means = np.array([found.score.mean for found in every if found])
    return Published(Score(*map(float, stats.overall_mean(means))), None, reference.PAPER)


def _about(key: Key, whose: str, steps: int) -> tuple[str, int | None, str, str, int]:
    return key.domain, key.task, key.agent, whose, steps


def _number(key: Key, whose: str, steps: int, score: Score, count: int | None = None) -> Number:
    return Number(*_about(key, whose, steps), count, *score)


def _ours(key: Key, steps: int, found: Scores, theirs: Published | None) -> Number:
    score = Score(float(found.over.mean()), *stats.bootstrap(found.over).tolist())
    ours = _number(key, "ours", steps, score, len(found.over))._replace(precision=found.precision)
    if not theirs:
        return ours._replace(verdict="alone")
    gap, inside = beside.compare(found.over, theirs)
    value, low, high = map(float, gap)
    told = {"difference": value, "difference_low": low, "difference_high": high}
    return ours._replace(verdict="inside" if inside else "outside", **told)
