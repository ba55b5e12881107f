"""The runs a study looks at: those it is given, or the default job with each sampler."""

from collections.abc import Sequence
from pathlib import Path

from vinerl.bench.plans.entries import ended
from vinerl.bench.run import jobs, running
from vinerl.bench.run.jobs import Request
from vinerl.bench.run.runs import Run, groups

RUNS = Path("runs/samplers")
SAMPLERS = ("vine", "euler")
MINUTES = 5  # that the default job takes on two cores


def cost(given: Sequence[Path], at: Path = RUNS) -> str:
    missing = [] if given else [s for s in SAMPLERS if not ended(at / s)]
    if not missing:
        return "no training"
    minutes = MINUTES * len(missing)
    return f"the default job with {' and '.join(missing)}: about {minutes} minutes on two cores"


def members(run: Run, name: str) -> list[str]:
    """Of each member the run's name, and what tells it from others of its stack but its seed."""
    told = groups(run.manifest["members"])
    setting = {i: title for title, several in told.items() for i in several}
    return [", ".join(filter(None, (name, setting[i]))) for i in range(len(setting))]


def chosen(given: Sequence[Path], folder: Path | None, at: Path = RUNS) -> list[Run]:
    """The given ones, else the default job's in `at`: begun, gone on with, or there already."""
    return [Run(path) for path in given] or [_default(s, at / s, folder) for s in SAMPLERS]


def _default(sampler: str, path: Path, folder: Path | None) -> Run:
    if ended(path):
        return Run(path)
    if (path / "manifest.json").exists():
        return running.resume(path)
    request = Request(fields={"sampler": sampler}, dir=folder, out=path)
    return running.train(jobs.resolve(request))
