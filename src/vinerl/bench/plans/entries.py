"""One run that is to be done: its name, its cost, and the doing of it, in one piece or several."""

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from vinerl.bench.plans import estimate, leash
from vinerl.bench.plans.estimate import Cost
from vinerl.bench.run import jobs, manifests, tasks
from vinerl.bench.run.jobs import Job, Request
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError
from vinerl.train import stack

KINDS: dict[str, tuple[Any, str]] = {  # of a sweep's keys and of those of a section of the queue
    "agent": (str, "a name"),
    "tasks": (list, "a list of names"),
    "seeds": (list, "a list of whole numbers"),
    "steps": (int, "a whole number"),
    "run": (dict, "a table of options"),
    "common": (dict, "a table of fields"),
    "grid": (list, "a list of tables"),
}
INSIDE = {"tasks": str, "seeds": int, "grid": dict}  # of a list
LOG = "log.txt"  # in a run's folder: what its processes said
# Options of a run that may stand under `run`.
RUN = {f.name for f in fields(Request)}
RUN -= {"agent", "fields", "task", "data", "seeds", "steps", "dir", "out"}


class Dataset(NamedTuple):
    """A set of the benchmark, and which of those that can be made of it."""

    name: str
    seed: int = 0

    def folder(self, every: Path) -> Path:
        """Where it is in the folder of all datasets."""
        return every / f"seed-{self.seed}" if self.seed else every


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
    data_seed: int = 0  # of the task's data: another number is another set of episodes
    part: str = ""  # which of its seeds or values these are, where the others are there already

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
        parts = [v if isinstance(v, str) else f"{k}-{plain(v)}" for k, v in self.own.items()]
        told = ("protocol", "pretrain", "online_steps", "utd", "balanced", "normalise")
        parts += [f"{name}-{self.run[name]}" for name in told if name in self.run]
        parts = [part.replace("_", "-") for part in parts]
        where = self.data.stem if self.data else tasks.short(self.task)
        agent = self.agent.rpartition(":")[2]
        steps = f"{self.steps / 1000:g}k" if self.steps >= 1000 else str(self.steps)
        which = [f"data-{self.data_seed}"] if self.data_seed else []
        which += [self.part] if self.part else []
        return "-".join([where, agent, *parts, steps, *which])

    @property
    def dataset(self) -> Dataset:
        return Dataset(tasks.named(self.task).dataset, self.data_seed)

    @cached_property
    def job(self) -> Job:
        return jobs.resolve(self.request)

    @property
    def members(self) -> int:
        """Counted without JAX: whoever starts processes leaves the device to them."""
        config = self.job.config
        values = (getattr(config, name) for name in stack.stackable(config))
        return len(self.seeds) * math.prod(len(v) for v in values if isinstance(v, tuple))

    def cost(self, done: int = 0) -> Cost:
        """About, once its data are there; of what is left after `done` steps."""
        job = self.job
        steps = max(0, job.pretrain + job.updates(job.total) - job.updates(done))
        return estimate.cost(self.agent, job.config, self.members, steps)


def plain(value: Any) -> str:
    """In a folder's name."""
    several = value if isinstance(value, tuple | list) else [value]
    return "-".join(map(str, several)).lower()


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def check_kinds(where: str, spec: dict[str, Any], kinds: dict[str, tuple[Any, str]]) -> None:
    for key, value in spec.items():
        if key not in kinds:
            raise InputError(f"{where}: unknown key {key!r}; there are {', '.join(kinds)}")
        kind, words = kinds[key]
        parts = value if isinstance(value, list) else []
        if not _is(value, kind) or not all(_is(x, INSIDE.get(key, object)) for x in parts):
            raise InputError(f"{where}: {key} = {value!r}: expected {words}")
        if key in INSIDE and not value:
            raise InputError(f"{where}: {key} is empty")


def _is(value: Any, kind: Any) -> bool:
    """A switch is no number."""
    return isinstance(value, kind) and not (isinstance(value, bool) and kind is int)


def check(entry: Entry) -> None:
    """Refuse what could not be run, before anything runs."""
    if unknown := sorted(set(entry.run) - RUN):
        raise InputError(f"run has {', '.join(unknown)}; there are {', '.join(sorted(RUN))}")
    config = entry.job.config
    usual, _ = jobs.agent(entry.agent)
    for name in set(entry.fields) - set(stack.stackable(config)):
        value, like = getattr(config, name), getattr(usual, name)
        if like is not None and type(value) is not type(like):
            raise InputError(f"{name} = {value!r} is of another kind than the usual {like!r}")


def twins(entries: Sequence[Entry]) -> tuple[Entry, Entry] | None:
    """The first that says the same as one before it, and that one."""
    found = [(entry, entry.job) for entry in entries]
    online = lambda job: (job.online_steps, job.utd, job.balanced) if job.online_steps else ()
    how = lambda job: (job.normalise, job.pretrain, job.steps, *online(job))
    what = lambda job: (job.agent, job.task, job.data, job.config, *how(job))
    for i, (entry, job) in enumerate(found):
        for before, other in found[:i]:
            same = what(job) == what(other) and entry.data_seed == before.data_seed
            if same and set(job.seeds) & set(other.seeds):
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


def check_folder(entries: Sequence[Entry], out: Path) -> None:
    """Refuse to go on with runs that are not what the entries of their name are."""
    for entry in entries:
        folder = out / entry.name
        if not (folder / "manifest.json").exists():
            continue
        then, job = Run(folder).manifest, entry.job
        config = {name: manifests.freeze(value) for name, value in vars(job.config).items()}
        wanted: dict[str, Any] = {"agent": {"name": job.agent, "config": config}}
        wanted["run"] = {name: manifests.freeze(getattr(job, name)) for name in manifests.KEPT}
        found = {"agent": then["agent"], "run": manifests.BEFORE | then["run"]}
        if job.data:
            wanted["data"], found["data"] = str(job.data), then["data"]["path"]
        if other := manifests.differences(wanted, found):
            raise InputError(
                f"{folder} holds another run: {', '.join(other)} differ. Choose another folder, or "
                "remove it."
            )


def reached(entry: Entry, out: Path) -> int:
    """The last step that its log tells of; of files that cannot be read nothing, until the run is
    gone on with and says so."""
    try:
        if ended(out):
            return entry.steps
        lines = Run(out).metrics
    except (InputError, OSError):
        return 0
    return lines[-1]["step"] if lines else 0


def to_do(entries: Sequence[Entry], out: Path) -> int:
    """Steps that are left; the last of a run counts when the run has ended."""
    last = lambda entry: min(reached(entry, out / entry.name), entry.steps - 1)
    return sum(entry.steps - last(entry) for entry in entries)


def run(entry: Entry, out: Path, folder: Path, over: Callable[[], bool]) -> None:
    """Begin or go on until it has ended, or `over`; what it says goes to the end of its log."""
    if ended(out):
        return
    folder = entry.dataset.folder(folder) if entry.task else folder
    words = ["train", *flags(entry), "--dir", str(folder), "--out", str(out)]
    if (out / "manifest.json").exists():
        words = ["resume", str(out)]
    leash.hold(words, out / LOG, over)


def shared_name(entries: Sequence[Entry]) -> str | None:
    """The first name that two of them have."""
    names = [entry.name for entry in entries]
    return next((name for name in names if names.count(name) > 1), None)
