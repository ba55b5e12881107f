"""The time of a gradient step: in a compiled block of a whole stack, and the peers' way."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import clock
from vinerl.bench.run import memory, running
from vinerl.data.fold import Transitions
from vinerl.errors import InputError
from vinerl.rl import learner
from vinerl.rl.learner import AgentConfig, Make
from vinerl.train import cost, offline, stack
from vinerl.types import Batch

Found = dict[str, Any]


class Program(NamedTuple):
    many: Callable[[int], Any]  # takes so many steps and returns what was seen in them
    compiled: Any
    compiling: float  # seconds


def program(
    config: AgentConfig,
    make: Make,
    members: int,
    data: Transitions,
    options: dict[str, Any] | None = None,
) -> Program:
    """As this project trains: blocks of steps, data on the device, all members at once.

    `options` are the compiler's, added to those that a block has or in their place.
    """
    agent_of = stack.maker(make, config, running.spec_of(data, config))
    data = jax.device_put(data)
    runs = offline.start(agent_of, stack.members(config, range(members)))
    begin = time.perf_counter()
    block: Any = offline.train_block(agent_of)
    compiled = block.lower(runs, data, 1).compile(compiler_options=options)
    compiling = time.perf_counter() - begin

    def many(steps: int) -> Any:
        nonlocal runs
        runs, seen = compiled(runs, data, steps)
        return seen

    return Program(many, compiled, compiling)


def stacked(
    config: AgentConfig,
    make: Make,
    members: int,
    data: Transitions,
    seconds: float,
    options: dict[str, Any] | None = None,
) -> Found:
    """Of a whole stack's program."""
    many, compiled, compiling = program(config, make, members, data, options)
    times = clock.repeated(many, seconds)
    one = cost.step(make(config, running.spec_of(data, config)), data)
    return figures(one, members, times, compiling, compiled)


def peers(config: AgentConfig, make: Make, data: Transitions, seconds: float) -> Found:
    """As the published code trains: one seed, a batch from the host for every call."""
    if config.horizon != 1:
        raise InputError(f"--set horizon={config.horizon}: the peers' way is measured with 1")
    agent = make(config, running.spec_of(data, config))
    key, draw = jax.random.key(0), np.random.default_rng(0)
    state = jax.jit(lambda key: learner.init(agent, key))(key)
    batch = lambda: gather(data, draw.integers(0, int(data.count), config.batch_size), config)

    def update(state, batch):
        return learner.update(agent, state, batch, jax.random.fold_in(key, state.step))

    begin = time.perf_counter()
    compiled = jax.jit(update).lower(state, batch()).compile()
    compiling = time.perf_counter() - begin

    def many(steps: int) -> Any:
        nonlocal state
        for _ in range(steps):
            state, _ = compiled(state, batch())
        return state

    times = clock.repeated(many, seconds)
    return figures(cost.step(agent, data), 1, times, compiling, compiled)


def gather(data: Transitions, starts: np.ndarray, config: AgentConfig) -> Batch:
    """What `fold` does with a horizon of one, in NumPy."""
    observed = lambda row: jax.tree.map(lambda x: x[row], data.obs)
    row, weight = data.row[starts], np.ones(len(starts), np.float32)
    return Batch(
        obs=observed(row),
        action=data.action[starts],
        reward=data.reward[starts],
        discount=(config.discount * data.mask[starts]).astype(np.float32),
        next_obs=observed(row + 1),
        weight=weight,  # pyright: ignore[reportArgumentType]
    )


def figures(
    one: cost.Cost, members: int, times: tuple[float, float], compiling: float, compiled: Any
) -> Found:
    """program_gb is the compiler's account of one program, peak_gb the device's since the start."""
    seconds, spread = times
    stats = jax.devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use")
    return {
        "ms_per_step": 1e3 * seconds,
        "ms_per_member": 1e3 * seconds / members,
        "spread": spread,
        "compile_s": compiling,
        "gflop_per_step": members * one.flop / 1e9,
        "intensity": one.intensity,
        "tflops": members * one.flop / seconds / 1e12,
        "program_gb": memory.taken(compiled.memory_analysis()) / 1e9,
        "peak_gb": peak and peak / 1e9,
    }
