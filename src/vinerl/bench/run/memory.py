"""When the device's memory does not hold a stack: in groups that it holds, or why not, in words."""

import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax

from vinerl.bench.run import manifests, saver
from vinerl.bench.run.jobs import Job
from vinerl.data.fold import Transitions
from vinerl.errors import InputError
from vinerl.train import offline
from vinerl.train.groups import deal
from vinerl.train.stack import AgentOf, Member, members

SPARE = 0.1  # of the device's memory, for what the compiler does not count


class Need(NamedTuple):
    """Bytes that training takes."""

    fixed: int  # the data, above all
    member: int  # for each of the stack
    state: int  # of that twice: what is learned, and the copy that is being saved

    def of(self, count: int) -> int:
        return self.fixed + count * self.member

    def fits(self, room: int) -> int:
        """The largest stack for a device of `room` bytes."""
        return max(0, int((1 - SPARE) * room - self.fixed) // self.member)

    def at_once(self, count: int, room: int) -> int:
        """Of a stack of `count` the largest group; 0 where the states alone are too much.

        The states of all are there, their copies, and once more those of the group.
        """
        if self.fits(room) >= count:
            return count
        left = int((1 - SPARE) * room) - self.fixed - 2 * count * self.state
        return max(0, left // (self.member - self.state))


def smaller(
    job: Job,
    error: Exception,
    agent_of: AgentOf,
    data: Transitions,
    devices: int = 1,
    asked: int = 0,
) -> Job:
    """The job in groups that fit, after it ran out of memory; an InputError where none do.

    A size that was asked for is kept to. Groups that were found here and are too large after all
    are halved.
    """
    if "RESOURCE_EXHAUSTED" not in str(error):
        raise error
    traceback.clear_frames(error.__traceback__)  # they hold arrays on the device
    print("out of device memory; compiling for 1 and 2 members to see what fits", flush=True)
    need, space = estimate(agent_of, members(job.config, job.seeds), data), room()
    share = job.members // devices
    size = devices * need.at_once(share, space) if need and space else 0
    if job.stack:
        size = min(size, devices * (_at_once(job, devices) // devices // 2))
    if asked or not 0 < size < job.members:
        raise InputError(advice(job, str(error), need, space, devices)) from error
    print(
        f"{_members(job.members)} do not fit: at most {size} at once (--stack {size})", flush=True
    )
    return replace(job, stack=size)


def estimate(agent_of: AgentOf, like: Member, data: Transitions) -> Need | None:
    """From the block compiled, but not run, for one member and for two."""
    try:
        one, two = (_bytes(agent_of, like, data, count) for count in (1, 2))
    except jax.errors.JaxRuntimeError:
        return None
    return Need(2 * one - two, two - one, _size(_stack(agent_of, like, 1)))


def _bytes(agent_of: AgentOf, like: Member, data: Transitions, count: int) -> int:
    """What the block takes, and the copy of the stack that is being saved meanwhile."""
    abstract = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    stack = _stack(agent_of, like, count)
    block: Any = offline.train_block(agent_of)
    compiled = block.lower(stack, jax.tree.map(abstract, data), 1).compile()
    return taken(compiled.memory_analysis()) + _size(stack)


def _stack(agent_of: AgentOf, like: Member, count: int) -> Any:
    """Of so many members, in shape."""
    several = jax.tree.map(lambda x: jax.ShapeDtypeStruct((count,), x.dtype), like)
    return jax.eval_shape(partial(offline.start, agent_of), several)


def _size(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def taken(analysis: Any) -> int:
    """Bytes on the device while a program runs; a result that replaces an argument counts once."""
    kept = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    return kept - analysis.alias_size_in_bytes + analysis.temp_size_in_bytes


def room() -> int | None:
    """Bytes this process may use on the device, where JAX knows."""
    stats = jax.devices()[0].memory_stats()
    return stats.get("bytes_limit") if stats else None


def advice(job: Job, error: str, need: Need | None, room: int | None, devices: int = 1) -> str:
    """One paragraph: what was asked, what there is, what would fit, what to run."""
    share, (first, *_) = job.members // devices, error.splitlines()
    at_once = _at_once(job, devices)
    groups = f", {at_once} at once" if at_once < job.members else ""
    said = [
        f"the device ran out of memory with {_members(job.members)}{groups} "
        f"({first[:200].rstrip('.')})."
    ]
    said += [f"It gives this process {_gib(room)}."] if room else []
    if need:
        said.append(
            f"By the compiler's account {_members(share)} need {_gib(need.of(share))}: "
            f"{_gib(need.fixed)} and {_gib(need.member)} a member."
        )
    group, apart = at_once // 2, 0
    if need and room:
        fits, found = need.fits(room), devices * need.at_once(share, room)
        beside = f", and {found} at once beside the states of all" if 0 < found < at_once else ""
        said.append(f"{_members(fits)} would fit{beside}." if fits else "Not even one would fit.")
        if found >= at_once:
            said.append("Another process may be using the device.")
        else:
            group, apart = found, fits
    said += [] if group else [_apart(job, apart)]
    return " ".join([*said, _kept(job, f" --stack {group}" if group else "")])


def _at_once(job: Job, devices: int) -> int:
    """Members of a group."""
    return devices * deal(job.members, job.stack or job.members, devices).size


def _kept(job: Job, flag: str) -> str:
    """How to go on with what there is of the run."""
    if kept := saver.states(job.out):
        step = int(kept[-1].stem.split("-")[1])
        when = ", the same run in groups" if flag else " when there is room"
        return f"Nothing is lost: vinerl resume {job.out}{flag} goes on from step {step}{when}."
    if flag:
        return f"vinerl resume {job.out}{flag} begins it again in groups: it is the same run."
    return f"{job.out} has no checkpoint yet and can be removed."


def _apart(job: Job, size: int) -> str:
    """How to run the members as stacks of `size` where the states of all are too much."""
    settings = job.members // len(job.seeds)
    if size == 0 or job.members == 1:
        return "Lower --agent.batch-size or the widths, or take --agent.precision bfloat16."
    several = manifests.member_of(members(job.config, job.seeds), 0).keys() - {"seed"}
    seeds = turns(job.seeds, max(1, size // settings))
    said = ", then with ".join(f"--seeds {','.join(map(str, part))}" for part in seeds)
    fewer = f" and fewer values of {' and '.join(sorted(several))}" if size < settings else ""
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
