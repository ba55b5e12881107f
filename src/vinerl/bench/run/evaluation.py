"""Evaluating the members of a run, while it goes on and afterwards."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinerl import disk
from vinerl.bench.numbers.stats import bootstrap
from vinerl.bench.run import provenance, runs, tasks
from vinerl.bench.run.runs import Run, Subject
from vinerl.envs.pool import Pool, Report
from vinerl.errors import InputError, WorkerError
from vinerl.rl.learner import AgentConfig
from vinerl.train import evaluate, metrics
from vinerl.types import Params

LANES = 10  # environments of one member that are stepped together

Reports = list[list[Report]]  # of every member


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
        try:
            self.facts = self.pool.describe()
        except WorkerError:
            self.pool.close()
            raise
        self.loud = evaluate.acting(self.subject.agent_of())
        quiet = has_noise(self.subject.config)
        self.quiet = evaluate.acting(self.subject.agent_of(noise=0.0)) if quiet else None

    def reports(self, act, policies: Params, stream: int, episodes: int, cpu=False) -> Reports:
        config, members = self.subject.config, self.subject.members
        if cpu:
            members, policies = jax.device_put((members, policies), _cpu())
        work = partial(
            evaluate.rollouts,
            partial(act, members, policies, np.int32(stream)),
            self.pool,
            len(members.seed),
            evaluate.start_seeds(stream, episodes),
            config.act_steps,
            self.subject.spec.obs,
            self.subject.see,
        )
        try:
            reports = work()
        except WorkerError as error:
            print(f"{error}\nevaluating again with fresh workers", flush=True)
            self.pool.restart()
            reports = work()
        if broken := sum(r.broken for member in reports for r in member):
            why = "NaN or infinity in the simulation, or in an action"
            print(f"{broken} episodes broke off ({why}) and count as failures", flush=True)
        return reports

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
        """An evaluation that is still running is given up."""
        self.pool.close()
        if self.thread:
            self.thread.shutdown()


def beside(subject: Subject, task: tasks.Task, episodes: int, workers: int | None) -> Evaluator:
    """An evaluator for a run under way."""
    cores = provenance.cores()
    slots = len(subject.members.seed) * min(LANES, episodes)
    thread = ThreadPoolExecutor(1) if cores > 2 and _cpu() else None
    return Evaluator(subject, Pool(task.env, slots, workers or cores), thread)


def again(
    run: Run,
    *,
    episodes: int = 50,
    noise: float | None = None,
    step: int | None = None,
    stop_at: int | None = None,
    best_of: int | None = None,
    stream: int = 1,
    workers: int | None = None,
    agent: str | None = None,
) -> np.ndarray:
    """Evaluate a finished run: successes [S], printed and written down."""
    for name, value in {"--episodes": episodes, "--stream": stream}.items():
        if value < 1:
            raise InputError(f"{name} {value}: at least 1 is needed")
    asked = {"noise": noise, "stop_at": stop_at, "best_of": best_of}
    task, trained = _task(run), runs.load(run, step, agent)
    trained, fixed = runs.otherwise(run, trained, **asked)
    subject = trained.subject
    slots = len(subject.members.seed) * min(LANES, episodes)
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: expected a whole number, 1 or more")
    evaluator = Evaluator(subject, Pool(task.env, slots, workers or provenance.cores()))
    try:
        act = evaluate.acting(subject.agent_of(**fixed))
        reports = evaluator.reports(act, trained.policies, stream, episodes)
    finally:
        evaluator.close()
    found = successes(reports)
    for member, success in zip(run.manifest["members"], found, strict=True):
        print(f"{runs.title(member):<24} success {success:.3f}")
    for name, of in runs.groups(run.manifest["members"]).items():
        low, high = bootstrap(found[of])
        mean = f"{found[of].mean():.3f} [{low:.3f}, {high:.3f}]"
        print(" ".join(filter(None, ("mean", name, mean, f"over {len(of)} seeds"))))
    suffix = "".join(f"-{name}{value:g}" for name, value in fixed.items())
    path = run.path / f"evaluation-{trained.step:09d}-{episodes}x{stream}{suffix}.json"
    save(path, {"eval/success": reports}, evaluator.facts)
    print(f"every episode is in {path}")
    return found


def successes(reports: Reports) -> np.ndarray:
    """Share of successful episodes of each member, [S]."""
    return np.array([np.mean([r.success for r in member]) for member in reports])


def save(path: Path, found: dict[str, Reports], facts: dict) -> None:
    """Every episode: success, return, length; of a few the path (or rewards), for the picture.

    What a simulator gave that is not finite is written as null.
    """

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
    text = json.dumps({"environment": facts, "episodes": metrics.strict(episodes)}, allow_nan=False)
    disk.write(path, text.encode())


def _thin(path: list[list[float]], most: int = 200) -> list[list[float]]:
    """Fewer points, the last among them."""
    stride = -(-len(path) // most) or 1
    return path[:-1:stride] + path[-1:]


def has_noise(config: AgentConfig) -> bool:
    return hasattr(config, "noise")


def _cpu() -> Any:
    """The device to act on beside the training; JAX_PLATFORMS may have left it out."""
    try:
        return jax.devices("cpu")[0]
    except RuntimeError:
        return None


def _task(run: Run) -> tasks.Task:
    name = run.manifest["task"]
    if not name:
        raise InputError(f"{run.path} was trained on a file and has no environment to run in")
    return tasks.named(name)
