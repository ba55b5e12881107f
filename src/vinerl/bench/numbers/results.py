"""Published results: one small file for each finished seed, from which every table is rebuilt.

results/seeds/TASK/AGENT-RECIPE/seed-N.json

A recipe is everything that two seeds must share to be averaged; RECIPE is the beginning of its
hash. What may differ (commit, JAX, hash of the data) is kept beside the numbers and listed with
them.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vinerl import disk
from vinerl.agents import AGENTS
from vinerl.bench.numbers.stats import bootstrap
from vinerl.bench.run import jobs, manifests, tasks
from vinerl.envs import ogbench
from vinerl.errors import InputError

SCHEMA = 1
ONLINE = ("online_steps", "utd", "balanced", "online_every")
HOW = ("unroll", "fused")  # fields of a config that say how to compute, and not what


class Seed(NamedTuple):
    """One file."""

    path: Path
    recipe: dict[str, Any]
    seed: int
    facts: dict[str, Any]  # curve, final, metrics, provenance, status

    @property
    def score(self) -> float:
        """Success in the evaluation at the end, else in the last one on the way."""
        final = self.facts["final"]
        return final["success"] if final else self.facts["curve"]["success"][-1]


class Cell(NamedTuple):
    """Seeds of one recipe."""

    recipe: dict[str, Any]
    seeds: list[Seed]

    @property
    def scores(self) -> np.ndarray:
        return np.array([seed.score for seed in self.seeds])

    def mean(self) -> tuple[float, float, float]:
        """And its 95% interval over seeds."""
        low, high = bootstrap(self.scores)
        return float(self.scores.mean()), float(low), float(high)

    def differing(self) -> dict[str, list[str]]:
        """What differs between seeds that are averaged all the same."""
        told = [seed.facts["provenance"] for seed in self.seeds]
        values = {
            "commit": {x["commit"][:7] for x in told},
            "jax": {x["versions"]["jax"] for x in told},
            "data": {x["data_sha256"][:12] for x in told},
        }
        return {name: sorted(found) for name, found in values.items() if len(found) > 1}


def digest(recipe: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()


def recipe_of(manifest: dict[str, Any], member: dict[str, Any], steps: int) -> dict[str, Any]:
    """What a member of a run shares with those it may be averaged with."""
    data, config = manifest["data"], dict(manifest["agent"]["config"])
    own = {k: v for k, v in member.items() if k in config}
    config |= {k: manifests.as_written(v) if isinstance(v, float) else v for k, v in own.items()}
    card = data["card"]
    made = {"recipe": card["recipe"], "mujoco": card["versions"]["mujoco"]} if card else {}
    return {
        "task": manifest["task"],
        "data": made or {"origin": data["origin"], "sha256": data["sha256"]},
        "simulator": {name: manifest["versions"][name] for name in ("mujoco", "ogbench")},
        "protocol": {
            n: manifest["run"][n] for n in ("eval_episodes", "final_episodes", "normalise")
        },
        "agent": {
            "name": manifest["agent"]["name"],
            "config": {k: v for k, v in config.items() if k not in HOW},
        }
        | own_file(manifest.get("agent_sha256")),
        "steps": steps,
    } | beside_training(manifest["run"])


def own_file(sha256: str | None) -> dict[str, str]:
    """What tells an agent of one's own from another one of that name: the hash of its file."""
    return {"sha256": sha256} if sha256 else {}


