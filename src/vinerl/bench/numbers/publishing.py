"""From a run to what is published of it.

results/TASK/NAME/                           its manifest and metrics
results/seeds/TASK/AGENT-RECIPE/seed-N.json  what tables are made from

Folders of the machine and the version of its system are left out of both.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from vinerl import disk
from vinerl.bench.numbers.results import SCHEMA, completed, digest, read, recipe_of, where
from vinerl.bench.run import jobs, runs, tasks
from vinerl.bench.run.runs import Run
from vinerl.envs import ogbench
from vinerl.errors import InputError
from vinerl.train import metrics

SERIES = ("actor/bc", "actor/spread", "actor/estimate_max", "critic/q", "grad_norm/actor_max")
IDENTITY = ("agent", "task", "data", "source_sha256", "started")  # a run keeps them to its end
NAME = re.compile(r"\w[\w.-]*")  # of a folder beside others
ABSOLUTE = re.compile(r"(?<![\w.])/[\w.-]+|\b[A-Za-z]:\\")


def publish(
    run: Run,
    folder: Path,
    unfinished: bool = False,
    name: str | None = None,
    rest: bool = False,
) -> list[Path]:
    """A file for every member, and the folder; of a run that has not ended only when asked.

    What is there already, word for word, is left as it is; where another run is there, nothing is
    written, or the `rest`: members that nobody has published, and the folder under a free name.
    """
    manifest, lines = trimmed(run.manifest), run.metrics
    if not manifest["task"] or not len(metrics.curve(lines, "eval/success")[0]):
        raise InputError(f"{run.path} has no task or was never evaluated: there is nothing to tell")
    if not manifest["ended"] and not unfinished:
        raise InputError(f"{run.path} has not ended; --unfinished publishes what there is")
    ogbench.check_task(manifest["task"])
    if name is not None and not NAME.fullmatch(name):
        raise InputError(f"--name {name}: expected letters, digits and .-_")
    task = tasks.short(manifest["task"])
    own = run.path.resolve().name.removeprefix(f"{task}-").removesuffix(f"-{task}")
    raw = _place(folder / task / (name or own), manifest, rest)
    files = {folder / "seeds" / at: facts for at, facts in _seeds(manifest, lines, raw.name)}
    _check_plain([manifest, lines, *files.values()], run)
    if others := _published(files, folder):
        if not rest:
            first, *_ = others.values()
            raise InputError(f"{first} is there already: this seed of this recipe is published")
        files = _unpublished(files, others, run)
    raw.mkdir(parents=True, exist_ok=True)
    disk.write(raw / "metrics.jsonl", (run.path / "metrics.jsonl").read_bytes())
    disk.write_sealed(raw / "manifest.json", manifest)
    for path, facts in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_sealed(path, facts)
    return [*files, raw]


def _place(raw: Path, manifest: dict[str, Any], numbered: bool) -> Path:
    """The folder; where another run is there, one with a number behind it, or none."""
    found, number = raw, 1
    while _holds_another(found, manifest):
        if not numbered:
            raise InputError(f"{raw} holds another run; give this one a --name of its own")
        number += 1
        found = raw.with_name(f"{raw.name}-{number}")
    return found


def _holds_another(raw: Path, manifest: dict[str, Any]) -> bool:
    if not (raw / "manifest.json").exists():
        return False
    there = Run(raw).manifest
    seeds = there["run"]["seeds"] != manifest["run"]["seeds"]
    return seeds or any(there[part] != manifest[part] for part in IDENTITY)


def _published(files: dict[Path, Any], folder: Path) -> dict[Path, Path]:
    """By file, where another run's seed of that recipe is, whatever version wrote it."""
    there = {(digest(seed.recipe), seed.seed): seed.path for seed in read(folder)}
    same = {at: there.get((digest(completed(x["recipe"])), x["seed"])) for at, x in files.items()}
    return {
        at: path
        for at, path in same.items()
        if path is not None and disk.read_sealed(path, SCHEMA) != files[at]
    }


