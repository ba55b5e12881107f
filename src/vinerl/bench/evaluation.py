"""Evaluating the members of a run, while it goes on and afterwards."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from vinerl import disk
from vinerl.bench import provenance, runs, tasks
from vinerl.bench.runs import Run
from vinerl.bench.stats import bootstrap
from vinerl.data.normalise import Normaliser
from vinerl.envs.pool import Pool, Report
from vinerl.envs.workers import WorkerError
from vinerl.errors import InputError
from vinerl.rl.learner import AgentConfig, Make
from vinerl.train import evaluate, stack
from vinerl.types import Params, Spec

LANES = 10  # environments of one member that are stepped together

Reports = list[list[Report]]  # of every member


class Subject(NamedTuple):
    """Who is evaluated, whatever its parameters are at the moment."""

    config: AgentConfig
    make: Make
    spec: Spec
    members: stack.Member
    normaliser: Normaliser | None

    def acting(self, **fixed):
        return evaluate.acting(stack.maker(self.make, self.config, self.spec, **fixed))


@dataclass
class Evaluator:
    """Rollouts of all members in worker processes, beside the training where cores allow."""

    subject: Subject
    pool: Pool
    thread: ThreadPoolExecutor | None = None
    pending: tuple[int, Future] | None = None
    latest: tuple[int, np.ndarray] | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        self.facts = self.pool.describe()
        self.loud = self.subject.acting()
        self.quiet = self.subject.acting(noise=0.0) if has_noise(self.subject.config) else None

    def reports(self, act, policies: Params, stream: int, episodes: int, cpu=False) -> Reports:
        config, members = self.subject.config, self.subject.members
        if cpu:
            members, policies = jax.device_put((members, policies), jax.devices("cpu")[0])
        work = partial(
            evaluate.rollouts,
            partial(act, members, policies, np.int32(stream)),
            self.pool,
            len(members.seed),
            evaluate.start_seeds(stream, episodes),
            config.horizon if config.chunk else 1,
            self.subject.spec.obs,
            self.subject.normaliser,
        )
        try:
            return work()
        except WorkerError as error:
            print(f"{error}\nevaluating again with fresh workers", flush=True)
            self.pool.restart()
            return work()

    def start(self, step: int, policies: Params, episodes: int) -> None:
        """Evaluate the policies of `step`; the result is to be collected.

        A GPU works off one block after the other, so beside the training the CPU acts.
        """
        beside = self.thread is not None
        work = partial(self.reports, self.loud, policies, step, episodes, cpu=beside)
        if self.thread:
            self.pending = step, self.thread.submit(work)
        else:
            done: Future = Future()
            try:
                done.set_result(work())
            except WorkerError as error:
                done.set_exception(error)
            self.pending = step, done

    def collect(self, wait: bool) -> tuple[int, np.ndarray] | None:
        """Step and successes of the evaluation that was started; only once."""
        if not self.pending or not (wait or self.pending[1].done()):
            return None
        (step, future), self.pending = self.pending, None
        try:
            self.latest = step, successes(future.result())
        except WorkerError as error:
            print(
                f"no evaluation at step {step}: {error}\nThe run goes on; vinerl evaluate RUN "
                f"--step {step} does it again from the saved policy.",
                flush=True,
            )
            return None
        return self.latest

    def final(self, step: int, policies: Params, episodes: int) -> dict[str, Reports]:
        """With the sampler's noise and, where an agent has any, without."""
        ways = {"eval/success": self.loud, "eval/success_noise0": self.quiet}
        found = {}
        for name, act in ways.items():
            if act:
                count = episodes * len(self.subject.members.seed)
                print(f"evaluating: {count} episodes ({name})", flush=True)
                found[name] = self.reports(act, policies, step, episodes)
        return found

    def close(self) -> None:
        if self.thread:
            self.thread.shutdown()
        self.pool.close()


def beside(subject: Subject, task: tasks.Task, episodes: int, workers: int | None) -> Evaluator:
    """An evaluator for a run under way."""
    cores = provenance.cores()
    slots = len(subject.members.seed) * min(LANES, episodes)
    thread = ThreadPoolExecutor(1) if cores > 2 else None
    return Evaluator(subject, Pool(task.env, slots, workers or cores), thread)


def again(
    run: Run,
    *,
    episodes: int = 50,
    noise: float | None = None,
    step: int | None = None,
    stream: int = 1,
    workers: int | None = None,
) -> np.ndarray:
    """Evaluate a finished run: successes [S], printed and written down."""
    task, trained = _task(run), runs.load(run, step)
    fixed = {} if noise is None else {"noise": noise}
    if fixed and not has_noise(trained.config):
        raise InputError(f"--noise {noise}: this agent's config has no noise to scale")
    subject = Subject(
        trained.config, trained.make, trained.spec, trained.members, trained.normaliser
    )
    slots = len(trained.members.seed) * min(LANES, episodes)
    evaluator = Evaluator(subject, Pool(task.env, slots, workers or provenance.cores()))
    try:
        act = subject.acting(**fixed)
        reports = evaluator.reports(act, trained.policies, stream, episodes)
    finally:
        evaluator.close()
    found = successes(reports)
    for member, success in zip(run.manifest["members"], found, strict=True):
        print(f"{runs.title(member):<24} success {success:.3f}")
    low, high = bootstrap(found)
    print(f"mean {found.mean():.3f} [{low:.3f}, {high:.3f}] over {len(found)} members")
    suffix = "" if noise is None else f"-noise{noise:g}"
    path = run.path / f"evaluation-{trained.step:09d}-{stream}{suffix}.json"
    save(path, {"eval/success": reports}, evaluator.facts)
    print(f"every episode is in {path}")
    return found


def successes(reports: Reports) -> np.ndarray:
    """Share of successful episodes of each member, [S]."""
    return np.array([np.mean([r.success for r in member]) for member in reports])


def save(path: Path, found: dict[str, Reports], facts: dict) -> None:
    """Every episode: success, return, length; of a few the path (or rewards), for the picture."""

    def one(i: int, report: Report) -> dict[str, Any]:
        drawn = i < LANES
        return {
            "success": report.success,
            "return": sum(report.rewards),
            "length": len(report.rewards),
            "path": np.round(_thin(report.path), 2).tolist() if drawn else [],
            "rewards": report.rewards if drawn and not report.path else [],
        }

    episodes = {
        name: [[one(i, r) for i, r in enumerate(member)] for member in reports]
        for name, reports in found.items()
    }
    text = json.dumps({"environment": facts, "episodes": episodes}, allow_nan=False)
    disk.write(path, text.encode())


def _thin(path: list[list[float]], most: int = 200) -> list[list[float]]:
    """Fewer points, the last among them."""
    stride = -(-len(path) // most) or 1
    return path[:-1:stride] + path[-1:]


def has_noise(config: AgentConfig) -> bool:
    return hasattr(config, "noise")


def _task(run: Run) -> tasks.Task:
    name = run.manifest["task"]
    if not name:
        raise InputError(f"{run.path} was trained on a file and has no environment to run in")
    return tasks.named(name)
