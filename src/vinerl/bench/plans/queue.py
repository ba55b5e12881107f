"""What is to be measured next, and the measuring of it: results/queue.toml, a group a section.

[NAME]
tasks, agent, seeds, steps
run       further options of the run: eval_every, eval_episodes, final_episodes, ...
common    fields of the agent's config in all entries
grid      fields that tell the entries of a task apart
alpha     (or another float field) by domain: values that are stacked

An entry is one run: a task, a config, all seeds and values side by side. It is done when every one
of its members stands in the published results.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vinerl.bench.numbers import results
from vinerl.bench.numbers.results import Seed
from vinerl.bench.plans.entries import Entry, check, read_toml, run, twins
from vinerl.bench.run import datasets, jobs, manifests, provenance, runs, tasks
from vinerl.bench.run.progress import duration
from vinerl.collect import recipes
from vinerl.errors import InputError
from vinerl.train import stack

KNOWN = {"tasks", "agent", "seeds", "steps", "run", "common", "grid"}


def read(path: Path) -> list[Entry]:
    """Every entry in order, all of it checked before anything runs."""
    found: list[Entry] = []
    for group, section in read_toml(path).items():
        found += _entries(path, group, section)
    if same := twins(found):
        raise InputError(f"{path}: [{same[1].group}] {same[1].name} stands there twice")
    return found


def _entries(path: Path, group: str, section: dict[str, Any]) -> list[Entry]:
    if missing := sorted({"tasks", "seeds", "steps"} - set(section)):
        raise InputError(f"{path}: [{group}] has no {', '.join(missing)}")
    stacked = {name: of for name, of in section.items() if name not in KNOWN}
    found = []
    for task in section["tasks"]:
        domain = tasks.named(task).domain
        for one in section.get("grid", [{}]):
            common = dict(section.get("common", {}))
            for name, of in stacked.items():
                if domain not in of:
                    raise InputError(f"{path}: [{group}.{name}] has no values for {domain}")
                common[name] = of[domain]
            own = {name: value for name, value in one.items() if name != "agent"}
            entry = Entry(
                group,
                task,
                one.get("agent", section.get("agent", "vine")),
                tuple(section["seeds"]),
                section["steps"],
                section.get("run", {}),
                common,
                own,
            )
            try:
                check(entry)
            except InputError as error:
                raise InputError(f"{path}: [{group}] {error}") from error
            found.append(entry)
    return found


def missing(entry: Entry, published: Sequence[Seed]) -> list[dict[str, Any]]:
    """The members of an entry that no published seed answers."""
    job = jobs.resolve(entry.request)
    run = {name: manifests.freeze(getattr(job, name)) for name in manifests.KEPT}
    same = {"task": entry.task, "steps": job.total, "pretrain": None, "online": None}
    same |= results.beside_training(run)
    there = [
        (seed.seed, seed.recipe["agent"])
        for seed in published
        if all(seed.recipe.get(name) == value for name, value in same.items())
    ]
    every = stack.members(job.config, job.seeds)
    wanted = [manifests.member_of(every, i) for i in range(job.members)]
    frozen = {k: manifests.freeze(v) for k, v in vars(job.config).items() if k not in results.HOW}

    def answered(member):
        config = frozen | {k: v for k, v in member.items() if k in frozen}
        return (member["seed"], {"name": job.agent, "config": config}) in there

    return [member for member in wanted if not answered(member)]


def plan(
    entries: Sequence[Entry], published: Sequence[Seed], minutes: float, folder: Path
) -> list[tuple[Entry, float]]:
    """What fits, of the first dataset that something is missing of; its making comes first."""
    left = [entry for entry in entries if missing(entry, published)]
    if not left:
        return []
    dataset = tasks.named(left[0].task).dataset
    spent, chosen = data_seconds(left[0].task, folder), []
    for entry in (e for e in left if tasks.named(e.task).dataset == dataset):
        if not chosen or spent + entry.seconds <= 60 * minutes:
            spent += entry.seconds
            chosen.append((entry, spent))
    return chosen


def data_seconds(task: str, folder: Path) -> float:
    """To make the data of a task where there are none; 0 where they are, or cannot be made."""
    known = tasks.named(task)
    if tasks.find(known, folder) or known.dataset not in recipes.OFFICIAL:
        return 0.0
    return recipes.cost(recipes.OFFICIAL[known.dataset], provenance.cores())[0]


def status(entries: Sequence[Entry], published: Sequence[Seed]) -> list[tuple[str, ...]]:
    rows = [("group", "run", "members", "missing", "about")]
    for entry in entries:
        absent = missing(entry, published)
        cost = duration(entry.seconds) if absent else "done"
        rows.append((entry.group, entry.name, str(entry.members), str(len(absent)), cost))
    return rows


def work(
    entries: Sequence[Entry], at: Path, minutes: float, folder: Path, runs_in: Path
) -> list[Path]:
    """Measure what `plan` says; what was begun goes on, what has ended is published in `at`."""
    until, written = time.monotonic() + 60 * minutes, []
    over = lambda: time.monotonic() > until
    chosen = plan(entries, results.read(at), minutes, folder)
    if chosen and data_seconds(chosen[0][0].task, folder):
        datasets.make_data(datasets.recipe_of(tasks.named(chosen[0][0].task).dataset), folder)
    for entry, _ in chosen:
        out = runs_in / entry.name
        if not run(entry, out, folder, over):
            print(f"{out} goes on when asked again", flush=True)
            break
        written += results.publish(runs.Run(out), at)
    return written
