"""Episodes a second in worker processes, beside the bare simulator under random actions.

python -m benchmarks evaluate --task antmaze-large-navigate-singletask-task1-v0 --workers 16
python -m benchmarks evaluate --task my_module:MyEnv --members 1 --small

Policies are untrained, so that as a rule an episode is as long as it can be. Where there is a GPU
it acts first, as after a training, then the CPU, as beside one. `of_bare` is environment steps a
second over those of one process that does nothing else; `of_interval` is the share of a training
interval (--steps of --step-ms) that one evaluation takes.
"""

import argparse
import time
from functools import partial
from typing import Any

import jax
import numpy as np

from benchmarks import lines, material
from vinerl.bench.run import provenance, tasks
from vinerl.bench.run.evaluation import LANES, Evaluator
from vinerl.bench.run.runs import Subject
from vinerl.data import files
from vinerl.envs import ogbench
from vinerl.envs.pool import Pool
from vinerl.envs.worker import make as make_env
from vinerl.train import evaluate, offline, stack
from vinerl.types import Spec

COLUMNS = ("case", "members", "workers", "episodes", "seconds", "episodes_per_s", "steps_per_s")
COLUMNS += ("of_bare", "of_interval", "compile_s", "start_s")


def main(args: list[str]) -> None:
    given = options().parse_args(args)
    own = ":" in given.task
    name = given.task if own else tasks.named(given.task).env
    env = make_env(name)
    subject = subject_of(given, env, material.TASK if own else given.task)
    said = lines.Lines("evaluate", given)
    alone = said.case({"case": "bare"}, partial(bare, env, given.seconds))
    begin = time.perf_counter()
    pool = Pool(name, given.members * min(LANES, given.episodes), given.workers)
    evaluator = Evaluator(subject, pool)
    try:
        first = pool.reset(range(pool.slots), range(pool.slots))
        started = {"workers": len(pool.workers), "start_s": time.perf_counter() - begin}
        for where in dict.fromkeys((jax.default_backend(), "cpu")):
            facts = {"case": f"acting on {where}", "members": given.members} | started
            said.case(facts, partial(evaluated, evaluator, given, first, where == "cpu", alone))
    finally:
        evaluator.close()
    said.show(COLUMNS)


def options() -> argparse.ArgumentParser:
    parser = lines.parser("evaluate", __doc__)
    parser.add_argument("--task", default=tasks.DEFAULT, help="or module:Class, an environment")
    parser.add_argument("--agent", default="vine")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=10, help="of each member")
    parser.add_argument("--workers", type=int, default=provenance.cores(), help="processes")
    parser.add_argument("--steps", type=int, default=10_000, help="between two evaluations")
    parser.add_argument("--step-ms", type=float, default=2.2, help="of one of these steps")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the bare simulator")
    parser.add_argument("--small", action="store_true", help="tiny networks")
    return parser


def subject_of(given: argparse.Namespace, env: Any, task: str) -> Subject:
    """An agent for what this environment shows and takes."""
    config, make = material.agent(given.agent, {}, given.small, task)
    shape = lambda x: jax.ShapeDtypeStruct(np.shape(x), files.exact(np.asarray(x)).dtype)
    obs = jax.tree.map(shape, ogbench.reset(env, 0))
    spec = Spec(obs, env.action_space.shape[0] * config.act_steps)
    members = stack.members(config, range(given.members))
    return Subject(config, make, spec, members, None, None)


def bare(env: Any, seconds: float) -> lines.Row:
    """Steps a second of one environment in this process."""
    ogbench.reset(env, 0)
    steps, begin = 0, time.perf_counter()
    while (spent := time.perf_counter() - begin) < seconds:
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        steps += 1
        if terminated or truncated:
            ogbench.reset(env, steps)
    return {"seconds": spent, "steps_per_s": steps / spent}


def evaluated(
    evaluator: Evaluator,
    given: argparse.Namespace,
    first: list[np.ndarray],
    cpu: bool,
    alone: lines.Row,
) -> lines.Row:
    """One evaluation of all members, once its program is compiled."""
    subject, agent_of = evaluator.subject, evaluator.subject.agent_of()
    policies = evaluate.policies(agent_of)(offline.start(agent_of, subject.members))
    compiling = warm(evaluator, policies, first, cpu)
    begin = time.perf_counter()
    reports = evaluator.reports(evaluator.loud, policies, 0, given.episodes, cpu)
    seconds = time.perf_counter() - begin
    episodes = [report for member in reports for report in member]
    rate = sum(len(episode.rewards) for episode in episodes) / seconds
    found = {"episodes": len(episodes), "seconds": seconds, "compile_s": compiling}
    found |= {"episodes_per_s": len(episodes) / seconds, "steps_per_s": rate}
    found |= {"of_interval": seconds / (given.steps * given.step_ms / 1e3)}
    return found | ({"of_bare": rate / alone["steps_per_s"]} if "steps_per_s" in alone else {})


def warm(evaluator: Evaluator, policies: Any, first: list[np.ndarray], cpu: bool) -> float:
    """Seconds until there is a program that acts on observations like these, a row a slot."""
    members = evaluator.subject.members
    if cpu:
        members, policies = jax.device_put((members, policies), jax.devices("cpu")[0])
    zeros = np.zeros((len(members.seed), evaluator.pool.slots // len(members.seed)), np.int32)
    obs = [x.reshape(*zeros.shape, *x.shape[1:]) for x in first]
    obs = jax.tree.unflatten(jax.tree.structure(evaluator.subject.spec.obs), obs)
    act: Any = evaluator.loud
    begin = time.perf_counter()
    jax.block_until_ready(act(members, policies, np.int32(0), obs, zeros, zeros))
    return time.perf_counter() - begin
