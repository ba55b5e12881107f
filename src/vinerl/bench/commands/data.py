"""vinerl data ... and vinerl controllers ...: what they do."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from vinerl import disk
from vinerl.bench.commands import options
from vinerl.bench.commands.options import Given
from vinerl.bench.run import datasets, provenance
from vinerl.bench.run.progress import Progress
from vinerl.data import files
from vinerl.errors import InputError

MB = 10**6


@dataclass(frozen=True)
class Make:
    """Make a dataset of the benchmark: training file, validation file, and a card beside them."""

    dataset: tyro.conf.Positional[str]  # e.g. antmaze-large-navigate-v0
    episodes: Given[int] = None  # of the training file (else as many as the official one has)
    seed: int = 0  # another number gives other episodes
    dir: Given[Path] = None  # where it goes (else $VINERL_DATA, else ~/.cache/vinerl/data)
    workers: Given[int] = None  # processes (else one a core)
    controller: Given[Path] = None  # a walking controller of your own


def make(asked: Make) -> None:
    recipe = datasets.recipe_of(asked.dataset, asked.episodes, asked.seed)
    folder = files.folder(asked.dir)
    path = datasets.make_data(recipe, folder, asked.workers, asked.controller)
    card = json.loads(path.with_suffix(".json").read_text())
    told = ", ".join(f"{value:.3g} {name}" for name, value in card["per_episode"].items())
    print(f"{path} ({path.stat().st_size / 1e6:.0f} MB; in an episode: {told})")


@dataclass(frozen=True)
class Get:
    """Download the official files of a dataset."""

    dataset: tyro.conf.Positional[str]  # e.g. antmaze-large-navigate-v0
    dir: Given[Path] = None  # where they go (else $VINERL_DATA, else ~/.cache/vinerl/data)
    mirror: tuple[str, ...] = ()  # addresses to try instead of the known ones


def get(asked: Get) -> None:
    from vinerl.data import download
    from vinerl.envs import ogbench

    if asked.dataset not in ogbench.DATASETS:
        raise InputError(f"there is no official dataset {asked.dataset!r}")
    folder, mirrors = files.folder(asked.dir), asked.mirror or download.MIRRORS
    with _bars() as show:
        paths = download.fetch(asked.dataset, folder, mirrors, show)
    for path in paths:
        print(path)


@contextmanager
def _bars() -> Iterator[Callable[[int, int], None]]:
    """A bar for each file, from when its size is known; a begun megabyte counts at the end."""
    bar: Progress | None = None
    with ExitStack() as shown:

        def show(done: int, total: int) -> None:
            nonlocal bar
            here, size = done // MB + (done == total), total // MB + 1
            if bar is None or bar.total != size:
                shown.close()
                bar = shown.enter_context(Progress("MB", size, here))
            bar.update(here)

        yield show


@dataclass(frozen=True)
class Check:
    """Say what is in a file of transitions, or in each of a folder, and what is wrong with it."""

    file: tyro.conf.Positional[Path]  # .npz, or a folder of such files


def check(asked: Check) -> None:
    from vinerl.data import examine, shards

    paths = shards.find(asked.file) if asked.file.is_dir() else [asked.file]
    wrong = 0
    for path in paths:
        report = examine.report(path)
        wrong += any(finding.level == "wrong" for finding in report.findings)
        print(report.text, end="\n\n" if len(paths) > 1 else "\n")
    if not wrong:
        shards.alike(paths)
    if len(paths) > 1:
        print(f"{len(paths)} files, {wrong or 'none'} with something wrong")
    if wrong:
        raise SystemExit(1)


@dataclass(frozen=True)
class Show:
    """Draw a file of transitions: coverage, returns, actions."""

    file: tyro.conf.Positional[Path]  # .npz
    out: Given[Path] = None  # the picture (else beside the file, as .png)


def show(asked: Show) -> None:
    from vinerl.bench.pictures import portrait

    print(portrait.draw(asked.file, asked.out or asked.file.with_suffix(".png")))


@dataclass(frozen=True)
class Train:
    """Train a controller that walks where it is told."""

    robot: tyro.conf.Positional[str]  # ant
    out: Path = Path("controllers")  # folder of the file and its card
    steps: int = 400_000  # of one robot
    seed: int = 0  # another number gives another controller
    mazes: int = 20  # episodes in each maze, to see how well it does there


def train(asked: Train) -> None:
    from vinerl.collect import controllers, walking

    if asked.robot != "ant":
        raise InputError(f"{asked.robot}: only the ant can be taught here")
    lesson, threads = walking.Lesson(steps=asked.steps, seed=asked.seed), provenance.cores()
    if lesson.steps < lesson.ants:
        raise InputError(f"--steps {lesson.steps}: {lesson.ants} ants walk at once, a step each")
    if asked.mazes < 1:
        raise InputError(f"--mazes {asked.mazes}: expected a whole number, 1 or more")
    path = asked.out / f"{asked.robot}.safetensors"
    if path.exists():
        raise InputError(f"{path} exists and is not overwritten; choose another --out")
    asked.out.mkdir(parents=True, exist_ok=True)
    with Progress("walking", lesson.steps) as bar:
        weights = walking.train(lesson, threads, bar.update)
    controllers.save(path, weights, asked.robot)
    speed, falls = walking.look(controllers.walker(weights), threads, ants=64)
    card = {
        "robot": asked.robot,
        "sha256": disk.sha256(path),
        "lesson": asdict(lesson),
        "metres_a_step": speed,
        "falls": f"{falls} in {64 * 200} steps",
        "mazes": {
            size: datasets.trial(path, size, asked.mazes) for size in ("medium", "large", "giant")
        },
        "versions": provenance.versions(),
        "hardware": provenance.hardware(),
    }
    disk.write(path.with_suffix(".json"), json.dumps(card, indent=1).encode())
    print(json.dumps(card["mazes"], indent=1))
    print(path)


DATA = {"make": (Make, make), "get": (Get, get), "check": (Check, check), "show": (Show, show)}
CONTROLLERS = {"train": (Train, train)}


def group(name: str, commands: dict) -> Callable[[list[str]], None]:
    """A command that has commands."""

    def run(args: list[str]) -> None:
        first = lambda kind: kind.__doc__.partition("\n")[0]
        known = "\n".join(f"  {n:<7} {first(kind)}" for n, (kind, _) in commands.items())
        if not args or args[0] in ("-h", "--help"):
            more = f"vinerl {name} COMMAND --help says more."
            print(f"usage: vinerl {name} COMMAND ...\n\n{known}\n\n{more}")
            return
        if args[0] not in commands:
            raise InputError(f"unknown command {name} {args[0]!r}; there are {', '.join(commands)}")
        kind, do = commands[args[0]]
        do(options.parse(kind, args[1:], f"{name} {args[0]}"))

    return run
