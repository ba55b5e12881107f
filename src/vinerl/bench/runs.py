"""A run is a folder: manifest, metrics, checkpoints, pictures.

manifest.json    what was run, with what, on which data, and how it ended
metrics.jsonl    what was seen, one object a line
checkpoints/     the last two states; the policies of every evaluation
final.json       every episode of the evaluation at the end
curve.png        success and what goes with it; paths.png: where the policies went
"""

import json
import math
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinerl.bench import jobs, provenance, tasks, trackers
from vinerl.bench.jobs import Job
from vinerl.bench.progress import Progress, duration
from vinerl.collect import make as collecting
from vinerl.collect import mazes
from vinerl.data import files, normalise
from vinerl.data.fold import Transitions
from vinerl.data.normalise import Normaliser
from vinerl.envs.pool import Pool, Report
from vinerl.errors import InputError
from vinerl.rl import learner
from vinerl.train import checkpoint, evaluate, loop, metrics, offline, stack
from vinerl.types import Params, Spec

SCHEMA = 1
LANES = 10  # environments of one member that are stepped together


@dataclass(frozen=True)
class Run:
    """A run's folder, to look into."""

    path: Path

    @property
    def manifest(self) -> dict[str, Any]:
        file = self.path / "manifest.json"
        try:
            manifest = json.loads(file.read_text())
        except FileNotFoundError as error:
            raise InputError(f"{self.path} holds no run: there is no manifest.json") from error
        except ValueError as error:
            raise InputError(f"{file} is damaged: {error}") from error
        if manifest.get("schema") != SCHEMA:
            raise InputError(f"{file}: schema {manifest.get('schema')}, this reads {SCHEMA}")
        return manifest

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
        chosen = [c for c in cards if step is None or c.stem == _stem(kind, step)]
        if not chosen:
            at = "" if step is None else f" of step {step}"
            raise InputError(f"{self.path} has no {kind}{at} in its checkpoints")
        return chosen[-1].with_suffix("")

    def agent(self) -> tuple[Any, learner.Make, Spec]:
        """Config, maker and spec, as the manifest has them."""
        saved = self.manifest
        default, make = jobs.agent(saved["agent"]["name"])
        config = type(default)(**{k: _thaw(v) for k, v in saved["agent"]["config"].items()})
        return config, make, spec_from(saved["spec"])


def train(job: Job) -> Run:
    """Do a job: data, training, evaluation, pictures."""
    if warning := provenance.unseen_gpu():
        print(warning)
    source, data, normaliser = prepare(job)
    return _Running(job, source, data, normaliser).run()


def prepare(job: Job) -> tuple[tasks.Source, Transitions, Normaliser | None]:
    """The dataset, found or made, checked and labelled; all of it before anything compiles."""
    if job.task:
        source = tasks.find(job.task, job.folder)
        if not source and job.make_episodes:
            source = _make_data(job, job.task, job.make_episodes)
        if not source:
            raise tasks.missing(job.task, job.folder)
    else:
        assert job.data
        source = tasks.Source(job.data, "own", {})
    print(f"data: {source.path} ({source.origin})", flush=True)
    data = tasks.load(source, job.task)
    if len(data.row) < job.config.horizon:
        raise InputError(f"{source.path}: {len(data.row)} transitions, fewer than the horizon")
    if job.normalise == "none":
        return source, data, None
    normaliser = normalise.fit(data.obs)
    return source, data._replace(obs=normaliser(data.obs)), normaliser


def _make_data(job: Job, task: tasks.Task, episodes: int) -> tasks.Source | None:
    recipe = mazes.pointmaze(task.dataset, episodes)
    bar = Progress("making data", recipe.episodes + recipe.validation)
    try:
        folder = tasks.demo_folder(job.folder)
        processes = job.workers or provenance.cores()
        collecting.make(recipe, folder, processes, lambda done, _: bar.update(done))
    finally:
        bar.close()
    return tasks.find(task, job.folder)


