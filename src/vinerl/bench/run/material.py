"""What a job learns from: its dataset, found or made, checked, labelled and standardised."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vinerl import disk
from vinerl.bench.run import datasets, provenance, tasks
from vinerl.bench.run.jobs import Job
from vinerl.data import files, normalise, repair, shards
from vinerl.data.fold import Transitions
from vinerl.data.normalise import Normaliser
from vinerl.data.repair import Box
from vinerl.data.shards import Shards
from vinerl.errors import InputError


class Material(NamedTuple):
    source: tasks.Source  # a file, or a folder of them
    data: Transitions  # all of it or, of a folder, the first shard
    normaliser: Normaliser | None  # by the statistics of `data`
    turns: Shards | None  # of a folder: what each step learns from
    dropped: int  # rows that were left out
    box: Box | None  # of the actions, where they were rescaled


def data_of(job: Job) -> Material:
    """Everything that can be known, and wrong, before anything compiles."""
    origin = "as at the beginning" if job.task else "own"
    source = tasks.Source(job.data, origin, {}) if job.data else None
    if job.task and not source:
        source = tasks.find(job.task, job.folder) or _large(job.task, job.folder)
        if not source and (job.make_data or job.episodes):
            source = _make_data(job, job.task)
        if not source:
            raise tasks.missing(job.task, job.folder, datasets.advice(job.task.dataset))
    assert source is not None
    _tell(source)
    many = source.path.is_dir()
    if job.origin.get("shard_every") == "flag" and not many:
        raise InputError(f"--shard-every is for a folder of files; {source.path} is one file")
    if job.online_steps and many:
        raise InputError(f"--online-steps goes on from one file; {source.path} is a folder of them")
    paths = shards.find(source.path) if many else [source.path]
    data, dropped, box = _first(job, paths)
    share = _share(job.config.horizon, data, paths[0])
    if share < 0.9:
        horizon = job.config.horizon
        print(f"with horizon {horizon} only {share:.0%} of the transitions are learned from")
    normaliser = None if job.normalise == "none" else normalise.fit(data.obs)
    turns = _turns(job, paths, box, normaliser) if many else None
    return Material(source, _standard(data, normaliser), normaliser, turns, dropped, box)


def facts_of(material: Material) -> dict[str, Any]:
    """What a manifest says of the data."""
    source, data, normaliser, turns, dropped, box = material
    facts = {"path": str(source.path.resolve()), "origin": source.origin, "card": source.facts}
    facts["dropped"] = dropped
    facts["actions"] = box and {"low": box.low.tolist(), "high": box.high.tolist()}
    if not turns:
        return facts | {
            "sha256": disk.sha256(source.path),
            "transitions": len(data.row),
            "episodes": int(data.terminal.sum()),
            "rewarded": int((data.reward == data.reward.max()).sum()),
        }
    listed = [
        {
            "name": path.name,
            "sha256": disk.sha256(path),
            "bytes": path.stat().st_size,
            "transitions": size.transitions,
        }
        for path, size in zip(turns.paths, turns.sizes, strict=True)
    ]
    text = "".join(f"{file['sha256']}  {file['name']}\n" for file in listed)
    return facts | {
        "sha256": hashlib.sha256(text.encode()).hexdigest(),  # as sha256sum lists the folder
        "transitions": sum(size.transitions for size in turns.sizes),
        "episodes": sum(size.episodes for size in turns.sizes),
        "shards": {
            "every": turns.every,
            "seed": turns.seed,
            "normalised_by": turns.paths[0].name if normaliser else None,
            "files": listed,
        },
    }


def check_there(job: Job) -> None:
    """Refuse to go on without the data that a run began with."""
    if job.data and not job.data.exists():
        raise InputError(
            f"{job.data}: there is no such file or folder. "
            f"vinerl resume {job.out} --data FILE says where the data are now"
        )


def check_same(found: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Refuse other data than a run began with."""
    if found["sha256"] == recorded["sha256"]:
        return
    if not ("shards" in found and "shards" in recorded):
        raise InputError(
            f"{found['path']} is not the file this run began with (sha256 {found['sha256'][:12]}.."
            f", the manifest has {recorded['sha256'][:12]}..): put that one back, or say with "
            "--data where it is now"
        )
    now, then = (
        {(f["name"], f["sha256"]) for f in x["shards"]["files"]} for x in (found, recorded)
    )
    names = ", ".join(sorted({name for name, _ in now ^ then}))
    raise InputError(
        f"{found['path']} does not hold the files this run began with: {names} differ or came or "
        "went; put the folder back as it was, or say with --data where it is now"
    )


