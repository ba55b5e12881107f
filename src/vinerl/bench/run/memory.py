"""When the device's memory does not hold a stack: how many members it would hold, in words."""

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import jax

from vinerl.bench.run import runs, saver
from vinerl.bench.run.jobs import Job
from vinerl.data.fold import Transitions
from vinerl.errors import InputError
from vinerl.train import offline
from vinerl.train.stack import AgentOf, Member, members

SPARE = 0.1  # of the device's memory, for what the compiler does not count


class Need(NamedTuple):
    """Bytes that training takes."""

    fixed: int  # the data, above all
    member: int  # for each of the stack

    def of(self, count: int) -> int:
        return self.fixed + count * self.member

    def fits(self, room: int) -> int:
        """The largest stack for a device of `room` bytes."""
        return max(0, int((1 - SPARE) * room - self.fixed) // self.member)


@contextmanager
def explained(job: Job, agent_of: AgentOf, data: Transitions) -> Iterator[None]:
    """Running out of device memory becomes an InputError that says what to ask for instead."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold arrays on the device
        print("out of device memory; compiling for 1 and 2 members to see what fits", flush=True)
        need = estimate(agent_of, members(job.config, job.seeds), data)
        raise InputError(advice(job, str(error), need, room())) from error


def estimate(agent_of: AgentOf, like: Member, data: Transitions) -> Need | None:
    """From the block compiled, but not run, for one member and for two."""
    try:
        one, two = (_bytes(agent_of, like, data, count) for count in (1, 2))
    except jax.errors.JaxRuntimeError:
        return None
    return Need(2 * one - two, two - one)


def _bytes(agent_of: AgentOf, like: Member, data: Transitions, count: int) -> int:
    """What the block takes, and the copy of the stack that is being saved meanwhile."""
    abstract = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    several = jax.tree.map(lambda x: jax.ShapeDtypeStruct((count,), x.dtype), like)
    stack = jax.eval_shape(partial(offline.start, agent_of), several)
    block = jax.jit(offline.train_block(agent_of), donate_argnums=0)
    compiled = block.lower(stack, jax.tree.map(abstract, data), 1).compile()
    copy = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(stack))
    return taken(compiled.memory_analysis()) + copy


def taken(analysis: Any) -> int:
    """Bytes on the device while a program runs; a result that replaces an argument counts once."""
    kept = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    return kept - analysis.alias_size_in_bytes + analysis.temp_size_in_bytes


def room() -> int | None:
    """Bytes this process may use on the device, where JAX knows."""
    stats = jax.devices()[0].memory_stats()
    return stats.get("bytes_limit") if stats else None


def advice(job: Job, error: str, need: Need | None, room: int | None) -> str:
    """One paragraph: what was asked, what there is, what would fit, what to run."""
    count, (first, *_) = job.members, error.splitlines()
    said = [f"the device ran out of memory with {_members(count)} ({first[:200].rstrip('.')})."]
    size = (count + 1) // 2
    said += [f"It gives this process {_gib(room)}."] if room else []
    if need:
        said.append(
            f"By the compiler's account {_members(count)} need {_gib(need.of(count))}: "
            f"{_gib(need.fixed)} and {_gib(need.member)} a member."
        )
    if need and room:
        fits = need.fits(room)
        said.append(f"{_members(fits)} would fit." if fits else "Not even one would fit.")
        if fits >= count:
            said.append("Another process may be using the device.")
        size = min(fits, size if fits >= count else count)
    said += [_in_turn(job, size)]
    if kept := saver.states(job.out):
        said.append(
            f"Nothing is lost: vinerl resume {job.out} goes on from step "
            f"{int(kept[-1].stem.split('-')[1])} when there is room."
        )
    else:
        said.append(f"{job.out} has no checkpoint yet and can be removed.")
    return " ".join(said)


def _in_turn(job: Job, size: int) -> str:
    """How to run the members in stacks of `size`."""
    settings = job.members // len(job.seeds)
    if size == 0 or job.members == 1:
        return "Lower --agent.batch-size or the widths, or take --agent.precision bfloat16."
    several = [name for name in runs.member_of(members(job.config, job.seeds), 0) if name != "seed"]
    seeds = turns(job.seeds, max(1, size // settings))
    said = ", then with ".join(f"--seeds {','.join(map(str, part))}" for part in seeds)
    fewer = f" and fewer values of {' and '.join(several)}" if size < settings else ""
    return (
        "A member is the same run in any stack, so give the same command, each time with another "
        f"--out, with {said}{fewer}."
    )


def turns(seeds: Sequence[int], size: int) -> list[Sequence[int]]:
    """Seeds in as few parts of at most `size` as there can be, the parts about equal."""
    count = -(-len(seeds) // size)
    length = -(-len(seeds) // count)
    return [seeds[i : i + length] for i in range(0, len(seeds), length)]


def _members(count: int) -> str:
    return f"{count} member" + "s" * (count != 1)


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"
