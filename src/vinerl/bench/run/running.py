"""Doing a job: data, training, evaluation, pictures; and going on with one that was stopped."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from jax.sharding import Mesh

from vinerl import disk
from vinerl.bench.run import (
    ending,
    evaluation,
    jobs,
    manifests,
    memory,
    online,
    provenance,
    runs,
    saver,
    signals,
    trackers,
)
from vinerl.bench.run.jobs import Job
from vinerl.bench.run.material import Material, check_same, check_there, data_of, facts_of
from vinerl.bench.run.progress import Progress
from vinerl.bench.run.runs import Run, Subject
from vinerl.bench.run.saver import Restored, Saver
from vinerl.data.fold import Transitions
from vinerl.errors import InputError
from vinerl.owner import Owner
from vinerl.rl import cloning
from vinerl.train import devices, evaluate, groups, loop, metrics, offline, pretrain, stack
from vinerl.types import Params, Spec


def train(job: Job) -> Run:
    """A new run in a folder of its own."""
    if job.deterministic:
        provenance.deterministic()
    provenance.check_gpu()
    found = data_of(job)
    spec = spec_of(found.data, job.config)
    first = jax.tree.map(lambda x: x[0], stack.members(job.config, job.seeds))
    agent = agent_of(job, found.data)(first)  # what it refuses is said before there is a folder
    if job.pretrain and not cloning.fields(agent):
        raise InputError(f"--pretrain {job.pretrain}: {job.agent} has no velocity field to fit")
    job = jobs.claim(job)
    with Owner(job.out) as owner:
        if (job.out / "manifest.json").exists():
            raise InputError(f"{job.out} already holds a run; choose another --out")
        manifest = manifests.begin(job, spec, facts_of(found))
        return _done(job, found, manifest, owner, begun=False)


def resume(
    path: Path,
    steps: int | None = None,
    stack: int = 0,
    online_steps: int | None = None,
    workers: int | None = None,
    data: Path | None = None,
    agent: str | None = None,
) -> Run:
    """Go on with a run from its last good checkpoint, perhaps to more steps, or in groups.

    `data` is where its file (or folder) is now; the manifest then has that path. `agent` is where
    one of the user's own is now.
    """
    manifest = Run(path).manifest  # no lock is put where there is none
    with Owner(path) as owner:
        manifest = Run(path).manifest
        job = manifests.again(manifest, path, steps, stack, online_steps, workers, data, agent)
        if job.deterministic:
            provenance.deterministic()
        then = manifests.BEFORE | manifest["run"]
        if manifest["ended"] and job.total == then["steps"] + then["online_steps"]:
            longer = "--online-steps" if job.online_steps else "--steps"
            raise InputError(f"{path} has ended at step {job.total}; {longer} N lengthens it")
        provenance.check_gpu()
        check_there(job)
        found = data_of(job)
        facts = facts_of(found)
        check_same(facts, manifest["data"])
        if manifest["ended"] and not saver.states(path):
            raise _nothing_to_go_on_from(path)
        manifest["run"] |= {"steps": job.steps, "online_steps": job.online_steps}
        manifest["data"] |= {"path": facts["path"]} if data else {}
        manifest["ended"] = None
        manifest["resumed"].append(manifests.taken_up(manifest, job))
        return _done(job, found, manifest, owner, begun=True)


def _done(job: Job, found: Material, manifest: dict[str, Any], owner: Owner, begun: bool) -> Run:
    """To the end; from the last checkpoint and in groups once the memory was too small."""
    asked = job.stack
    while True:
        try:
            restored = _restored(job, found, manifest) if begun else None
            return _Running(job, found, manifest, owner).run(restored)
        except jax.errors.JaxRuntimeError as error:
            among, make = _among(job, found).size, agent_of(job, found.data)
            job = memory.smaller(job, error, make, found.data, among, asked)
            begun = True


def _restored(job: Job, found: Material, manifest: dict[str, Any]) -> Restored | None:
    like = jax.eval_shape(lambda: start_of(job, found.data))
    replay = partial(online.replay_like, job, spec_of(found.data, job.config))
    restored = saver.restore(Run(job.out), like, replay, job=manifests.digest(manifest))
    if restored is None and saver.states(job.out):
        raise _nothing_to_go_on_from(job.out)
    return restored


def _nothing_to_go_on_from(path: Path) -> InputError:
    return InputError(
        f"{path} has no checkpoint to go on from; its log and policies stay as they are"
    )


def _among(job: Job, found: Material) -> Mesh:
    """Only a stack that learns from one dataset alone is spread over several devices."""
    alone = found.turns or job.online_steps
    return devices.mesh(1 if alone else job.members, job.stack or None)


def spec_of(data: Transitions, config) -> Spec:
    shape = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    return Spec(jax.tree.map(shape, data.obs), data.action.shape[1] * config.act_steps)


def agent_of(job: Job, data: Transitions) -> stack.AgentOf:
    return stack.maker(job.make, job.config, spec_of(data, job.config))


def start_of(job: Job, data: Transitions) -> offline.Stack:
    """All members before their first step."""
    return offline.start(agent_of(job, data), stack.members(job.config, job.seeds))


class _Running:
    """A job under way."""

    def __init__(self, job: Job, found: Material, manifest: dict[str, Any], owner: Owner):
        self.job, self.normaliser, self.box = job, found.normaliser, found.box
        self.folder, self.owner = job.out, owner
        self.manifest = manifest
        self.spec = spec_of(found.data, job.config)
        self.agent_of = agent_of(job, found.data)
        self.members = stack.members(job.config, job.seeds)
        self.subject = Subject(
            job.config, job.make, self.spec, self.members, self.normaliser, self.box
        )
        self.policies = evaluate.policies(self.agent_of)
        self.among = _among(job, found)
        dealt = groups.deal(job.members, job.stack or job.members, self.among.size)
        self.groups = dealt if dealt.rounds > 1 else None  # otherwise all at once
        (self.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        self._save_manifest()  # before the device is asked for memory, so that it can be resumed
        self.turns, self.data = found.turns, found.turns or devices.copy(found.data, self.among)
        self.saver = Saver(self.folder, job.eval_every or 1, job=manifests.digest(manifest))
        self.evaluator = self.online = None

    def run(self, restored: Restored | None) -> Run:
        job = self.job
        if job.task:
            episodes = max(job.eval_episodes, job.final_episodes)
            self.evaluator = evaluation.beside(self.subject, job.task, episodes, job.workers)
        try:
            with trackers.opened(job.log, self.folder, self.manifest) as self.track:
                with signals.noted() as asked:
                    moment = self._train(restored, asked)
                self._final(moment)
        finally:
            if self.evaluator:
                self.evaluator.close()
            if self.online:
                self.online.live.close()
            self.saver.close()  # last: a copy that found no memory is raised here
        run = Run(self.folder)
        self.manifest["ended"] = manifests.now()
        try:
            runs.draw(run, self.manifest)
        except Exception as error:  # no picture is worth a run
            print(f"its pictures could not be drawn ({error}); vinerl plot {run.path} tries again")
        self._save_manifest()  # last, so that whatever is missing is done on resuming
        ending.tell(run)
        return run

    def _train(self, restored: Restored | None, asked: list[int]) -> loop.Moment:
        job = self.job
        begin = moment = self._begin(restored, asked)
        saved = begin.step if restored else None
        with Progress("training", job.total, begin.step) as bar:
            for moment in self._moments(begin, restored.replay if restored else None):
                self.owner.check()
                if moment.metrics is not None:
                    self._log(moment.step, moment.metrics)
                self._mark(moment)
                if moment.step % job.save_every == 0 and moment.step < job.total:
                    self._collect(wait=moment.step % (job.eval_every or 1) == 0)
                    self._save(moment)
                    saved = moment.step
                    self._evaluate(moment)
                self._collect(wait=False)
                bar.update(moment.step, self._note())
                if asked:
                    break
        if saved != moment.step:
            if asked:  # whoever asked may not wait for an evaluation
                self._save(moment)
            self._collect(wait=True)
            self._save(moment)
        self._collect(wait=True)
        self.saver.wait()
        if self.saver.failed:
            raise InputError(
                f"the last checkpoint of {self.folder} is not saved; make room, then "
                f"vinerl resume {self.folder}"
            )
        if asked:
            self._leave(moment.step, asked[0])
        return moment

    def _moments(self, begin: loop.Moment, replay: Params) -> Iterator[loop.Moment]:
        """After every block of the offline phase and every round of the online one."""
        job, moment = self.job, begin
        if begin.step < job.steps:
            for moment in self._offline(begin):
                yield moment
        if job.online_steps and moment.step >= job.steps:
            print(f"online: {job.online_steps} environment steps; compiling", flush=True)
            self.online = online.phase(job, self.subject, self.groups)
            if replay is not None:
                self.online.restore(replay)
            yield from self._fit(self.online, moment, job.total, job.online_every)

    def _offline(self, begin: loop.Moment) -> Iterator[loop.Moment]:
        job = self.job
        block = groups.in_turn(offline.train_block(self.agent_of), self.groups)
        dealt = self.groups
        some = f" ({dealt.devices * dealt.size} at once)" if dealt else ""
        who = f"{jobs.portable(job.agent)}: {job.members} member(s){some}"
        print(f"{who}, {job.steps} steps; compiling", flush=True)
        length = self.manifest.get("block") or job.block
        if not length:
            every = self.turns.every if self.turns else 0
            limit = loop.interval(job.steps, job.log_every, job.eval_every, job.save_every, every)
            length = loop.choose(block, begin.stack, loop.at(self.data, begin.step), limit)
            if limit < 10 <= job.steps:
                print(f"steps and intervals share only {limit}: so short a block costs time")
        self.manifest["block"] = length
        self._save_manifest()
        yield from self._fit(block, begin, job.steps, length)

    def _fit(self, block: offline.Block, begin: loop.Moment, steps: int, length: int):
        plan = {"steps": steps, "length": length, "log_every": self.job.log_every}
        where = {"first": begin.step, "window": begin.window, "among": self.groups}
        return loop.fit(self.agent_of, block, begin.stack, self.data, **plan, **where)

    def _begin(self, restored: Restored | None, asked: list[int]) -> loop.Moment:
        """From the start, or from a checkpoint: the log as it was, its evaluation run again."""
        log = self.folder / "metrics.jsonl"
        if restored is None:
            if log.exists():
                print("no checkpoint yet: from the beginning", flush=True)
            saver.cut_back(log, 0)
            self._forget(0)
            first = devices.split(offline.start(self.agent_of, self.members), self.among)
            return loop.Moment(0, self._cloned(first, asked), None, [])
        print(f"going on from step {restored.step}", flush=True)
        saver.cut_back(log, restored.metrics_bytes)
        self._forget(self.job.updates(restored.step))
        self._evaluate_again(restored.step)
        there = devices.split(restored.stack, self.among)
        return loop.Moment(restored.step, there, None, restored.window)

    def _cloned(self, first: offline.Stack, asked: list[int]) -> offline.Stack:
        """With velocity fields that have learned the data's actions, where that was asked for."""
        steps, moment = self.job.pretrain, pretrain.Moment(0, 0.0, first)
        if not steps:
            return first
        every = self.turns.every if self.turns else steps
        with Progress("cloning", steps) as bar:
            for moment in pretrain.clone(
                self.agent_of, first, self.data, steps, every=every, among=self.groups
            ):
                bar.update(moment.step, f"loss {moment.loss:.3f}")
                if asked:
                    self._leave(0, asked[0])
        return moment.stack

    def _evaluate_again(self, step: int) -> None:
        """The last evaluation before `step`, from its saved policy, where its line is missing."""
        due = step - step % self.job.eval_every if self.job.eval_every else 0
        lines = Run(self.folder).metrics
        done = any(line["step"] == due and "eval/success" in line for line in lines)
        if not self.evaluator or not 0 < due < self.job.total or done:
            return
        try:
            policies = runs.load(Run(self.folder), due, self.job.agent).policies
        except InputError as error:  # the state that we go on from needs none of it
            print(f"no evaluation at step {due}: {error}", flush=True)
            return
        self.evaluator.start(due, policies, self.job.eval_episodes)
        self._collect(wait=False)

    def _forget(self, updates: int) -> None:
        """Marks of members that were frozen after the state we go on from."""
        for member in self.manifest["members"]:
            if member.get("frozen_at", 0) >= updates:
                member.pop("frozen_at", None)
                member["status"] = "learning"

    def _leave(self, step: int, number: int) -> NoReturn:
        """Asked to end, everything on disk: with the exit code that belongs to the signal."""
        print(f"stopped at step {step}; vinerl resume {self.folder} goes on", flush=True)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def _evaluate(self, moment: loop.Moment) -> None:
        every = self.job.eval_every
        if self.evaluator and every and moment.step % every == 0 and moment.step < self.job.total:
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
        tree: Params = {"policy": self.policies(moment.stack)}
        if self.normaliser:
            tree["normaliser"] = self.normaliser._asdict()
        replay = self.online.save() if self.online and self.online.count else None
        self.saver.save(moment, tree, replay)

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
        bad = [m for m in self.manifest["members"] if m["status"] != "learning"]
        if bad and self.job.stop_on_bad:
            self._collect(wait=True)
            self._save(moment)
            raise InputError(f"--stop-on-bad: {runs.title(bad[0])} is {bad[0]['status']}")

    def _note(self) -> str:
        latest = self.evaluator.latest if self.evaluator else None
        return f"success {latest[1].mean():.2f} at {latest[0]}" if latest else ""

    def _save_manifest(self) -> None:
        disk.write_sealed(self.folder / "manifest.json", self.manifest)
