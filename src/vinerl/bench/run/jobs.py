"""From what was asked for to what is done: a flag beats the task's row, which beats the default."""

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from importlib.machinery import SourceFileLoader
from itertools import accumulate, count
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np

from vinerl import disk
from vinerl.agents import AGENTS
from vinerl.bench.run import configs, intervals, tasks, trackers, tuned
from vinerl.bench.run.tasks import Task
from vinerl.data import files, shards
from vinerl.errors import InputError
from vinerl.rl.learner import AgentConfig, Make
from vinerl.train import stack

DEFAULTS: dict[str, Any] = {
    "seeds": (0,),
    "steps": 1_000_000,
    "eval_every": 50_000,
    "normalise": "none",
    "episodes": None,
    "shard_every": None,
}
LEAST = {"steps": 1, "eval_every": 0, "eval_episodes": 1, "final_episodes": 0}
LEAST |= {"log_every": 1, "block": 1, "workers": 1, "shard_every": 1, "online_steps": 0}
LEAST |= {"pretrain": 0, "stack": 0}
BESIDE: set[str] = set()  # folders of agents' files, where what these import is looked for


@dataclass(frozen=True)
class Request:
    """What was asked for; None leaves the choice to the task's row or the default."""

    agent: str = "vine"
    fields: dict[str, Any] = field(default_factory=dict)  # of the agent's config
    task: str | None = None
    protocol: Literal["qam", "vine"] | None = None
    data: Path | None = None
    seeds: tuple[int, ...] | None = None
    steps: int | None = None
    eval_every: int | None = None
    eval_episodes: int = 10
    final_episodes: int = 50
    log_every: int | None = None
    normalise: Literal["none", "standard"] | None = None
    block: int | None = None
    stack: int = 0
    workers: int | None = None
    dir: Path | None = None
    out: Path | None = None
    log: tuple[str, ...] = ()
    pretrain: int = 0
    online_steps: int = 0
    utd: str = "1"
    balanced: bool = False
    shard_every: int | None = None
    drop_bad_rows: bool = False
    rescale_actions: bool = False
    make_data: bool = False
    stop_on_bad: bool = False
    deterministic: bool = False


@dataclass(frozen=True)
class Job:
    """One run, every choice made; `origin` says who made it for each."""

    agent: str
    agent_sha256: str | None  # of the file of one of the user's own
    config: AgentConfig  # a float field may hold several values
    make: Make
    task: Task | None
    data: Path | None
    seeds: tuple[int, ...]
    steps: int
    eval_every: int  # 0: never
    eval_episodes: int
    final_episodes: int
    log_every: int
    save_every: int
    normalise: str
    block: int | None
    stack: int  # members that are worked on at once; 0: as many as the memory holds
    workers: int | None
    folder: Path  # of datasets
    out: Path  # of the run
    numbered: bool  # another number may be put behind `out` where it is taken
    log: tuple[str, ...]
    pretrain: int  # steps of flow matching alone, before the first of `steps`
    online_steps: int  # in the environment, after `steps`
    utd: str  # updates for each of them, a fraction
    balanced: bool  # half a batch from them, half from the data
    online_every: int  # of them between updates
    shard_every: int  # steps on each file, where the data are a folder
    drop_bad_rows: bool
    rescale_actions: bool
    stop_on_bad: bool
    deterministic: bool
    make_data: bool  # where there is no dataset
    episodes: int | None  # of one that the row asks for and that is made without being asked
    origin: dict[str, str]

    @property
    def members(self) -> int:
        return len(stack.members(self.config, self.seeds).seed)

    @property
    def total(self) -> int:
        """Where a run ends: its steps are updates offline and environment steps online."""
        return self.steps + self.online_steps

    def updates(self, step: int) -> int:
        """Gradient steps that have been taken by then."""
        return min(step, self.steps) + int(max(step - self.steps, 0) * Fraction(self.utd))


def request(agent_name: str, options: dict[str, Any]) -> Request:
    """From Python: options of a run by name, everything else a field of the agent's config."""
    known = {f.name for f in fields(Request)} - {"agent", "fields"}
    options = {name: _plain(value) for name, value in options.items()}
    run = {name: value for name, value in options.items() if name in known}
    for name in {"data", "dir", "out"} & set(run):
        run[name] = run[name] and Path(run[name])
    for name in {"seeds", "log"} & set(run):
        single = isinstance(run[name], int | str)
        run[name] = (run[name],) if single else run[name]
    rest = {name: value for name, value in options.items() if name not in known}
    return Request(agent=agent_name, fields=rest, **run)


