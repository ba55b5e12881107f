"""What a manifest keeps of a job, as strict JSON, and the job that comes of it again."""

import hashlib
import json
import math
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinerl.agents import AGENTS
from vinerl.bench.run import jobs, provenance, tasks, trackers
from vinerl.bench.run.jobs import Job
from vinerl.data import files
from vinerl.errors import InputError
from vinerl.rl.learner import AgentConfig, Make
from vinerl.train import stack
from vinerl.types import Spec

SCHEMA = 1
ELSEWHERE = 'where its file is now is said by --agent FILE.py:NAME (agent="..." of vinerl.load)'

# Besides the agent, the task and the data.
KEPT = ("seeds", "steps", "eval_every", "eval_episodes", "final_episodes", "log_every")
KEPT += ("save_every", "normalise", "log", "stop_on_bad", "deterministic")
KEPT += ("shard_every", "drop_bad_rows", "rescale_actions")
KEPT += ("pretrain", "online_steps", "utd", "balanced", "online_every")
BEFORE = {"shard_every": 1000, "drop_bad_rows": False, "rescale_actions": False}  # older manifests
BEFORE |= {"pretrain": 0, "online_steps": 0, "utd": "1", "balanced": False, "online_every": 0}


def freeze(value: Any) -> Any:
    """A field of a config as strict JSON; infinity becomes a word, with its sign."""
    if isinstance(value, tuple | list):
        return [freeze(x) for x in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def thaw(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(thaw(x) for x in value)
    return float(value) if value in ("inf", "-inf") else value


def spec_to(spec: Spec) -> dict[str, Any]:
    leaf = lambda x: {"shape": list(x.shape), "dtype": str(np.dtype(x.dtype))}
    return {"obs": jax.tree.map(leaf, spec.obs), "action_dim": spec.action_dim}


def spec_from(saved: dict[str, Any]) -> Spec:
    leaf = lambda x: jax.ShapeDtypeStruct(tuple(x["shape"]), x["dtype"])
    is_leaf = lambda x: isinstance(x, dict) and set(x) == {"shape", "dtype"}
    return Spec(jax.tree.map(leaf, saved["obs"], is_leaf=is_leaf), saved["action_dim"])


def member_of(members: stack.Member, i: int) -> dict[str, Any]:
    """Its seed, and the values of the fields that differ within the stack."""
    varying = {n: v for n, v in members.floats.items() if len(np.unique(np.asarray(v))) > 1}
    values = {n: freeze(as_written(float(v[i]))) for n, v in varying.items()}
    return {"seed": int(members.seed[i])} | values


def as_written(value: float) -> float:
    """The shortest number that float32 has the same value for: 0.3, not 0.30000001192."""
    return float(str(np.float32(value)))


def begin(job: Job, spec: Spec, data: dict[str, Any]) -> dict[str, Any]:
    """Everything that is known when a run begins."""
    config, members = asdict(job.config), stack.members(job.config, job.seeds)
    return {
        "schema": SCHEMA,
        "agent": {"name": job.agent, "config": {k: freeze(v) for k, v in config.items()}},
        "from": job.origin,
        "task": job.task.name if job.task else None,
        "run": {name: freeze(getattr(job, name)) for name in KEPT},
        "members": [member_of(members, i) | {"status": "learning"} for i in range(job.members)],
        "spec": spec_to(spec),
        "data": data,
        "block": job.block,
        "workers": job.workers,
        "exact": provenance.exactness(),
        **_made_with(job),
        "started": now(),
        "resumed": [],
        "ended": None,
    }


def _made_with(job: Job) -> dict[str, Any]:
    own = {"agent_sha256": job.agent_sha256} if job.agent_sha256 else {}
    return own | {
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "source_sha256": provenance.source_hash(),
        "hardware": provenance.hardware(),
    }


def taken_up(manifest: dict[str, Any], job: Job) -> dict[str, Any]:
    """When a run was taken up again, and what is not as it was; said, because it matters.

    Of what an older manifest does not have nothing is known.
    """
    found = _made_with(job)
    changed = {name: x for name, x in found.items() if x != manifest.get(name, x)}
    if changed:
        print(f"not as at the beginning: {', '.join(changed)}; what follows need not be bit-exact")
    if other := changed.get("agent_sha256"):
        print(
            f"{jobs.portable(job.agent)} is not what it was at the beginning (sha256 {other[:12]}.."
            f", then {manifest['agent_sha256'][:12]}..): from here on the run learns by what it is "
            "now"
        )
    return {"at": now()} | changed


def digest(manifest: dict[str, Any]) -> str:
    """What a checkpoint must agree in with the run it is restored into."""
    parts = [manifest["agent"], manifest["run"]["seeds"], manifest["spec"]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def agent_name(manifest: dict[str, Any], folder: Path, given: str | None = None) -> str:
    """The name by which the agent of a run is imported, `given` where its file is elsewhere now.

    What lies in the run's own folder is not executed unless it is given.
    """
    name = manifest["agent"]["name"]
    if given and name in AGENTS and given != name:
        raise InputError(f"--agent {given}: the agent of this run is vinerl's own {name}")
    if given:
        return jobs.lasting(given)
    for file in jobs.sources(name):
        if file.is_relative_to(folder.resolve()):
            raise InputError(
                f"{file} lies in the folder of the run, and what comes with a run is not executed "
                f"unasked: --agent {name} asks for it (agent=... of vinerl.load)"
            )
    return name


def tell_source(manifest: dict[str, Any], name: str) -> None:
    """Say so where the file of an agent is none of those that the run has learned with."""
    parts = (manifest, *manifest.get("resumed", ()))
    known = {part["agent_sha256"] for part in parts if "agent_sha256" in part}
    if known and jobs.agent_hash(name) not in known:
        print(f"{jobs.portable(name)} is another file than the run has learned with, by its sha256")


def config_of(manifest: dict[str, Any], name: str) -> tuple[AgentConfig, Make]:
    """The agent of a run that has begun. A field it knew nothing of has its default."""
    try:
        default, make = jobs.agent(name)
    except InputError as error:
        if name in AGENTS or name != manifest["agent"]["name"]:
            raise
        raise InputError(f"{error}; {ELSEWHERE}") from error
    saved = {name: thaw(value) for name, value in manifest["agent"]["config"].items()}
    if gone := sorted(set(saved) - {f.name for f in fields(default)}):
        began = manifest["agent"]["name"]
        what = "no longer has" if name == began else f"is not {began}: it has no"
        raise InputError(f"{name} {what} {', '.join(gone)}, with which this run began")
    return replace(default, **saved), make


def again(
    manifest: dict[str, Any],
    path: Path,
    steps: int | None,
    stack: int = 0,
    online_steps: int | None = None,
    workers: int | None = None,
    data: Path | None = None,
    agent: str | None = None,
) -> Job:
    """The job of a run that has begun. It may grow, and its stack may be divided otherwise.

    It has the processes it began with, unless there are fewer cores now or others are asked for.
    `data` and `agent` say where these are now, if they have moved.
    """
    kept: dict[str, Any] = {name: thaw((BEFORE | manifest["run"])[name]) for name in KEPT}
    trackers.check(kept["log"])
    if stack < 0:
        raise InputError(f"--stack {stack}: expected a whole number, 0 or more")
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: expected a whole number, 1 or more")
    if steps not in (None, kept["steps"]) and kept["online_steps"]:
        raise InputError(
            f"--steps {steps}: this run went online after {kept['steps']} gradient steps, which "
            "cannot be undone; --online-steps N lengthens what came then"
        )
    if online_steps is not None and not kept["online_steps"]:
        raise InputError(
            f"--online-steps {online_steps}: this run has no online phase; one is begun with "
            "vinerl train --online-steps"
        )
    _grow(kept, "steps", steps, manifest["block"] or 1)
    _grow(kept, "online_steps", online_steps, kept["online_every"])
    name = agent_name(manifest, path, agent)
    config, make = config_of(manifest, name)
    then = manifest.get("workers")
    return Job(
        **kept,
        agent=name,
        agent_sha256=jobs.agent_hash(name),
        config=config,
        make=make,
        task=tasks.named(manifest["task"]) if manifest["task"] else None,
        data=Path(data or manifest["data"]["path"]),
        block=manifest["block"],
        stack=stack,
        workers=workers or (then and min(then, provenance.cores())),
        folder=files.folder(None),
        out=path,
        numbered=False,
        make_data=False,
        episodes=None,
        origin=manifest["from"],
    )


def _grow(kept: dict[str, Any], name: str, wanted: int | None, block: int) -> None:
    """Lengthen what is kept of a run, by whole blocks."""
    if wanted is None:
        return
    flag = f"--{name.replace('_', '-')} {wanted}"
    if wanted < kept[name]:
        raise InputError(f"{flag}: this run has {kept[name]}; it can only grow")
    if wanted % block:
        raise InputError(f"{flag}: this run goes in blocks of {block}")
    kept[name] = wanted


def differences(one: dict[str, Any], other: dict[str, Any], above: str = "") -> list[str]:
    """Leaves of two trees that are not the same, by name."""
    parts = []
    for name in sorted({*one, *other}):
        a, b = one.get(name), other.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            parts += differences(a, b, f"{above}{name}.")
        elif a != b:
            parts.append(f"{above}{name} ({a} and {b})")
    return parts


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
