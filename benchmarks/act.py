"""How long a policy takes for an action, beside nothing but its matrix products.

python -m benchmarks act
python -m benchmarks act --batches 1 --calls 5000 --threads 2

VINE with antmaze sizes (29 numbers observed, 8 acted with, four layers of 512, K = 10), on the CPU.

policy            `vinerl.load(RUN)(obs)`, from NumPy to NumPy
policy, bfloat16  the same with weights="bfloat16"
plain jit         `jax.jit` around the agent's `act` alone, everything around it in Python
chain, numpy      K times the products with the actor's five kernels, one after another, in BLAS
chain, jit        the same chain compiled; `ratio` is to the faster of the two

The cases take turns, so that whatever else the machine does meets them all. All run in a process
of their own: NumPy and JAX count their threads once, when they start.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import lines, material
from benchmarks.material import ACTION, OBS
from vinerl.bench.run import provenance
from vinerl.bench.run.policy import Policy
from vinerl.bench.run.runs import Subject, Trained
from vinerl.data.normalise import Normaliser
from vinerl.errors import InputError
from vinerl.rl import learner
from vinerl.train import stack
from vinerl.types import Spec

NO_CRITIC = {"critic_hidden": (8,), "critic_blocks": 1}  # acting needs none
TURN = 20  # calls of one case before it is another's turn
NAMES = ("policy", "policy, bfloat16", "plain jit", "chain, numpy", "chain, jit")
COLUMNS = ("batch", "case", "calls", "median_us", "p99_us", "ratio", "ratio_p99")

Case = Callable[[], Any]


def main(args: list[str]) -> None:
    threads, cores = options().parse_args(args).threads, provenance.cores()
    if not 1 <= threads <= cores:
        raise InputError(f"--threads {threads}: this process may use 1 to {cores}")
    flags = "--xla_cpu_multi_thread_eigen=false" if threads == 1 else ""
    env = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}", "JAX_PLATFORMS": "cpu"}
    env |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "benchmarks.act", *args]
    if code := subprocess.run(command, env=os.environ | env).returncode:
        raise SystemExit(code)


def measure(given: argparse.Namespace) -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.threads])
    said = lines.Lines("act", given)
    for batch in map(int, given.batches.split(",")):
        # All at once, when the first is asked for.
        found = cache(lambda batch=batch: summary(timed(cases(batch, given.small), given.calls)))
        for name in NAMES:
            said.case({"batch": batch, "case": name}, lambda found=found, name=name: found()[name])
    said.show(COLUMNS)


def options() -> argparse.ArgumentParser:
    parser = lines.parser("act", __doc__)
    parser.add_argument("--threads", type=int, default=1, help="cores to keep to")
    parser.add_argument("--calls", type=int, default=2000, help="of every case")
    parser.add_argument("--batches", default="1,64", help="observations in a call")
    parser.add_argument("--small", action="store_true", help="tiny networks")
    return parser


def cases(batch: int, small: bool) -> dict[str, Case]:
    """What to call, by its name; for a batch of one, vectors."""
    trained = untrained(small)
    config: Any = trained.subject.config
    draw = np.random.default_rng(0)
    shape = lambda size: (size,) if batch == 1 else (batch, size)
    obs = draw.normal(size=shape(OBS))
    asked = Policy(trained, 0), Policy(trained, 0, "bfloat16"), plain_jit(trained)

    widths = (OBS + ACTION + 1, *config.actor_hidden, ACTION)
    kernel = lambda n, m: (draw.normal(size=(n, m)) / np.sqrt(n)).astype(np.float32)
    kernels = [kernel(n, m) for n, m in pairwise(widths)]
    start = draw.normal(size=shape(widths[0])).astype(np.float32)
    compiled, there = jax.jit(chain_jit, static_argnums=2), jax.device_put((kernels, start))
    bare = (
        lambda: chain_numpy(kernels, start, config.flow_steps),
        lambda: np.asarray(compiled(*there, config.flow_steps)),
    )
    return dict(zip(NAMES, (*(partial(policy, obs) for policy in asked), *bare), strict=True))


def untrained(small: bool) -> Trained:
    """One member with fresh weights, as it would be loaded."""
    config, make = material.agent("vine", NO_CRITIC, small)
    spec = Spec(jax.ShapeDtypeStruct((OBS,), jnp.float32), ACTION)
    members = stack.members(config, (0,))

    def policy(member):
        agent = stack.maker(make, config, spec)(member)
        return agent.policy(learner.init(agent, stack.keys(member).init))

    normaliser = Normaliser(np.full(OBS, 0.5, np.float32), np.full(OBS, 1.5, np.float32))
    subject = Subject(config, make, spec, members, normaliser, None)
    return Trained(subject, jax.device_get(jax.jit(jax.vmap(policy))(members)), 0)


def plain_jit(trained: Trained) -> Callable[[np.ndarray], np.ndarray]:
    """The same actions as a policy's; weights stay NumPy arrays, as they are read from a file."""
    subject, params = trained.subject, jax.tree.map(lambda x: x[0], trained.policies)
    member = jax.tree.map(lambda x: x[0], subject.members)
    act, key = jax.jit(subject.agent_of()(member).act), stack.keys(member).evaluate
    calls = 0

    def policy(obs):
        nonlocal calls
        seen = subject.see(np.atleast_2d(obs).astype(np.float32))
        action = act(params, seen, jax.random.fold_in(key, calls))
        calls += 1
        return np.asarray(action).reshape(*obs.shape[:-1], -1)

    return policy


def chain_numpy(kernels: list[np.ndarray], start: np.ndarray, steps: int) -> np.ndarray:
    """`steps` times through all kernels; the result takes the place of the first inputs."""
    x, out = start.copy(), start
    for _ in range(steps):
        out = x
        for kernel in kernels:
            out = out @ kernel
        x[..., : out.shape[-1]] = out
    return out


def chain_jit(kernels, start, steps: int):
    size = kernels[-1].shape[-1]

    def step(_, x):
        out = x
        for kernel in kernels:
            out = out @ kernel
        return x.at[..., :size].set(out)

    return jax.lax.fori_loop(0, steps, step, start)[..., :size]


def timed(cases: dict[str, Case], calls: int) -> dict[str, np.ndarray]:
    """Seconds of every call, [calls], after one that compiles; TURN calls at a time."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for call in cases.values():
        call()
    for first in range(0, calls, TURN):
        for name, call in cases.items():
            for _ in range(min(TURN, calls - first)):
                begin = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - begin)
    return {name: np.array(found) for name, found in seconds.items()}


def summary(seconds: dict[str, np.ndarray]) -> dict[str, lines.Row]:
    """Microseconds, and how many times those of the faster chain they are."""
    median, p99 = (
        {name: float(1e6 * np.quantile(found, q)) for name, found in seconds.items()}
        for q in (0.5, 0.99)
    )
    bare = min((name for name in seconds if name.startswith("chain")), key=median.__getitem__)
    return {
        name: {
            "calls": len(found),
            "median_us": median[name],
            "p99_us": p99[name],
            "ratio": median[name] / median[bare],
            "ratio_p99": p99[name] / p99[bare],
        }
        for name, found in seconds.items()
    }


if __name__ == "__main__":
    measure(options().parse_args())
