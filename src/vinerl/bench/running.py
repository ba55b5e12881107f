"""Doing a job: data, training, evaluation, pictures."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import jax
import numpy as np

from vinerl.bench import evaluation, provenance, runs, tasks, trackers
from vinerl.bench.evaluation import Subject
from vinerl.bench.jobs import Job
from vinerl.bench.progress import Progress, duration
from vinerl.bench.runs import Run
from vinerl.collect import make as collecting
from vinerl.collect import mazes
from vinerl.data import files, normalise
from vinerl.data.fold import Transitions
from vinerl.data.normalise import Normaliser
from vinerl.errors import InputError
from vinerl.train import checkpoint, evaluate, loop, metrics, offline, stack
from vinerl.types import Params, Spec


def train(job: Job) -> Run:
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
        folder, processes = tasks.demo_folder(job.folder), job.workers or provenance.cores()
        collecting.make(recipe, folder, processes, lambda done, _: bar.update(done))
    finally:
        bar.close()
    return tasks.find(task, job.folder)


def spec_of(data: Transitions, config) -> Spec:
    shape = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    chunk = config.horizon if config.chunk else 1
    return Spec(jax.tree.map(shape, data.obs), data.action.shape[1] * chunk)


class _Running:
    """A job under way."""

    def __init__(
        self, job: Job, source: tasks.Source, data: Transitions, normaliser: Normaliser | None
    ):
        self.job, self.normaliser, self.folder = job, normaliser, job.out
        self.spec = spec_of(data, job.config)
        self.agent_of = stack.maker(job.make, job.config, self.spec)
        self.members = stack.members(job.config, job.seeds)
        self.policies = evaluate.policies(self.agent_of)
        self.data = jax.device_put(data)
        (self.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        self.manifest = self._manifest(source, data)
        self._save_manifest()
        self.track = [trackers.TRACKERS[name](self.folder, self.manifest) for name in job.log]
        self.evaluator = None
        if job.task:
            subject = Subject(job.config, job.make, self.spec, self.members, normaliser)
            episodes = max(job.eval_episodes, job.final_episodes)
            self.evaluator = evaluation.beside(subject, job.task, episodes, job.workers)

    def run(self) -> Run:
        try:
            moment = self._train()
            self._final(moment)
        finally:
            if self.evaluator:
                self.evaluator.close()
        self.manifest["ended"] = _now()
        self._save_manifest()
        run = Run(self.folder)
        runs.draw(run)
        _tell(run)
        return run

    def _train(self) -> loop.Moment:
        job, block = self.job, offline.train_block(self.agent_of)
        begin = offline.start(self.agent_of, self.members)
        limit = loop.interval(job.steps, job.log_every, job.eval_every)
        print(f"{job.agent}: {job.members} member(s), {job.steps} steps; compiling", flush=True)
        length = job.block or loop.choose(block, begin, self.data, limit)
        self.manifest["block"] = length
        self._save_manifest()

        bar, moment = Progress("training", job.steps), None
        plan = {"steps": job.steps, "length": length, "log_every": job.log_every}
        for moment in loop.fit(self.agent_of, block, begin, self.data, **plan):
            if moment.metrics is not None:
                self._log(moment.step, moment.metrics)
            self._mark(moment)
            due = job.eval_every and moment.step % job.eval_every == 0
            if due and moment.step < job.steps:
                self._save(moment)
                self._collect(wait=True)
                self._evaluate(moment)
            self._collect(wait=False)
            bar.update(moment.step, self._note())
        bar.close()
        assert moment is not None
        self._save(moment)
        self._collect(wait=True)
        return moment

    def _evaluate(self, moment: loop.Moment) -> None:
        if self.evaluator:
            policies = self.policies(moment.stack)
            self.evaluator.start(moment.step, policies, self.job.eval_episodes)

    def _collect(self, wait: bool) -> None:
        """Write down an evaluation that ran beside the training, once it is done."""
        if self.evaluator and (done := self.evaluator.collect(wait)):
            self._log(done[0], {"eval/success": done[1]})

    def _final(self, moment: loop.Moment) -> None:
        if self.evaluator and self.job.final_episodes:
            policies, episodes = self.policies(moment.stack), self.job.final_episodes
            found = self.evaluator.final(moment.step, policies, episodes)
            self._log(moment.step, {n: evaluation.successes(r) for n, r in found.items()})
            evaluation.save(self.folder / "final.json", found, self.evaluator.facts)

    def _save(self, moment: loop.Moment) -> None:
        """The state to go on from, and the policies to act with."""
        folder, step = self.folder / "checkpoints", moment.step
        tree: Params = {"policy": self.policies(moment.stack)}
        if self.normaliser:
            tree["normaliser"] = self.normaliser._asdict()
        checkpoint.save(folder / runs.stem("policy", step), tree, step=step)
        checkpoint.save(folder / runs.stem("state", step), moment.stack, step=step)
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
                name, at = runs.title(member), int(moment.stack.state.step[i])
                member |= {"status": offline.STATUS[status], "frozen_at": at}
                print(f"member {i} ({name}) is frozen at step {at}: {member['status']}", flush=True)
                self._save_manifest()
                if self.job.stop_on_bad:
                    self._save(moment)
                    raise InputError(f"--stop-on-bad: member {i} ({name}) is {member['status']}")

    def _note(self) -> str:
        latest = self.evaluator.latest if self.evaluator else None
        return f"success {latest[1].mean():.2f} at {latest[0]}" if latest else ""

    def _manifest(self, source: tasks.Source, data: Transitions) -> dict[str, Any]:
        job, config = self.job, asdict(self.job.config)
        return {
            "schema": runs.SCHEMA,
            "agent": {"name": job.agent, "config": {k: runs.freeze(v) for k, v in config.items()}},
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
                runs.member_of(self.members, i) | {"status": "learning"} for i in range(job.members)
            ],
            "spec": runs.spec_to(self.spec),
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


def _tell(run: Run) -> None:
    """The end of a run in a few lines: every member, and where to look."""
    manifest, lines = run.manifest, run.metrics
    took = datetime.fromisoformat(manifest["ended"]) - datetime.fromisoformat(manifest["started"])
    print(f"\ndone in {duration(took.total_seconds())}")
    loud = metrics.curve(lines, "eval/success")[1]
    quiet = metrics.curve(lines, "eval/success_noise0")[1]
    for i, member in enumerate(manifest["members"]):
        parts = [f"{runs.title(member):<24}"]
        parts += [f"success {loud[-1][i]:.2f}"] if len(loud) else []
        parts += [f"(without noise {quiet[-1][i]:.2f})"] if len(quiet) else []
        if member["status"] != "learning":
            parts.append(f"frozen at step {member['frozen_at']}: {member['status']}")
        print("  " + " ".join(parts))
    if len(loud):
        count = manifest["run"]["final_episodes"]
        print(f"  mean success {loud[-1].mean():.3f}, {len(loud[-1])} members x {count} episodes")
    pictures = [str(p) for p in sorted(run.path.glob("*.png"))]
    print("\nlook at " + "\n        ".join([*pictures, str(run.path / "manifest.json")]))
    if manifest["task"]:
        print(f"or run  vinerl evaluate {run.path} --video")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
