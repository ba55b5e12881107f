"""One run that is to be done: its name, its cost, and the doing of it, in one piece or several."""

import math
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from vinerl.bench.run import jobs, manifests
from vinerl.bench.run.jobs import Request
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError
from vinerl.train import stack

# Milliseconds of a step on an H200 in bfloat16 at antmaze sizes: 2.2 for four members, as measured.
STEP, MEMBER = 0.8, 0.35
START, END = 60.0, 60.0  # seconds to compile, and for the evaluation at the end
# Options of a run that may stand under `run`.
RUN = {f.name for f in fields(Request)}
RUN -= {"agent", "fields", "task", "data", "seeds", "steps", "dir", "out"}


@dataclass(frozen=True)
class Entry:
    group: str
    task: str  # "" where there are data of one's own
    agent: str
    seeds: tuple[int, ...]
    steps: int
    run: dict[str, Any] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)  # fields that tell it from its neighbours
    data: Path | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Lists as tuples; of a float field, one value alone as itself."""
        floats = stack.stackable(jobs.agent(self.agent)[0])
        found = {name: manifests.thaw(value) for name, value in (self.common | self.own).items()}
        alone = lambda name, value: name in floats and isinstance(value, tuple) and len(value) == 1
        return {name: value[0] if alone(name, value) else value for name, value in found.items()}

    @property
    def request(self) -> Request:
        options = {name: manifests.thaw(value) for name, value in self.run.items()}
        options |= {"seeds": self.seeds, "steps": self.steps}
        where = {"task": self.task or None, "data": self.data}
        return Request(agent=self.agent, fields=self.fields, **where, **options)

    @property
    def name(self) -> str:
        """Of the run's folder: what tells it from the others of its group."""
        parts = [v if isinstance(v, str) else f"{k}-{_plain(v)}" for k, v in self.own.items()]
        parts = [part.replace("_", "-") for part in parts]
        short = self.task.removesuffix("-v0").replace("-singletask", "")
        where = self.data.stem if self.data else short
        agent = self.agent.rpartition(":")[2]
        steps = f"{self.steps // 1000}k" if self.steps >= 1000 else str(self.steps)
        return "-".join([where, agent, *parts, steps])

    @property
    def members(self) -> int:
        """Counted without JAX: whoever starts processes leaves the device to them."""
        config = jobs.resolve(self.request).config
        values = (getattr(config, name) for name in stack.stackable(config))
        return len(self.seeds) * math.prod(len(v) for v in values if isinstance(v, tuple))

    @property
    def seconds(self) -> float:
        """About, once its data are there."""
        return START + self.steps * (STEP + MEMBER * self.members) / 1000 + END


def _plain(value: Any) -> str:
    several = value if isinstance(value, tuple | list) else [value]
    return "-".join(map(str, several)).lower()


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def check(entry: Entry) -> None:
    """Refuse what could not be run, before anything runs."""
    if unknown := sorted(set(entry.run) - RUN):
        raise InputError(f"run has {', '.join(unknown)}; there are {', '.join(sorted(RUN))}")
    config = jobs.resolve(entry.request).config
    usual, _ = jobs.agent(entry.agent)
    for name in set(entry.fields) - set(stack.stackable(config)):
        value, like = getattr(config, name), getattr(usual, name)
        if like is not None and type(value) is not type(like):
            raise InputError(f"{name} = {value!r} is of another kind than the usual {like!r}")


def twins(entries: Sequence[Entry]) -> tuple[Entry, Entry] | None:
    """The first that says the same as one before it, and that one."""
    found = [(entry, jobs.resolve(entry.request)) for entry in entries]
    what = lambda job: (job.agent, job.task, job.data, job.config, job.steps)
    for i, (entry, job) in enumerate(found):
        for before, other in found[:i]:
            if what(job) == what(other) and set(job.seeds) & set(other.seeds):
                return before, entry
    return None


def flags(entry: Entry) -> list[str]:
    """The words after `vinerl train`."""
    where = ["--data", str(entry.data)] if entry.data else ["--task", entry.task]
    words = [entry.agent, *where, "--seeds", ",".join(map(str, entry.seeds))]
    words += ["--steps", str(entry.steps)]
    for name, value in entry.run.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        else:
            words += [f"--{dashed}", _commas(value)]
    floats = stack.stackable(jobs.agent(entry.agent)[0])
    for name, value in entry.fields.items():
        apart = isinstance(value, tuple) and name not in floats
        said = [str(x) for x in value] if apart else [_commas(value)]
        words += [f"--agent.{name.replace('_', '-')}", *said]
    return words


def _commas(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def ended(out: Path) -> bool:
    return (out / "manifest.json").exists() and bool(Run(out).manifest["ended"])


def run(
    entry: Entry, out: Path, folder: Path, over: Callable[[], bool], log: Path | None = None
) -> bool:
    """Begin or go on until it has ended, or `over`; whether it has ended.

    In a process of its own, which gives its memory back. It is on a leash: let go, it finishes its
    block and saves. What it says goes to the end of `log`.
    """
    if ended(out):
        return True
    words = ["train", *flags(entry), "--dir", str(folder), "--out", str(out)]
    if (out / "manifest.json").exists():
        words = ["resume", str(out)]
    with log.open("a") if log else nullcontext() as said:
        print("vinerl", *words, file=said, flush=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "vinerl.bench.plans.leash", *words],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said and subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours to pass on, once
        )
        try:
            while process.poll() is None and not over():
                time.sleep(0.1)
        finally:
            stopped = process.poll() is None
            process.communicate()  # lets go of the leash, and waits
    if process.returncode and not stopped:
        where = f"see {log}" if log else "see above"
        raise InputError(f"{out}: the run ended with exit code {process.returncode}; {where}")
    return not stopped
