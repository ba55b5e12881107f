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

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vinerl.bench import datasets, jobs, provenance, results, runs, tasks
from vinerl.bench.jobs import Request
from vinerl.bench.progress import duration
from vinerl.bench.results import Seed
from vinerl.collect import recipes
from vinerl.errors import InputError
from vinerl.train import stack

# Milliseconds of a step on an H200 in bfloat16 at antmaze sizes: 2.0 for one member, 2.8 for four.
STEP, MEMBER = 1.75, 0.25
START, END = 60.0, 60.0  # seconds to compile, and for the evaluation at the end
KNOWN = {"tasks", "agent", "seeds", "steps", "run", "common", "grid"}
RUN = {"eval_every", "eval_episodes", "final_episodes", "normalise", "block"}


@dataclass(frozen=True)
class Entry:
    group: str
    task: str
    agent: str
    seeds: tuple[int, ...]
    steps: int
    run: dict[str, Any] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)  # fields that tell it from its neighbours

    @property
    def fields(self) -> dict[str, Any]:
        return self.common | self.own

    @property
    def request(self) -> Request:
        options = {"seeds": self.seeds, "steps": self.steps} | self.run
        return Request(agent=self.agent, task=self.task, fields=self.fields, **options)

    @property
    def name(self) -> str:
        """Of the run's folder: what tells it from the others of its group."""
        parts = [
            f"{k}-{v}".lower() if isinstance(v, bool | float) else v for k, v in self.own.items()
        ]
        parts = [part.replace("_", "-") for part in parts]
        short = self.task.removesuffix("-v0").replace("-singletask", "")
        return "-".join([short, self.agent, *parts, f"{self.steps // 1000}k"])

    @property
    def members(self) -> int:
        return jobs.resolve(self.request).members

    @property
    def seconds(self) -> float:
        """About, once its data are there."""
        return START + self.steps * (STEP + MEMBER * self.members) / 1000 + END


def read(path: Path) -> list[Entry]:
    """Every entry in order, all of it checked before anything runs."""
    try:
        sections = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    entries: list[Entry] = []
    for group, section in sections.items():
        entries += _entries(path, group, section)
    for i, entry in enumerate(entries):
        if any(_same(entry, other) for other in entries[:i]):
            raise InputError(f"{path}: [{entry.group}] {entry.name} stands there twice")
    return entries


def _same(one: Entry, other: Entry) -> bool:
    a, b = (jobs.resolve(e.request) for e in (one, other))
    shared = set(a.seeds) & set(b.seeds)
    return bool(shared) and (a.task, a.config, a.steps) == (b.task, b.config, b.steps)


def _entries(path: Path, group: str, section: dict[str, Any]) -> list[Entry]:
    if missing := sorted({"tasks", "seeds", "steps"} - set(section)):
        raise InputError(f"{path}: [{group}] has no {', '.join(missing)}")
    if unknown := sorted(set(section.get("run", {})) - RUN):
        raise InputError(f"{path}: [{group}] run has {', '.join(unknown)}; there are {sorted(RUN)}")
    stacked = {name: of for name, of in section.items() if name not in KNOWN}
    found = []
    for task in section["tasks"]:
        domain = tasks.named(task).domain
        for one in section.get("grid", [{}]):
            common = dict(section.get("common", {}))
            for name, of in stacked.items():
                if domain not in of:
                    raise InputError(f"{path}: [{group}.{name}] has no values for {domain}")
                common[name] = tuple(of[domain]) if len(of[domain]) > 1 else of[domain][0]
            entry = Entry(
                group,
                task,
                section.get("agent", "vine"),
                tuple(section["seeds"]),
                section["steps"],
                section.get("run", {}),
                common,
                one,
            )
            try:
                jobs.resolve(entry.request)
            except InputError as error:
                raise InputError(f"{path}: [{group}] {error}") from error
            found.append(entry)
    return found


def missing(entry: Entry, published: Sequence[Seed]) -> list[dict[str, Any]]:
    """The members of an entry that no published seed answers."""
    job = jobs.resolve(entry.request)
    there = [
        (seed.seed, seed.recipe["agent"])
        for seed in published
        if seed.recipe["task"] == entry.task and seed.recipe["steps"] == entry.steps
    ]
    every = stack.members(job.config, job.seeds)
    wanted = [runs.member_of(every, i) for i in range(job.members)]
    frozen = {k: jobs.freeze(v) for k, v in vars(job.config).items() if k not in results.HOW}

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
    chosen = plan(entries, results.read(at), minutes, folder)
    if chosen and data_seconds(chosen[0][0].task, folder):
        datasets.make_data(datasets.recipe_of(tasks.named(chosen[0][0].task).dataset), folder)
    for entry, _ in chosen:
        out = runs_in / entry.name
        if not _run(entry, out, folder, until - time.monotonic()):
            print(f"{out} goes on when asked again", flush=True)
            break
        written += results.publish(runs.Run(out), at)
    return written


def _run(entry: Entry, out: Path, folder: Path, seconds: float) -> bool:
    """In a process of its own, which gives its memory back; whether it ended in time."""
    if (out / "manifest.json").exists() and runs.Run(out).manifest["ended"]:
        return True
    command = [sys.executable, "-m", "vinerl"]
    if (out / "manifest.json").exists():
        command += ["resume", str(out)]
    else:
        command += ["train", *_flags(entry), "--dir", str(folder), "--out", str(out)]
    print(" ".join(command[2:]), flush=True)
    process = subprocess.Popen(command, env=os.environ)
    try:
        code = process.wait(timeout=max(seconds, 1.0))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # it finishes its block and saves
        process.wait()
        return False
    except BaseException:
        process.terminate()
        process.wait()
        raise
    if code:
        raise InputError(f"{out}: the run ended with exit code {code}; see above")
    return True


def _flags(entry: Entry) -> list[str]:
    flags = [entry.agent, "--task", entry.task, "--seeds", ",".join(map(str, entry.seeds))]
    flags += ["--steps", str(entry.steps)]
    for name, value in entry.run.items():
        flags += [f"--{name.replace('_', '-')}", str(value)]
    for name, value in entry.fields.items():
        stacked = isinstance(value, tuple)
        words = (
            [",".join(map(str, value))]
            if stacked
            else [str(x) for x in (value if isinstance(value, list) else [value])]
        )
        flags += [f"--agent.{name.replace('_', '-')}", *words]
    return flags
