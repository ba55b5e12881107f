"""What a job learns from: its dataset, found or made, checked, labelled and standardised."""

from pathlib import Path

import numpy as np

from vinerl.bench import datasets, tasks
from vinerl.bench.jobs import Job
from vinerl.data import normalise
from vinerl.data.fold import Transitions
from vinerl.data.normalise import Normaliser
from vinerl.errors import InputError


def data_of(job: Job) -> tuple[tasks.Source, Transitions, Normaliser | None]:
    """All of it before anything compiles."""
    origin = "as at the beginning" if job.task else "own"
    source = tasks.Source(job.data, origin, {}) if job.data else None
    if job.task and not source:
        source = tasks.find(job.task, job.folder)
        if not source and (job.make_data or job.episodes):
            source = _make_data(job, job.task)
        if not source:
            raise tasks.missing(job.task, job.folder, datasets.advice(job.task.dataset))
    assert source is not None
    print(f"data: {source.path} ({source.origin})", flush=True)
    data = tasks.load(source, job.task)
    _check_horizon(job.config.horizon, data, source.path)
    if job.normalise == "none":
        return source, data, None
    normaliser = normalise.fit(data.obs)
    return source, data._replace(obs=normaliser(data.obs)), normaliser


def _check_horizon(horizon: int, data: Transitions, path: Path) -> None:
    """Only windows inside an episode are learned from: there must be some."""
    lengths = np.diff(np.flatnonzero(np.asarray(data.terminal)), prepend=-1)
    share = np.maximum(lengths - horizon + 1, 0).sum() / len(data.row)
    if share == 0:
        raise InputError(
            f"{path}: no episode is as long as --agent.horizon {horizon} (the longest has "
            f"{lengths.max()} transitions), so there is nothing to learn from"
        )
    if share < 0.9:
        print(f"with horizon {horizon} only {share:.0%} of the transitions are learned from")


def _make_data(job: Job, task: tasks.Task) -> tasks.Source | None:
    """The whole dataset where that was asked for, else the small one of the default job."""
    small = None if job.make_data else job.episodes
    folder = tasks.demo_folder(job.folder) if small else job.folder
    datasets.make_data(datasets.recipe_of(task.dataset, small), folder, job.workers)
    return tasks.find(task, job.folder)