def beside_training(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a run does before and after its offline training, if anything."""
    online = {n: run[n] for n in ONLINE if run.get("online_steps")}
    return {n: how for n, how in (("pretrain", run.get("pretrain", 0)), ("online", online)) if how}


def where(recipe: dict[str, Any]) -> Path:
    agent = recipe["agent"]["name"].rpartition(":")[2]
    return Path(tasks.short(recipe["task"])) / f"{agent}-{digest(recipe)[:8]}"


def read(folder: Path) -> list[Seed]:
    """Every seed below a folder; a file that is not what its name says is refused."""
    found: dict[tuple[str, int], Path] = {}
    seeds = []
    for path in sorted((folder / "seeds").glob("**/*.json")):
        facts = disk.read_sealed(path, SCHEMA)
        recipe, seed = facts.pop("recipe"), facts.pop("seed")
        ogbench.check_task(recipe["task"])
        whole = completed(recipe)
        if (twin := found.get((digest(whole), seed))) is not None:
            raise InputError(f"{path} and {twin} are the same seed of the same recipe; remove one")
        expected = folder / "seeds" / where(recipe) / f"seed-{seed}.json"
        if path != expected:
            raise InputError(f"{path}: by its recipe and seed it belongs at {expected}")
        found[digest(whole), seed] = path
        seeds.append(Seed(path, whole, seed, facts))
    return seeds


def completed(recipe: dict[str, Any]) -> dict[str, Any]:
    """With fields that the agent has got since, at their defaults: what was done before."""
    name, config = recipe["agent"]["name"], recipe["agent"]["config"]
    if name not in AGENTS:
        return recipe
    usual = {k: manifests.freeze(v) for k, v in vars(AGENTS[name][0]).items() if k not in HOW}
    return recipe | {"agent": {"name": name, "config": usual | config}}


def cells(seeds: Iterable[Seed]) -> list[Cell]:
    """Seeds of the same recipe together, in the order of their files."""
    found: dict[str, Cell] = {}
    for seed in seeds:
        found.setdefault(digest(seed.recipe), Cell(seed.recipe, [])).seeds.append(seed)
    return list(found.values())


def together(seeds: Sequence[Seed]) -> Cell:
    """One cell of exactly these seeds; refused, with what differs, if their recipes are not one."""
    for seed in seeds[1:]:
        if seed.recipe != seeds[0].recipe:
            what = ", ".join(manifests.differences(seeds[0].recipe, seed.recipe))
            raise InputError(
                f"{seeds[0].path} and {seed.path} are not averaged, their recipes differ: {what}"
            )
    return Cell(seeds[0].recipe, list(seeds))


def label(recipe: dict[str, Any]) -> str:
    """The agent, and the fields in which its config is not the one its task would get."""
    name, config = recipe["agent"]["name"], recipe["agent"]["config"]
    if name not in AGENTS:
        return f"{name} {digest(recipe)[:8]}"
    known = jobs.usual(name, tasks.named(recipe["task"])).items()
    usual = {k: manifests.freeze(v) for k, v in known} | {"precision": config["precision"]}
    changed = {k: v for k, v in config.items() if k not in usual or usual[k] != v}
    return " ".join([name, *(f"{k}={v}" for k, v in changed.items())])


def data_seed(recipe: dict[str, Any]) -> int:
    """Of the episodes that were made; official data count as 0."""
    return recipe["data"].get("recipe", {}).get("seed", 0)


def normalised(recipe: dict[str, Any]) -> str | None:
    """How observations were normalised, where it is not as the task would have it."""
    how = recipe["protocol"]["normalise"]
    usual = jobs.usual_normalise(recipe["agent"]["name"], tasks.named(recipe["task"]))
    return how if how != usual else None


def which_data(recipe: dict[str, Any]) -> str:
    """Words to put behind a name, where the data are not the usual ones."""
    seed, how = data_seed(recipe), normalised(recipe)
    words = [f"data seed {seed}"] if seed else []
    words += [f"normalise {how}"] if how else []
    return "".join(f", {word}" for word in words)


def name(recipe: dict[str, Any]) -> str:
    also = [word for word in ("pretrain", "online") if word in recipe]
    return label(recipe) + which_data(recipe) + "".join(f", {word}" for word in also)


def names(found: Sequence[Cell]) -> list[str]:
    """Of each cell; with its precision where a task has that name in several, and with the hash of
    its recipe where even so it is there twice."""
    about = [(c.recipe["task"], c.recipe["steps"], name(c.recipe)) for c in found]
    precise = [precision(cell.recipe) for cell in found]
    count = Counter(one for one, _ in set(zip(about, precise, strict=True)))
    told = [
        f"{one[-1]}, {how}" if count[one] > 1 else one[-1]
        for one, how in zip(about, precise, strict=True)
    ]
    again = Counter(zip(about, told, strict=True))
    return [
        f"{words} ({digest(cell.recipe)[:8]})" if again[one, words] > 1 else words
        for cell, one, words in zip(found, about, told, strict=True)
    ]


def length(steps: int) -> str:
    return f"{steps // 1_000_000}M" if steps % 1_000_000 == 0 else f"{steps / 1000:g}k"


def precision(recipe: dict[str, Any]) -> str:
    return recipe["agent"]["config"]["precision"]


def table(seeds: Sequence[Seed]) -> list[tuple[str, ...]]:
    """A row a cell, with what differs between the seeds in it."""
    rows = [("task", "agent", "steps", "seeds", "success", "differing")]
    found = sorted(cells(seeds), key=lambda c: (c.recipe["task"], c.recipe["steps"]))
    for cell, called in zip(found, names(found), strict=True):
        mean, low, high = cell.mean()
        told = "; ".join(f"{k} {', '.join(v)}" for k, v in cell.differing().items())
        ended = all(seed.facts["final"] for seed in cell.seeds)
        rows.append(
            (
                str(where(cell.recipe).parent),
                called,
                length(cell.recipe["steps"]),
                str(len(cell.seeds)),
                f"{mean:.3f} [{low:.3f}, {high:.3f}]",
                "; ".join(filter(None, ("" if ended else "no final evaluation", told))),
            )
        )
    return rows