def _tell(source: tasks.Source) -> None:
    print(f"data: {source.path} ({source.origin})", flush=True)
    if source.passed_over:
        print(f"there is {source.passed_over}, too; the official file is the one used", flush=True)
    made, here = source.facts.get("versions", {}).get("mujoco"), provenance.versions()["mujoco"]
    if made and made != here:
        print(f"the data were made with MuJoCo {made}; evaluation here has {here}", flush=True)


def _first(job: Job, paths: list[Path]) -> tuple[Transitions, int, Box | None]:
    """The first file; of all files the rows that are left out, and the box of their actions.

    What is wrong with any file of one's own is said here, before it has its turn.
    """
    arrays, dropped = tasks.read(paths[0], job.drop_bad_rows)
    box = repair.box_of(arrays) if job.rescale_actions else None
    own = not job.task  # a task's run that is resumed has its data by path, too
    others = paths[1:] if own or job.drop_bad_rows else []
    if others:
        print(f"looking through {len(paths)} files", flush=True)
        shards.alike(paths)
    for path in others:
        found, more = tasks.read(path, job.drop_bad_rows)
        dropped, box = dropped + more, box and box.around(repair.box_of(found))
        if own:
            fitted = repair.box_of(found) if job.rescale_actions else None
            _share(job.config.horizon, tasks.load(found, path, None, fitted), path)
    if job.drop_bad_rows:
        print(f"nothing NaN or infinite is learned from; rows left out: {dropped}", flush=True)
    return tasks.load(arrays, paths[0], job.task, box), dropped, box


def _share(horizon: int, data: Transitions, path: Path) -> float:
    """Only windows inside an episode are learned from: there must be some."""
    lengths = np.diff(np.flatnonzero(np.asarray(data.terminal)), prepend=-1)
    share = np.maximum(lengths - horizon + 1, 0).sum() / len(data.row)
    if share == 0:
        raise InputError(
            f"{path}: no episode is as long as --agent.horizon {horizon} (the longest has "
            f"{lengths.max()} transitions), so there is nothing to learn from"
        )
    return float(share)


def _standard(data: Transitions, normaliser: Normaliser | None) -> Transitions:
    return data._replace(obs=normaliser(data.obs)) if normaliser else data


def _turns(job: Job, paths: list[Path], box: Box | None, by: Normaliser | None) -> Shards:
    def load(path: Path) -> Transitions:
        data = tasks.load(tasks.read(path, job.drop_bad_rows)[0], path, job.task, box)
        _share(job.config.horizon, data, path)
        return _standard(data, by)

    if job.block and job.shard_every % job.block:
        raise InputError(
            f"--block {job.block} must divide {job.shard_every}, the steps on each of the "
            f"{len(paths)} files in {paths[0].parent} (--shard-every)"
        )
    return Shards(load, paths, until=job.steps, every=job.shard_every)


def _large(task: tasks.Task, folder: Path) -> tasks.Source | None:
    """The folder of a hundred files that OGBench has for some datasets."""
    name = task.dataset.removesuffix("-v0") + "-100m-v0"
    for place, origin in ((files.OFFICIAL.expanduser(), "official"), (folder, "unknown")):
        if (place / name).is_dir():
            return tasks.Source(place / name, origin, {})
    return None


def _make_data(job: Job, task: tasks.Task) -> tasks.Source | None:
    """The whole dataset where that was asked for, else the small one of the default job."""
    small = None if job.make_data else job.episodes
    folder = tasks.demo_folder(job.folder) if small else job.folder
    datasets.make_data(datasets.recipe_of(task.dataset, small), folder, job.workers)
    return tasks.find(task, job.folder)
