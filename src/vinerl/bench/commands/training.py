"""What the commands do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_type_hints

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec

from vinerl.agents import AGENTS
from vinerl.bench.commands import data as data_commands
from vinerl.bench.commands import doctor, options, queues, reproduce
from vinerl.bench.commands import results as result_commands
from vinerl.bench.commands import sweeps as sweep_commands
from vinerl.bench.commands.options import Given
from vinerl.bench.pictures import show
from vinerl.bench.run import jobs, runs
from vinerl.bench.run.jobs import Request
from vinerl.errors import InputError

C = TypeVar("C")


def commas(kind: type, one_alone: bool) -> PrimitiveConstructorSpec:
    """1,3,10 -> (1, 3, 10); a single value stays one unless it is a list anyway."""

    def parse(words):
        values = tuple(map(kind, words[0].split(",")))
        return values[0] if one_alone and len(values) == 1 else values

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{kind.__name__.upper()}[,...]",
        instance_from_str=parse,
        is_instance=lambda x: isinstance(x, kind | tuple),
        str_from_instance=lambda x: [",".join(map(str, x)) if isinstance(x, tuple) else str(x)],
    )


registry = ConstructorRegistry()


@registry.primitive_rule
def _floats(info):
    return commas(float, one_alone=True) if info.type is float else None


Seeds = Annotated[Given[tuple[int, ...]], commas(int, one_alone=False)]
Log = Annotated[tuple[str, ...], commas(str, one_alone=False)]
Runs = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN RUN ...", help_behavior_hint="")]


@dataclass(frozen=True)
class Train(Generic[C]):
    """Train an agent offline, and perhaps online afterwards.

    vinerl train [AGENT] [--task NAME | --data FILE] [--seeds 0,1,2] [--agent.FIELD VALUE ...]

    Without a task VINE learns a maze from data that it makes itself. What is not given has the
    value tuned for the task, else the default shown here; manifest.json says which it was. Several
    values of a float field (--agent.alpha 1,3,10) are trained side by side, each with every seed:
    these are the members of a run.
    """

    agent: tyro.conf.FlagConversionOff[C]
    task: Given[str] = None  # an OGBench task, e.g. antmaze-large-navigate-singletask-task1-v0
    protocol: Given[Literal["qam", "vine"]] = None  # critics and returns as in QAM's or VINE's runs
    data: Given[Path] = None  # instead of a task: an .npz file of your own, or a folder of them
    seeds: Seeds = None  # one member for each, e.g. 0,1,2 (else the task's, or 0)
    steps: Given[int] = None  # gradient steps (else the task's, or a million)
    eval_every: Given[int] = None  # gradient steps between evaluations; 0: only at the end
    eval_episodes: int = 10  # episodes of each member in an evaluation on the way
    final_episodes: int = 50  # episodes of each member at the end
    log_every: Given[int] = None  # gradient steps between lines of metrics.jsonl
    pretrain: int = 0  # gradient steps of flow matching alone, before --steps
    online_steps: int = 0  # environment steps of each member, to go on learning from, after --steps
    utd: str = "1"  # online: gradient steps for each environment step; 4, or 1/4
    balanced: bool = False  # online: half of each batch own steps, else all rows alike
    normalise: Given[Literal["none", "standard"]] = None  # observations (else standard for --data)
    drop_bad_rows: bool = False  # leave out rows of the data that are NaN or infinite
    rescale_actions: bool = False  # map the actions of --data to [-1, 1]; undone when acting
    shard_every: Given[int] = None  # gradient steps on each file of a folder (else 1000)
    block: Given[int] = None  # gradient steps between looks at the run (else what takes 2 s)
    stack: int = 0  # members trained at once, the rest in turn; 0: as many as the memory holds
    workers: Given[int] = None  # processes that step environments (else one a core)
    make_data: bool = False  # make the task's dataset where there is none
    dir: Given[Path] = None  # folder of datasets (else $VINERL_DATA, else ~/.cache/vinerl/data)
    out: Given[Path] = None  # folder of the run (else runs/NAME)
    log: Log = ()  # write the metrics to tensorboard, wandb, too
    stop_on_bad: bool = False  # stop when a member turns non-finite or has no gradient
    deterministic: bool = False  # the same bits every time on a GPU, too; slower


def train(args: list[str]) -> None:
    from vinerl.bench.run import running

    running.train(jobs.resolve(parse(args)))


def parse(args: list[str]) -> Request:
    """Options and agent in any order."""
    name, rest = agent_name(args)
    config, _ = jobs.agent(name)
    names = f"Agents: {', '.join(AGENTS)}, or file.py:NAME of your own."
    parsed = options.parse(
        Train[type(config)],
        rest,
        f"train {name}",
        default=Train(agent=config),
        registry=registry,
        description=f"{cleandoc(Train.__doc__ or '')}\n\n{names}",
    )
    given = {a.split("=")[0].removeprefix("--agent.") for a in rest if a.startswith("--agent.")}
    chosen = {field.replace("-", "_") for field in given}
    asked = {f.name: getattr(parsed, f.name) for f in fields(parsed) if f.name != "agent"}
    values = {field: getattr(parsed.agent, field) for field in chosen}
    return Request(agent=name, fields=values, **asked)


def agent_name(args: Sequence[str]) -> tuple[str, list[str]]:
    """The first word that is no option and no option's value, and the rest."""
    kinds = get_type_hints(Train)
    switches = [name.replace("_", "-") for name, kind in kinds.items() if kind is bool]
    flags = ("--help", *(f"--{no}{name}" for name in switches for no in ("", "no-")))
    for i, word in enumerate(args):
        before = args[i - 1].replace("_", "-") if i else ""
        is_value = before.startswith("--") and "=" not in before and before not in flags
        if not word.startswith("-") and not is_value and not _number(word):
            _check_word(word, before if "=" not in before else "")
            return word, [*args[:i], *args[i + 1 :]]
    return "vine", list(args)