class _Running:
    """A job under way."""

    def __init__(
        self, job: Job, source: tasks.Source, data: Transitions, normaliser: Normaliser | None
    ):
        self.job, self.normaliser = job, normaliser
        self.spec = spec_of(data, job.config)
        self.agent_of = stack.maker(job.make, job.config, self.spec)
        self.members = stack.members(job.config, job.seeds)
        self.data = jax.device_put(data)
        self.folder = job.out
        (self.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        self.manifest = self._manifest(source, data)
        self._save_manifest()
        chosen = [trackers.TRACKERS[name] for name in job.log]
        self.track = [make(self.folder, self.manifest) for make in chosen]
        self.evaluator = None
        if job.task:
            self.evaluator = Evaluator(
                job, self.agent_of, self.members, self.spec, normaliser, beside=True
            )

    def run(self) -> Run:
        job = self.job
        try:
            final = self._train()
            if self.evaluator:
                self._final(final)
        finally:
            if self.evaluator:
                self.evaluator.close()
        self.manifest["ended"] = _now()
        self._save_manifest()
        run = Run(job.out)
        _draw(run)
        _tell(run)
        return run

    def _train(self) -> loop.Moment:
        job = self.job
        begin = offline.start(self.agent_of, self.members)
        block = offline.train_block(self.agent_of)
        limit = loop.interval(job.steps, job.log_every, job.eval_every)
        print(f"{job.agent}: {job.members} member(s), {job.steps} steps; compiling", flush=True)
        length = job.block or loop.choose(block, begin, self.data, limit)
        if limit % length:
            raise InputError(f"--block {length} does not divide {limit}, what the intervals share")
        self.manifest["block"] = length
        self._save_manifest()

        bar = Progress("training", job.steps)
        moment = None
        for moment in loop.fit(
            self.agent_of,
            block,
            begin,
            self.data,
            steps=job.steps,
            length=length,
            log_every=job.log_every,
        ):
            if moment.metrics is not None:
                self._log(moment.step, moment.metrics)
            self._mark(moment)
            due = job.eval_every and moment.step % job.eval_every == 0
            if due and moment.step < job.steps:
                self._save(moment)
                if self.evaluator:
                    self._collect(wait=True)
                    self.evaluator.start(moment.step, self._policies(moment.stack))
            if self.evaluator:
                self._collect(wait=False)
            bar.update(moment.step, self._note(moment))
        bar.close()
        assert moment
        self._save(moment)
        if self.evaluator:
            self._collect(wait=True)
        return moment

    def _collect(self, wait: bool) -> None:
        """Write down an evaluation that ran beside the training, once it is done."""
        assert self.evaluator
        if done := self.evaluator.result(wait):
            step, reports = done
            self._log(step, {"eval/success": successes(reports)})

    def _final(self, moment: loop.Moment) -> None:
        assert self.evaluator
        policies = self._policies(moment.stack)
        found = self.evaluator.final(moment.step, policies, self.job.final_episodes)
        self._log(moment.step, {name: successes(reports) for name, reports in found.items()})
        save_reports(self.folder / "final.json", found, self.evaluator.facts)

    def _policies(self, runs: offline.Stack) -> Params:
        return evaluate.policies(self.agent_of)(runs)

    def _save(self, moment: loop.Moment) -> None:
        """The state to go on from, and the policies to act with."""
        folder, step = self.folder / "checkpoints", moment.step
        tree = {"policy": self._policies(moment.stack)}
        if self.normaliser:
            tree["normaliser"] = self.normaliser._asdict()
        checkpoint.save(folder / _stem("policy", step), tree, step=step)
        checkpoint.save(folder / _stem("state", step), moment.stack, step=step)
        for old in sorted(folder.glob("state-*.json"))[:-2]:
            old.unlink()
            old.with_suffix(".safetensors").unlink()

    def _log(self, step: int, found: dict[str, Any]) -> None:
        metrics.write(self.folder / "metrics.jsonl", step, found)
        for track in self.track:
            track(step, found)

    def _mark(self, moment: loop.Moment) -> None:
        """Say and record which members have been frozen."""
        for i, status in enumerate(np.asarray(moment.stack.status).tolist()):
            member = self.manifest["members"][i]
            if status and member["status"] == "learning":
                member["status"] = offline.STATUS[status]
                member["frozen_at"] = int(moment.stack.state.step[i])
                print(f"member {i} ({_title(member)}) is frozen: {member['status']}", flush=True)
                self._save_manifest()
                if self.job.stop_on_bad:
                    raise InputError(f"--stop-on-bad: member {i} is {member['status']}")

    def _note(self, moment: loop.Moment) -> str:
        latest = self.evaluator.latest if self.evaluator else None
        return f"success {np.mean(latest[1]):.2f} at {latest[0]}" if latest else ""

    def _manifest(self, source: tasks.Source, data: Transitions) -> dict[str, Any]:
        job, config = self.job, asdict(self.job.config)
        return {
            "schema": SCHEMA,
            "agent": {"name": job.agent, "config": {k: _freeze(v) for k, v in config.items()}},
            "from": job.origin,
            "task": job.task.name if job.task else None,
            "run": {
                "steps": job.steps,
                "eval_every": job.eval_every,
                "eval_episodes": job.eval_episodes,
                "final_episodes": job.final_episodes,
                "log_every": job.log_every,
                "normalise": job.normalise,
                "seeds": list(job.seeds),
            },
            "members": [
                member_of(self.members, i) | {"status": "learning"} for i in range(job.members)
            ],
            "spec": spec_to(self.spec),
            "data": {
                "path": str(source.path),
                "origin": source.origin,
                "sha256": files.sha256(source.path),
                "transitions": len(data.row),
                "episodes": int(data.terminal.sum()),
                "rewarded": int((data.reward == data.reward.max()).sum()),
                "card": source.facts,
            },
            "versions": provenance.versions(),
            "commit": provenance.commit(),
            "source_sha256": provenance.source_hash(),
            "hardware": provenance.hardware(),
            "started": _now(),
            "ended": None,
        }

    def _save_manifest(self) -> None:
        text = json.dumps(self.manifest, indent=1, allow_nan=False)
        files.write(self.folder / "manifest.json", text.encode())


class Evaluator:
    """Rollouts of all members in worker processes, beside the training where cores allow."""

    def __init__(
        self,
        job: Job,
        agent_of: stack.AgentOf,
        members: stack.Member,
        spec: Spec,
        normaliser: Normaliser | None,
        beside: bool,
    ):
        assert job.task
        count, cores = job.members, provenance.cores()
        self.job, self.spec, self.normaliser, self.members = job, spec, normaliser, members
        lanes = min(LANES, max(job.eval_episodes, job.final_episodes))
        self.pool = Pool(job.task.env, count * lanes, job.workers or cores)
        self.facts = self.pool.describe()
        self.act = evaluate.acting(agent_of)
        quiet = hasattr(job.config, "noise")
        make = partial(stack.maker, job.make, job.config, spec)
        self.quiet = evaluate.acting(make(noise=0.0)) if quiet else None
        # A GPU works off one block after the other, so beside the training the CPU acts.
        self.cpu = jax.devices("cpu")[0]
        self.thread = ThreadPoolExecutor(1) if beside and cores > 2 else None
        self.pending: tuple[int, Future] | None = None
        self.done: tuple[int, list[list[Report]]] | None = None
        self.latest: tuple[int, np.ndarray] | None = None

    def start(self, step: int, policies: Params) -> None:
        """Evaluate the policies of `step`; the result is to be collected later."""
        if self.thread:
            members, policies = jax.device_put((self.members, policies), self.cpu)
            work = partial(self._reports, self.act, members, policies, step, self._episodes())
            self.pending = step, self.thread.submit(work)
        else:
            episodes = self._episodes()
            self.done = step, self._reports(self.act, self.members, policies, step, episodes)

    def result(self, wait: bool) -> tuple[int, list[list[Report]]] | None:
        """Step and reports of the evaluation that was started, once."""
        if self.pending and (wait or self.pending[1].done()):
            self.done = self.pending[0], self.pending[1].result()
            self.pending = None
        done, self.done = self.done, None
        if done:
            self.latest = done[0], successes(done[1])
        return done

    def final(self, step: int, policies: Params, episodes: int) -> dict[str, list[list[Report]]]:
        """Reports with the sampler's noise and, where an agent has any, without."""
        ways = {"eval/success": self.act, "eval/success_noise0": self.quiet}
        found, count = {}, episodes * self.job.members
        for name, act in ways.items():
            if act:
                print(f"evaluating: {count} episodes ({name})", flush=True)
                found[name] = self._reports(act, self.members, policies, step, episodes)
        return found

    def close(self) -> None:
        if self.thread:
            self.thread.shutdown()
        self.pool.close()

    def _episodes(self) -> int:
        return self.job.eval_episodes

    def _reports(self, act, members, policies, step: int, episodes: int) -> list[list[Report]]:
        return evaluate.rollouts(
            partial(act, members, policies, np.int32(step)),
            self.pool,
            self.job.members,
            evaluate.start_seeds(step, episodes),
            self.job.config.horizon if self.job.config.chunk else 1,
            self.spec.obs,
            self.normaliser,
        )


def successes(reports: list[list[Report]]) -> np.ndarray:
    """Share of successful episodes of each member, [S]."""
    return np.array([np.mean([r.success for r in member]) for member in reports])


def save_reports(path: Path, found: dict[str, list[list[Report]]], facts: dict) -> None:
    """Every episode: success, return, length; paths of a few, for the picture."""
    rounded = lambda path: np.round(path, 3).tolist()
    short = lambda r, i: {
        "success": r.success,
        "return": sum(r.rewards),
        "length": len(r.rewards),
        "path": rounded(r.path) if i < LANES else [],
        "rewards": r.rewards if i < LANES and not r.path else [],
    }
    episodes = {
        name: [[short(r, i) for i, r in enumerate(member)] for member in reports]
        for name, reports in found.items()
    }
    text = json.dumps({"environment": facts, "episodes": episodes}, allow_nan=False)
    files.write(path, text.encode())


def spec_of(data: Transitions, config: learner.AgentConfig) -> Spec:
    shape = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    floats = jax.tree.map(lambda x: x if x.dtype == np.uint8 else x.astype(np.float32), data.obs)
    chunk = config.horizon if config.chunk else 1
    return Spec(jax.tree.map(shape, floats), data.action.shape[1] * chunk)


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
    return {"seed": int(members.seed[i])} | {n: float(v[i]) for n, v in varying.items()}


def _title(member: dict[str, Any]) -> str:
    kept = {k: v for k, v in member.items() if k not in ("status", "frozen_at")}
    return ", ".join(f"{k} {v:g}" for k, v in kept.items())


def _draw(run: Run) -> None:
    try:
        from vinerl.bench import plots
    except ImportError:
        print("no pictures: matplotlib is not installed (vinerl plot draws them later)")
        return
    plots.draw(run)


def _tell(run: Run) -> None:
    """The end of a run in a few lines: every member, and where to look."""
    manifest, lines = run.manifest, run.metrics
    took = datetime.fromisoformat(manifest["ended"]) - datetime.fromisoformat(manifest["started"])
    print(f"\ndone in {duration(took.total_seconds())}")
    rows = {k: metrics.curve(lines, k)[1] for k in ("eval/success", "eval/success_noise0")}
    for i, member in enumerate(manifest["members"]):
        parts = [f"{_title(member):<24}"]
        if len(rows["eval/success"]):
            parts.append(f"success {rows['eval/success'][-1][i]:.2f}")
        if len(rows["eval/success_noise0"]):
            parts.append(f"(without noise {rows['eval/success_noise0'][-1][i]:.2f})")
        if member["status"] != "learning":
            parts.append(f"frozen at step {member['frozen_at']}: {member['status']}")
        print("  " + " ".join(parts))
    if len(rows["eval/success"]):
        episodes, final = manifest["run"]["final_episodes"], rows["eval/success"][-1]
        print(f"  mean success {final.mean():.3f} over {len(final)} members x {episodes} episodes")
    print(f"\nlook at {run.path / 'curve.png'}\n        {run.path / 'paths.png'}")
    print(f"or run  vinerl evaluate {run.path} --video")


def _stem(kind: str, step: int) -> str:
    return f"{kind}-{step:09d}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _freeze(value: Any) -> Any:
    """A field of a config as strict JSON; infinity becomes a word."""
    if isinstance(value, tuple | list):
        return [_freeze(x) for x in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _thaw(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_thaw(x) for x in value)
    return math.inf if value == "inf" else value
