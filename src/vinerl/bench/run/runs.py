"""A run is a folder: manifest, metrics, checkpoints, pictures.

manifest.json    what was run, with what, on which data, and how it ended
metrics.jsonl    what was seen, one object a line
checkpoints/     the last two states; the policies of every save
final.json       every episode of the evaluation at the end
curve.png        success and what goes with it; paths.png: where the policies went
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vinerl import disk
from vinerl.bench.run import configs, manifests
from vinerl.data import repair
from vinerl.data.normalise import Normaliser
from vinerl.data.repair import Box
from vinerl.errors import InputError
from vinerl.rl import learner
from vinerl.rl.learner import AgentConfig, Make
from vinerl.train import checkpoint, evaluate, metrics, offline, stack
from vinerl.types import Obs, Params, Spec


@dataclass(frozen=True)
class Run:
    """A run's folder, to look into."""

    path: Path

    @property
    def manifest(self) -> dict[str, Any]:
        file = self.path / "manifest.json"
        if not file.is_file():
            raise InputError(f"{self.path} holds no run: there is no manifest.json")
        return disk.read_sealed(file, manifests.SCHEMA)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        file = self.path / "metrics.jsonl"
        return metrics.read(file) if file.exists() else []

    @property
    def success(self) -> list[float] | None:
        """Of every member at its last evaluation, where there was one."""
        values = metrics.curve(self.metrics, "eval/success")[1]
        return values[-1].tolist() if len(values) else None

    def checkpoint(self, kind: str, step: int | None = None) -> Path:
        """The newest `kind` ("state" or "policy"), or the one at `step`."""
        cards = sorted((self.path / "checkpoints").glob(f"{kind}-*.json"))
        chosen = [c for c in cards if step is None or c.stem == stem(kind, step)]
        if not chosen:
            there = ", ".join(str(int(c.stem.split("-")[1])) for c in cards) or "none"
            at = "" if step is None else f" of step {step}"
            raise InputError(f"{self.path} has no {kind}{at} in its checkpoints; steps: {there}")
        return chosen[-1].with_suffix("")


class Subject(NamedTuple):
    """Who acts, whatever its parameters are at the moment."""

    config: AgentConfig
    make: Make
    spec: Spec
    members: stack.Member
    normaliser: Normaliser | None
    box: Box | None  # of the data's actions, where they were rescaled

    def agent_of(self, **fixed) -> stack.AgentOf:
        """Agents whose actions are those of the data: what they learned is rescaled back."""
        agent_of = stack.maker(self.make, self.config, self.spec, **fixed)
        if not self.box:
            return agent_of
        low, high = (np.tile(np.float32(x), self.config.act_steps) for x in self.box)

        def rescaled(member):
            agent = agent_of(member)
            act = lambda policy, obs, key: repair.unscale(agent.act(policy, obs, key), low, high)
            return agent._replace(act=act)

        return rescaled

    def see(self, obs: Obs) -> Obs:
        """Observations as the networks take them."""
        return self.normaliser(obs) if self.normaliser else obs


class Trained(NamedTuple):
    """What acting needs of a run, loaded and verified."""

    subject: Subject
    policies: Params  # [S, ...]
    step: int


def load(run: Run, step: int | None = None, agent: str | None = None) -> Trained:
    """At the newest step, or `step`; `agent` is where one of the user's own is now."""
    manifest, path = run.manifest, run.checkpoint("policy", step)
    name = manifests.agent_name(manifest, run.path, agent)
    config, make = manifests.config_of(manifest, name)
    manifests.tell_source(manifest, name)
    spec = manifests.spec_from(manifest["spec"])
    members = stack.members(config, manifest["run"]["seeds"])

    def policy(member):
        agent = stack.maker(make, config, spec)(member)
        return agent.policy(learner.init(agent, stack.keys(member).init))

    like = {"policy": jax.eval_shape(jax.vmap(policy), members)}
    if manifest["run"]["normalise"] == "standard":
        moment = lambda x: jax.ShapeDtypeStruct(x.shape, jnp.float32)
        mean = jax.tree.map(moment, spec.obs)
        like["normaliser"] = Normaliser(mean, mean)._asdict()
    tree = checkpoint.load(path, like)
    normaliser = Normaliser(**tree["normaliser"]) if "normaliser" in tree else None
    actions = manifest["data"].get("actions")
    box = Box(np.array(actions["low"]), np.array(actions["high"])) if actions else None
    subject = Subject(config, make, spec, members, normaliser, box)
    return Trained(subject, tree["policy"], int(checkpoint.card(path)["step"]))


def among(run: Run, trained: Trained, best_of: int) -> Trained:
    """The same, choosing among so many actions. Critics that its policies lack are in the state."""
    subject = trained.subject
    subject = subject._replace(config=replace(subject.config, best_of=best_of))
    agent_of = stack.maker(subject.make, subject.config, subject.spec)
    like = jax.eval_shape(partial(offline.start, agent_of), subject.members)
    policies = evaluate.policies(agent_of)
    if set(jax.eval_shape(policies, like)) <= set(trained.policies):
        return trained._replace(subject=subject)
    state = checkpoint.load(run.checkpoint("state", trained.step), like)
    return trained._replace(subject=subject, policies=jax.device_get(policies(state)))


def otherwise(run: Run, trained: Trained, **asked: Any) -> tuple[Trained, dict[str, Any]]:
    """What acts with another noise, stop_at or best_of than it learned with; None leaves one.

    With it the fields that `Subject.agent_of` is to be given.
    """
    config = trained.subject.config
    fixed = {name: value for name, value in asked.items() if value is not None}
    if not fixed:  # what a run began with is not judged again
        return trained, fixed
    if without := [name for name in fixed if not hasattr(config, name)]:
        raise InputError(f"--{without[0].replace('_', '-')}: this agent's config has no such field")
    configs.check(replace(config, **fixed))
    return (among(run, trained, fixed["best_of"]) if "best_of" in fixed else trained), fixed


def draw(run: Run, manifest: dict[str, Any] | None = None) -> list[Path]:
    """Its pictures, where matplotlib is there to draw them; `manifest` as it will be."""
    try:
        from vinerl.bench.pictures import plots
    except ImportError:
        print("no pictures: matplotlib is not installed (vinerl plot draws them later)")
        return []
    return plots.draw(run, manifest or run.manifest)


def seal(manifest: dict[str, Any]) -> str:
    """The hash that its file carries, by which pictures and tables name a run."""
    return disk.digest(manifest)


def folder(run: Run) -> str:
    """Its folder and the one around it."""
    return "/".join(run.path.resolve().parts[-2:])


def names(several: Sequence[Run]) -> list[str]:
    """The last parts of their paths, as many as tell them apart."""
    paths = [run.path.resolve().parts for run in several]
    for count in range(1, max(map(len, paths)) + 1):
        found = ["/".join(parts[-count:]) for parts in paths]
        if len(set(found)) == len(set(paths)):
            return found
    raise AssertionError("whole paths differ")


def stem(kind: str, step: int) -> str:
    return f"{kind}-{step:09d}"


def title(member: dict[str, Any]) -> str:
    """A member of a manifest in words."""
    kept = {k: v for k, v in member.items() if k not in ("status", "frozen_at")}
    return ", ".join(f"{k} {_short(v)}" for k, v in kept.items())


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def groups(members: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Members that differ in their seed alone, by what tells the groups apart."""
    found: dict[str, list[int]] = {}
    for i, member in enumerate(members):
        found.setdefault(title({k: v for k, v in member.items() if k != "seed"}), []).append(i)
    return found
