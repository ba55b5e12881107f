"""What saving costs, and whether a run repeats itself bit for bit, on whatever device this is.

python benchmarks/trust.py                      both, in less than 150 s on a GPU
python benchmarks/trust.py --only saving --steps 20000 --save-every 5000,10000
python benchmarks/trust.py --small              sizes for a CPU

Four processes compile and train the same members from the same seeds at the same time, two of them
with what `vinerl train --deterministic` asks for. Then one of each kind is timed alone, and the
first measures saving. One JSON line a case.
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from material import random_data

from vinerl.agents import AGENTS
from vinerl.bench.run import provenance, tasks, tuned
from vinerl.bench.run.saver import Saver
from vinerl.data.fold import Transitions
from vinerl.train import evaluate, offline, stack
from vinerl.train.loop import Moment
from vinerl.types import Spec

MARKS = (100, 500, 2000)  # steps after which two runs are compared
INTERVALS = (5_000, 10_000, 20_000)  # between saves; the paper's runs evaluate every 20k steps
SMALL = {"actor_hidden": (32,) * 2, "critic_hidden": (32,) * 2, "batch_size": 32}
SMALL |= {"flow_steps": 3, "critic_blocks": 1}


class Setup(NamedTuple):
    """A compiled program and what it works on."""

    agent_of: stack.AgentOf
    first: offline.Stack  # before the first step
    block: offline.Block
    data: Transitions

    def start(self) -> offline.Stack:
        """A copy, because a block takes what it is given."""
        return jax.block_until_ready(jax.tree.map(jnp.copy, self.first))


def setup(args: argparse.Namespace) -> Setup:
    """antmaze-large at the paper's size, or the same program with small networks."""
    config, make = AGENTS["vine"]
    row = tuned.row("vine", tasks.named("antmaze-large-navigate-singletask-task1-v0"))
    assert row is not None
    config = replace(config, **row.agent)
    config = replace(config, **SMALL) if args.small else config
    data = jax.device_put(random_data(5_000 if args.small else 100_000, obs=29, action=8))
    spec = Spec(jax.ShapeDtypeStruct(data.obs.shape[1:], jnp.float32), data.action.shape[1])
    agent_of = stack.maker(make, config, spec)
    first = offline.start(agent_of, stack.members(config, range(args.members)))
    return Setup(agent_of, first, offline.train_block(agent_of), data)