def _plain(value: Any) -> Any:
    """NumPy's numbers and any list as Python's numbers and tuples, which a manifest holds."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return tuple(map(_plain, value)) if isinstance(value, tuple | list | range) else value


def agent(name: str) -> tuple[AgentConfig, Make]:
    """A registered agent, or module:NAME (file.py:NAME) of the user's own: (config, maker)."""
    if not isinstance(name, str):  # as in a file of TOML
        raise InputError(f"agent = {name!r}: expected a name")
    if name in AGENTS:
        return AGENTS[name]
    if ":" not in name:
        raise InputError(
            f"unknown agent {name!r}; there are {', '.join(AGENTS)}. "
            "One of your own is file.py:NAME or module:NAME."
        )
    where, _, attribute = name.rpartition(":")
    found = getattr(_module(where), attribute, None)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], AgentConfig)):
        raise InputError(
            f"{name}: expected {attribute} = (a config that extends AgentConfig, its make function)"
        )
    return found


def lasting(name: str) -> str:
    """The name under which an agent is found again from any folder."""
    where, _, attribute = name.rpartition(":")
    return f"{Path(where).resolve()}:{attribute}" if where.endswith(".py") else name


def portable(name: str) -> str:
    """An agent's name without the folder its file is in."""
    where, _, attribute = name.rpartition(":")
    return f"{Path(where).name}:{attribute}" if where.endswith(".py") else name


def sources(name: str) -> Iterator[Path]:
    """The files that importing an agent of the user's own executes, its own last.

    Each is told before it is executed: what is in a package is looked for after the package.
    """
    where = name.rpartition(":")[0]
    if where.endswith(".py"):
        yield Path(where).resolve()
    elif where:
        _look_here()
        modules = accumulate(where.split("."), "{}.{}".format)
        yield from filter(None, map(_file, modules))


def agent_hash(name: str) -> str | None:
    """The sha256 of the file that an agent of the user's own is in, without what that imports."""
    *_, file = None, *sources(name)
    return disk.sha256(file) if file and file.is_file() else None


def _file(module: str) -> Path | None:
    try:
        found = sys.modules.get(module) or importlib.util.find_spec(module)
    except (ImportError, ValueError):  # said when it is imported
        return None
    file = getattr(found, "__file__", None) or getattr(found, "origin", None)
    return Path(file).resolve() if file else None


def _look_here() -> None:
    sys.path[:0] = [] if "" in sys.path else [""]


def _module(where: str) -> Any:
    try:
        if where.endswith(".py"):
            path = Path(where).resolve()
            name = f"vinerl_agent_{path.stem}"  # no file of the user's hides a module
            loader = SourceFileLoader(name, str(path))
            spec = importlib.util.spec_from_loader(name, loader)
            assert spec is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            _look_beside(path)
            loader.exec_module(module)
            return module
        _look_here()
        return importlib.import_module(where)
    except (ImportError, FileNotFoundError) as error:
        raise InputError(f"cannot import {where}: {error}") from error


def _look_beside(agent: Path) -> None:
    """What an agent's file imports may lie beside it, unless that name is another agent's."""
    for path in agent.parent.glob("*.py"):
        there = getattr(sys.modules.get(path.stem), "__file__", None)
        if there and Path(there).resolve() != path and str(Path(there).parent) in BESIDE:
            raise InputError(
                f"{agent}: importing {path.stem} would give it {there}, which another agent has "
                f"imported; rename {path.name}, or use another process"
            )
    beside = str(agent.parent)
    BESIDE.add(beside)
    sys.path += [] if beside in sys.path else [beside]


def usual(name: str, task: tasks.Task) -> dict[str, Any]:
    """The fields that an agent has on a task where none is given; without any that must be."""
    default, _ = agent(name)
    row = tuned.row(name, task)
    chosen = vars(default) | (row.agent if row else {})
    return {k: v for k, v in chosen.items() if k not in tuned.plain(name, task)}


def usual_normalise(name: str, task: tasks.Task) -> str:
    """How an agent's observations are normalised on a task where nothing is said of it."""
    row = tuned.row(name, task)
    return (row.run if row else {}).get("normalise", DEFAULTS["normalise"])