def _check_word(word: str, before: str) -> None:
    """What is certainly no agent, and was meant for something else."""
    if word.endswith(".npz"):
        raise InputError(
            f"{word}: data are given once, by --data FILE; of several files give the folder"
        )
    if word in ("True", "False", "true", "false") and before.startswith("--"):
        bare = before.removeprefix("--").removeprefix("no-")
        raise InputError(f"{before} takes no value: give --{bare} or --no-{bare}")


def _number(word: str) -> bool:
    """A later width of --agent.actor-hidden 512 512 is no agent."""
    try:
        float(word)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped, from its last good checkpoint."""

    run: tyro.conf.Positional[Path]  # its folder
    steps: Given[int] = None  # lengthen it to this many gradient steps
    online_steps: Given[int] = None  # lengthen its online phase to this many environment steps
    stack: int = 0  # members trained at once, the rest in turn; 0: as many as the memory holds
    workers: Given[int] = None  # processes that step environments (else as at its beginning)
    data: Given[Path] = None  # where its file or folder is now; it must be the same, by its sha256
    agent: Given[str] = None  # FILE.py:NAME, where an agent of your own is now


def resume(args: list[str]) -> None:
    from vinerl.bench.run import running

    asked = options.parse(Resume, args, "resume")
    how = asked.steps, asked.stack, asked.online_steps, asked.workers, asked.data, asked.agent
    running.resume(asked.run, *how)


@dataclass(frozen=True)
class Evaluate:
    """Run the policies of a run in its environment; the success of every member, and their mean."""

    run: tyro.conf.Positional[Path]  # its folder
    episodes: int = 50  # episodes of each member
    noise: Given[float] = None  # scale of the sampler's noise; 0 acts without (else the run's own)
    stop_at: Given[int] = None  # act with the estimate after this many steps of the sampler
    best_of: Given[int] = None  # actions drawn, of which the critics choose one (else the run's)
    step: Given[int] = None  # of the checkpoint (else the newest)
    stream: int = 1  # another number gives other starts and noises
    workers: Given[int] = None  # processes that step environments (else one a core)
    agent: Given[str] = None  # FILE.py:NAME, where an agent of your own is now
    video: bool = False  # film one episode of every member, too


def evaluate(args: list[str]) -> None:
    from vinerl.bench.run import evaluation

    asked = options.parse(Evaluate, args, "evaluate")
    run = runs.Run(asked.run)
    evaluation.again(
        run,
        episodes=asked.episodes,
        noise=asked.noise,
        stop_at=asked.stop_at,
        best_of=asked.best_of,
        step=asked.step,
        stream=asked.stream,
        workers=asked.workers,
        agent=asked.agent,
    )
    if asked.video:
        from vinerl.bench.pictures import video

        how = asked.step, asked.noise, asked.stop_at, asked.stream, asked.best_of, asked.agent
        for path in video.film(run, *how):
            print(path)


@dataclass(frozen=True)
class List:
    """The runs below a folder."""

    folder: tyro.conf.Positional[Path] = Path("runs")  # to look in


def list_runs(args: list[str]) -> None:
    print(show.listing(options.parse(List, args, "list").folder))


@dataclass(frozen=True)
class Compare:
    """Runs side by side, and what differs between them."""

    runs: tyro.conf.Positional[Runs]  # their folders
    plot: Given[Path] = None  # draw their curves into this file, too


def compare(args: list[str]) -> None:
    asked = options.parse(Compare, args, "compare")
    if len(asked.runs) < 2:
        raise InputError("compare needs two runs or more")
    chosen = [runs.Run(path) for path in asked.runs]
    print(show.comparison(chosen))
    if asked.plot:
        from vinerl.bench.pictures import plots

        print(plots.compare(chosen, asked.plot) or "nothing to draw yet")


@dataclass(frozen=True)
class Plot:
    """Draw a run's pictures again."""

    run: tyro.conf.Positional[Path]  # its folder


def plot(args: list[str]) -> None:
    run = runs.Run(options.parse(Plot, args, "plot").run)
    for path in runs.draw(run):
        print(path)


@dataclass(frozen=True)
class Doctor:
    """Check versions, device, rendering, disk, and train ten steps."""


def check(args: list[str]) -> None:
    options.parse(Doctor, args, "doctor")
    if not doctor.examine(print):
        raise SystemExit(1)


COMMANDS: dict[str, Callable[[list[str]], Any]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "list": list_runs,
    "compare": compare,
    "plot": plot,
    "data": data_commands.group("data", data_commands.DATA),
    "controllers": data_commands.group("controllers", data_commands.CONTROLLERS),
    "results": data_commands.group("results", result_commands.RESULTS),
    "queue": data_commands.group("queue", queues.QUEUE),
    "sweep": sweep_commands.command,
    "reproduce": reproduce.reproduce,
    "report": result_commands.report,
    "doctor": check,
}
