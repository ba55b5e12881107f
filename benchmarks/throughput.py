"""Gradient steps per second of stacks of different sizes, paper-size VINE on random data.

python benchmarks/throughput.py --stacks 1,4,12 --precision bfloat16
"""

import argparse
import json
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from vinerl.agents import AGENTS
from vinerl.bench.run import provenance
from vinerl.data.fold import Transitions, transitions
from vinerl.train import offline, stack
from vinerl.types import Spec


def random_data(rows: int, obs: int, action: int, episode: int = 1000) -> Transitions:
    draw = np.random.default_rng(0)
    ends = np.arange(rows) % episode == episode - 1
    observed = draw.normal(size=(rows + int(ends.sum()), obs)).astype(np.float32)
    actions = draw.uniform(-1, 1, (rows, action))
    return transitions(observed, actions, -np.ones(rows), np.ones(rows), ends)


def measure(config, make, members: int, data: Transitions, seconds: float) -> dict:
    """Compilation and the time of a step, after a warm-up, over at least `seconds`."""
    spec = Spec(jax.ShapeDtypeStruct(data.obs.shape[1:], jnp.float32), data.action.shape[1])
    agent_of = stack.maker(make, config, spec)
    runs = offline.start(agent_of, stack.members(config, range(members)))
    block = offline.train_block(agent_of)

    def spend(steps: int) -> float:
        nonlocal runs
        begin = time.perf_counter()
        runs, _ = jax.block_until_ready(block(runs, data, steps))
        return time.perf_counter() - begin

    compiling, steps = spend(1), 2
    while (spent := spend(steps)) < seconds / 4:
        steps *= 2
    steps = max(1, int(steps * seconds / spent))
    step = spend(steps) / steps
    return {
        "members": members,
        "ms_per_step": 1e3 * step,
        "ms_per_step_and_member": 1e3 * step / members,
        "member_steps_per_second": members / step,
        "compile_s": compiling,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stacks", default="1,4")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--sampler", default="vine")
    parser.add_argument("--unroll", choices=("auto", "yes", "no"), default="auto")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--obs", type=int, default=29, help="size of an observation (antmaze: 29)")
    parser.add_argument("--action", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0)
    args = parser.parse_args()

    config, make = AGENTS["vine"]
    wide = {"actor_hidden": (args.width,) * 4, "critic_hidden": (args.width,) * 4}
    config = replace(config, batch_size=args.batch, precision=args.precision, **wide)
    unroll = {"auto": None, "yes": True, "no": False}[args.unroll]
    config = replace(config, sampler=args.sampler, unroll=unroll)
    data = jax.device_put(random_data(100_000, args.obs, args.action))
    facts = {"hardware": provenance.hardware(), "versions": provenance.versions()}
    print(json.dumps(facts | {"arguments": vars(args)}), flush=True)
    for members in map(int, args.stacks.split(",")):
        print(json.dumps(measure(config, make, members, data, args.seconds)), flush=True)


if __name__ == "__main__":
    main()