def resolve(request: Request) -> Job:
    default, make = agent(request.agent)
    name = request.task or (None if request.data else tasks.DEFAULT)
    if request.task and request.data:
        raise InputError("--task and --data exclude each other")
    task = tasks.named(name) if name else None
    if task and request.rescale_actions:
        raise InputError(
            f"--rescale-actions is for --data: the actions of {task.name} lie in [-1, 1] already"
        )
    tuned.check(request.protocol, task)
    tuned.refuse_plain(request.agent, task, request.fields)
    row = tuned.row(request.agent, task, request.protocol)
    chosen = row.agent if row else {}

    known = get_type_hints(type(default))
    if unknown := [f for f in request.fields if f not in {x.name for x in fields(default)}]:
        near = difflib.get_close_matches(unknown[0], known, n=3, cutoff=0.0)
        raise InputError(f"{request.agent} has no field {unknown[0]!r}; nearest: {', '.join(near)}")
    config = replace(default, **(chosen | request.fields))
    configs.check(config)
    config = configs.plain(config)
    origin = {
        f.name: "flag"
        if f.name in request.fields
        else f"row: {row.by[f.name]}"
        if row and f.name in chosen
        else "default"
        for f in fields(default)
    }

    options: dict[str, Any] = {}
    for option, value in DEFAULTS.items():
        asked, rowed = getattr(request, option, None), row.run.get(option) if row else None
        options[option] = next((x for x in (asked, rowed) if x is not None), value)
        origin[option] = "flag" if asked is not None else "row" if rowed is not None else "default"
    if not request.task and request.data and request.normalise is None:
        options["normalise"], origin["normalise"] = "standard", "default for own data"
    for option, least in LEAST.items():
        value = options.get(option, getattr(request, option))
        if value is not None and (not isinstance(value, int) or value < least):
            flag = f"--{option.replace('_', '-')} {value}"
            raise InputError(f"{flag}: expected a whole number, {least} or more")
    for option, kind in get_type_hints(Request).items():
        value = getattr(request, option)
        if kind is bool and not isinstance(value, bool):
            raise InputError(f"--{option.replace('_', '-')} {value}: expected True or False")
    if options["normalise"] not in ("none", "standard"):
        raise InputError(f"--normalise {options['normalise']}: there are none, standard")
    steps, eval_every = options["steps"], options["eval_every"]
    if request.eval_every is None:
        eval_every = min(eval_every, steps)
    every = intervals.choose(steps, eval_every, request.log_every, request.block)
    utd = _online(request)
    online_every = every.round(request.online_steps, utd) if request.online_steps else 0
    trackers.check(request.log)
    seeds = options["seeds"]
    if len(set(seeds)) != len(seeds):
        raise InputError(f"--seeds {','.join(map(str, seeds))}: a seed is given twice")
    if not seeds or not all(0 <= seed < 2**32 for seed in seeds):
        raise InputError(f"--seeds {','.join(map(str, seeds))}: expected numbers from 0 to 2**32-1")
    return Job(
        agent=lasting(request.agent),
        agent_sha256=agent_hash(request.agent),
        config=config,
        make=make,
        task=task,
        data=request.data,
        seeds=seeds,
        steps=steps,
        eval_every=eval_every,
        eval_episodes=request.eval_episodes,
        final_episodes=request.final_episodes,
        log_every=every.log,
        save_every=every.save,
        normalise=options["normalise"],
        block=request.block,
        stack=request.stack,
        workers=request.workers,
        folder=files.folder(request.dir),
        out=_out(request, task),
        numbered=request.out is None,
        log=request.log,
        pretrain=request.pretrain,
        online_steps=request.online_steps,
        utd=str(utd),
        balanced=request.balanced,
        online_every=online_every,
        shard_every=options["shard_every"] or shards.EVERY,
        drop_bad_rows=request.drop_bad_rows,
        rescale_actions=request.rescale_actions,
        stop_on_bad=request.stop_on_bad,
        deterministic=request.deterministic,
        make_data=request.make_data,
        episodes=options["episodes"],
        origin=origin,
    )


def _online(request: Request) -> Fraction:
    """Updates for each environment step; what does not go together is refused."""
    if request.online_steps and not request.task and request.data:
        raise InputError("--online-steps needs an environment: give --task instead of --data")
    if not request.online_steps and (request.balanced or str(request.utd) != "1"):
        flag = "--balanced" if request.balanced else f"--utd {request.utd}"
        raise InputError(f"{flag} is for the online phase: give --online-steps, too")
    try:
        utd = Fraction(str(request.utd))
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(f"--utd {request.utd}: expected a number, or 1/4, say") from error
    if utd <= 0:
        raise InputError(f"--utd {request.utd}: expected more than 0")
    return utd


def _out(request: Request, task: Task | None) -> Path:
    if request.out:
        if (request.out / "manifest.json").exists():
            raise InputError(f"{request.out} already holds a run; choose another --out")
        return request.out
    data = tasks.short(task.name) if task else None
    return (
        Path("runs") / f"{request.agent.rpartition(':')[2]}-{data or Path(request.data or '').stem}"
    )


def claim(job: Job) -> Job:
    """The job with a folder that is its own, from the moment it is made."""
    if not job.numbered:
        job.out.mkdir(parents=True, exist_ok=True)
        return job
    for number in count(1):
        out = job.out if number == 1 else job.out.with_name(f"{job.out.name}-{number}")
        try:
            out.mkdir(parents=True)
        except FileExistsError:
            continue
        return replace(job, out=out)
    raise AssertionError("there is always another number")