def train(this: Setup, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Parameters at every mark into files, and a hash of the whole state."""
    begin = time.perf_counter()
    jax.block_until_ready(this.block(this.start(), this.data, 1))
    compiling = time.perf_counter() - begin
    runs, done, hashes = this.start(), 0, {}
    for mark in MARKS:
        runs, _ = this.block(runs, this.data, mark - done)
        done, state = mark, jax.device_get(runs.state)
        digest = hashlib.sha256()
        for x in jax.tree.leaves(state):
            digest.update(np.asarray(x).tobytes())
        hashes[str(mark)] = digest.hexdigest()
        params = {str(i): np.asarray(x) for i, x in enumerate(jax.tree.leaves(state.params))}
        safetensors.numpy.save_file(params, folder / f"{mark}.safetensors")
    return {"compile_s": compiling, "sha256": hashes, "exact": provenance.exactness()}


def speed(this: Setup, args: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Alone on the device; the faster of two blocks."""
    runs, seconds = this.start(), []
    for _ in range(2):
        begin = time.perf_counter()
        runs, _ = jax.block_until_ready(this.block(runs, this.data, args.timed))
        seconds.append(time.perf_counter() - begin)
    return {"ms_per_step": 1e3 * min(seconds) / args.timed}


class Timed(NamedTuple):
    """Seconds of one training run."""

    loop: float  # until the last step is done
    whole: float  # until the last checkpoint is on disk, too
    blocked: float  # of the loop, in calls that save
    saves: int


def saving(this: Setup, args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """The same training with and without saves, alternately."""
    (folder / "checkpoints").mkdir()
    policies = evaluate.policies(this.agent_of)

    def run(steps: int, every: int, save: bool) -> Timed:
        runs, length, blocked, saves = this.start(), block_length(every), 0.0, 0
        saver = Saver(folder)
        begin = time.perf_counter()
        for step in range(length, steps + 1, length):
            runs, seen = this.block(runs, this.data, length)
            np.asarray(runs.status)
            if save and step % every == 0 and step < steps:
                asked = time.perf_counter()
                saver.save(Moment(step, runs, None, [seen]), {"policy": policies(runs)})
                blocked += time.perf_counter() - asked
                saves += 1
        loop = time.perf_counter() - begin
        saver.close()
        return Timed(loop, time.perf_counter() - begin, blocked, saves)

    run(2, 1, save=True)  # compiles
    found = []
    for every in map(int, args.save_every.split(",")):
        both = lambda every=every: (run(args.steps, every, False), run(args.steps, every, True))
        pairs = [both() for _ in range(args.repeat)]
        found.append(summary(pairs, every, args.steps, folder))
    return found


def block_length(every: int) -> int:
    return math.gcd(every, 500)


def summary(
    pairs: list[tuple[Timed, Timed]], every: int, steps: int, folder: Path
) -> dict[str, Any]:
    """Means over the repetitions; a share is of the time without saving."""
    mean = lambda values: float(np.mean(list(values)))
    without, saves = mean(a.loop for a, _ in pairs), pairs[0][1].saves
    added = mean(b.loop - a.loop for a, b in pairs) / saves
    blocked = mean(b.blocked for _, b in pairs) / saves
    newest = max((folder / "checkpoints").glob("state-*.safetensors"))
    return {
        "save_every": every,
        "steps": steps,
        "saves": saves,
        "state_mb": newest.stat().st_size / 1e6,
        "ms_per_step": 1e3 * without / steps,
        "without_s": [a.loop for a, _ in pairs],
        "with_s": [b.loop for _, b in pairs],
        "added_s_per_save": added,
        "blocked_s_per_save": blocked,
        "share_added": added * saves / without,
        "share_in_all": mean(b.whole - a.loop for a, b in pairs) / without,
        "share_added_at": {str(n): added / (n * without / steps) for n in INTERVALS},
        "share_blocked_at": {str(n): blocked / (n * without / steps) for n in INTERVALS},
    }


TASKS = {"train": train, "speed": speed, "saving": saving}


def work(args: argparse.Namespace) -> None:
    """What a process of its own does: a task a line, its answer as a line of JSON."""
    if args.kind == "deterministic":
        provenance.deterministic()
    this = setup(args)
    for line in sys.stdin:
        print(json.dumps(TASKS[line.strip()](this, args, args.folder)), flush=True)


class Worker:
    """Another process of this program. It compiles by itself, as two runs of a user's would."""

    def __init__(self, kind: str, folder: Path):
        folder.mkdir()
        self.folder, self.said = folder, (folder / "said.log").open("w+")
        env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | os.environ
        env |= {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        words = [sys.executable, __file__, *sys.argv[1:], "--kind", kind, "--folder", str(folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(words, env=env, stderr=self.said, **pipes)

    def ask(self, task: str) -> None:
        with suppress(BrokenPipeError):  # it has ended, which is its answer
            print(task, file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        """What it found, or the error it ended with."""
        for line in self.process.stdout or ():
            if line.startswith(("{", "[")):
                return json.loads(line)
            print(line, end="", file=sys.stderr)
        self.said.seek(0)
        return {"error": self.said.read()[-2000:]}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.said.close()


def distances(a: Path, b: Path) -> dict[str, float]:
    """||x - y|| / ||y|| at every mark, the largest over all arrays of parameters."""

    def one(mark: int) -> float:
        xs, ys = (safetensors.numpy.load_file(p / f"{mark}.safetensors") for p in (a, b))
        pairs = zip(xs.values(), ys.values(), strict=True)
        norm = lambda x: float(np.linalg.norm(x.astype(np.float64)))
        return max(norm(x - y) / max(norm(y), 1e-30) for x, y in pairs)

    return {str(mark): one(mark) for mark in MARKS}


def determinism(kind: str, pair: list[Worker], trained: list[dict[str, Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {"deterministic": kind == "deterministic"}
    if bad := [found for found in trained if "error" in found]:
        return facts | bad[0]
    first, second = (found["sha256"] for found in trained)
    pair[0].ask("speed")
    return (
        facts
        | {
            "equal": {mark: first[mark] == second[mark] for mark in first},
            "largest_relative_difference": distances(pair[0].folder, pair[1].folder),
            "compile_s": [found["compile_s"] for found in trained],
            "exact": trained[0]["exact"],
        }
        | pair[0].answer()
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2500, help="of a run with or without saves")
    parser.add_argument("--save-every", default="1000", help="steps; several with commas")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--timed", type=int, default=400, help="steps whose speed is measured")
    parser.add_argument("--only", choices=("saving", "determinism"))
    parser.add_argument("--small", action="store_true", help="small networks, little data")
    parser.add_argument("--dir", type=Path, help="where checkpoints go (else a temporary folder)")
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    for every in map(int, args.save_every.split(",")):
        if args.steps <= every or args.steps % block_length(every):
            parser.error(f"--steps: more than {every}, a multiple of {block_length(every)}")
    if args.kind:
        work(args)
        return

    kinds = ["plain"] if args.only == "saving" else ["plain", "deterministic"]
    copies = 1 if args.only == "saving" else 2
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=args.dir) as temporary:
        place = lambda kind, i: Path(temporary) / f"{kind}{i}"
        workers = {k: [Worker(k, place(k, i)) for i in range(copies)] for k in kinds}
        everyone = [worker for pair in workers.values() for worker in pair]
        try:
            if args.only != "saving":
                for worker in everyone:
                    worker.ask("train")
                trained = {k: [worker.answer() for worker in pair] for k, pair in workers.items()}
                for kind, pair in workers.items():
                    show("determinism", determinism(kind, pair, trained[kind]))
            if args.only != "determinism":
                workers["plain"][0].ask("saving")
                answer = workers["plain"][0].answer()
                for found in [answer] if "error" in answer else answer:
                    show("saving", found)
        finally:
            for worker in everyone:
                worker.close()
    facts = {"hardware": provenance.hardware(), "versions": provenance.versions()}
    show("facts", facts | {"seconds": time.perf_counter() - begin})


def show(case: str, found: dict[str, Any]) -> None:
    print(json.dumps({"case": case} | found), flush=True)


if __name__ == "__main__":
    main()