def _unpublished(files: dict[Path, Any], others: dict[Path, Path], run: Run) -> dict[Path, Any]:
    """Without seeds of other runs; said, as they were measured."""
    new = {path: facts for path, facts in files.items() if path not in others}
    if not new:
        raise InputError(f"{run.path}: every member is published already")
    of = f"{len(others)} of {len(files)} members"
    print(f"{run.path}: {of} are published already and stay as they are", flush=True)
    return new


def trimmed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Without what tells of the machine: folders, and its system's version."""
    facts = copy.deepcopy(manifest)
    facts["agent"]["name"] = jobs.portable(facts["agent"]["name"])
    facts["data"]["path"] = _name(facts["data"]["path"])
    facts["run"].pop("out", None)
    for part in (facts, *facts["resumed"]):
        if "hardware" in part:
            part["hardware"]["platform"] = part["hardware"]["platform"].partition("-")[0]
    return facts


def _name(path: str) -> str:
    """The last part, whichever system it comes from."""
    return (PureWindowsPath if "\\" in path else PurePosixPath)(path).name


def _check_plain(trees: list[Any], run: Run) -> None:
    for words in _words(trees):
        if found := ABSOLUTE.search(words):
            raise InputError(f"{run.path} is not published: it tells of {found[0]} on this machine")


def _words(tree: Any) -> Iterator[str]:
    """Every string in a tree, keys too."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield name
            yield from _words(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _words(value)
    elif isinstance(tree, str):
        yield tree


def _seeds(
    manifest: dict[str, Any], lines: list[dict[str, Any]], name: str
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Of every member its place and its facts."""
    at, success = metrics.curve(lines, "eval/success")
    whole = manifest["run"]["steps"] + manifest["run"].get("online_steps", 0)
    steps = whole if manifest["ended"] else int(at[-1])
    quiet = metrics.curve(lines, "eval/success_noise0")[1]  # nothing, if the agent has no noise
    # The last evaluation of a run that has ended is the final one: where all members are frozen it
    # comes early, and counts for all steps that are left.
    ended = bool(manifest["ended"] and manifest["run"]["final_episodes"])
    way = len(at) - ended
    for i, member in enumerate(manifest["members"]):
        recipe = recipe_of(manifest, member, steps)
        final = {"step": steps, "success": float(success[-1, i])}
        final |= {"success_noise0": float(quiet[-1, i])} if len(quiet) else {}
        facts = {
            "schema": SCHEMA,
            "recipe": recipe,
            "seed": member["seed"],
            "status": {k: member[k] for k in ("status", "frozen_at") if k in member},
            "curve": {"step": at[:way].tolist(), "success": success[:way, i].tolist()},
            "final": final if ended else None,
            "metrics": _metrics(lines, i),
            "provenance": _provenance(name, manifest),
        }
        yield where(recipe) / f"seed-{member['seed']}.json", facts


def _metrics(lines: list[dict[str, Any]], i: int) -> dict[str, Any]:
    """One member's series, and the gradient at each denoising step when it was last looked at."""
    series = {name: metrics.curve(lines, name) for name in SERIES}
    told: dict[str, Any] = {
        name: {"step": x.tolist(), "value": [_short(v) for v in y[:, i]]}
        for name, (x, y) in series.items()
        if len(x)
    }
    if arriving := [line["grad_norm/step"][i] for line in lines if "grad_norm/step" in line]:
        told["grad_norm/step"] = [_short(v) for v in arriving[-1]]
    return told


def _provenance(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": name,
        "manifest": runs.seal(manifest),
        "data_sha256": manifest["data"]["sha256"],
        "device": manifest["hardware"]["device"],
        **{k: manifest[k] for k in ("commit", "source_sha256", "versions", "exact")},
        **{k: manifest[k] for k in ("started", "ended")},
    }


def _short(value: float) -> float | None:
    """Four digits, and nothing that JSON does not have."""
    return float(f"{value:.4g}") if np.isfinite(value) else None
