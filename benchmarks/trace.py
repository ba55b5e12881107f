"""Where the time of a step goes on a GPU: its kernels, by kind and by name, from a profile.

python -m benchmarks trace --members 12 --set precision=bfloat16 --markdown --out trace.jsonl
python -m benchmarks trace --small                    a rehearsal on a CPU, which has no kernels

A stack is compiled and timed as in `update`, then takes --steps steps under the profiler, which
slows it down. All microseconds are of one step: `kernels_us` is the sum of all kernels, `busy_us`
the time in which at least one ran, `span_us` from the first one's start to the last one's end. What
a block does once counts as 1 / --steps of it.
"""

import gzip
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks import clock, lines, material, steps
from vinerl.errors import InputError

TIMED = 100  # steps without the profiler
TOP = 25  # kernels that are named
KINDS = {  # the first that a kernel's name, in small letters, is like
    "matrix products": ("*gemm*", "nvjet_*", "*cutlass*", "*xmma*"),
    "our own": ("_forward*", "_backward*", "gelu_*"),
    "reductions": ("*reduce*",),
    "copies": ("memcpy*", "memset*", "*copy*", "*transpose*", "*concatenate*", "*slice*"),
    "elementwise": ("loop_*", "wrapped_*", "input_*"),
    "others": ("*",),
}
COLUMNS = ("agent", "members", "batch", "precision", "ms_per_step", "compile_s")
COLUMNS += ("kernels", "kernels_us", "busy_us", "span_us")
NO_DEVICE = "the trace has no device in it, so no kernels; a CPU has none"


class Kernel(NamedTuple):
    """One that ran on a device; microseconds."""

    name: str
    start: float
    us: float


def main(args: list[str]) -> None:
    parser = lines.parser("trace", __doc__)
    parser.add_argument("--agent", default="vine")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a field of its config"
    )
    parser.add_argument("--members", type=int, default=12, help="of the stack")
    parser.add_argument("--steps", type=int, default=10, help="under the profiler")
    parser.add_argument("--small", action="store_true", help="tiny networks, little data")
    parser.add_argument("--markdown", action="store_true", help="the tables as Markdown")
    given = parser.parse_args(args)
    for flag, number in {"--members": given.members, "--steps": given.steps}.items():
        if number < 1:
            raise InputError(f"{flag} {number}: expected 1 or more")

    config, make = material.agent(given.agent, material.settings(given.set), given.small)
    rows = material.SMALL_ROWS if given.small else material.ROWS
    data = material.random_data(rows, material.OBS, material.ACTION)
    said = lines.Lines("trace", given)
    facts = {"agent": given.agent, "members": given.members, "batch": config.batch_size}
    facts |= {"precision": config.precision, "steps": given.steps}
    program = partial(steps.program, config, make, given.members, data)
    found = said.case(facts, lambda: traced(program(), given.steps))
    said.show(COLUMNS, given.markdown)
    for part in (found[name] for name in ("by_kind", "by_name") if name in found):
        print("\n" + lines.table(part, list(part[0]), given.markdown), file=sys.stderr)


def traced(program: steps.Program, count: int) -> lines.Row:
    _, seconds = (clock.spend(program.many, TIMED) for _ in range(2))  # the first warms up
    timed = {"ms_per_step": 1e3 * seconds / TIMED, "compile_s": program.compiling}
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            clock.spend(program.many, count)
        (path,) = Path(folder).rglob("*.trace.json.gz")
        return timed | summary(read(path), count)


def read(path: Path) -> list[Kernel]:
    """What ran on a device, in the order of its starts."""
    with gzip.open(path) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    devices = {pid for pid, name in named.items() if name.startswith("/device:")}
    ran = [e for e in events if e.get("ph") == "X" and e["pid"] in devices]
    return sorted((Kernel(e["name"], e["ts"], e["dur"]) for e in ran), key=lambda k: k.start)


def summary(kernels: Sequence[Kernel], count: int) -> lines.Row:
    """Of one step of `count`."""
    if not kernels:
        return {"skipped": NO_DEVICE}
    kinds, names = defaultdict(list), defaultdict(list)
    for kernel in kernels:
        kinds[kind(kernel.name)].append(kernel.us)
        names[kernel.name].append(kernel.us)
    dearest = sorted(names.items(), key=lambda item: -sum(item[1]))[:TOP]
    of_step = lambda spent: {
        "times": len(spent) / count,
        "us_each": sum(spent) / len(spent),
        "us": sum(spent) / count,
    }
    span = max(k.start + k.us for k in kernels) - kernels[0].start
    return {
        "kernels": len(kernels) / count,
        "kernels_us": sum(k.us for k in kernels) / count,
        "busy_us": busy(kernels) / count,
        "span_us": span / count,
        "by_kind": [{"kind": name, **of_step(kinds[name])} for name in KINDS if name in kinds],
        "by_name": [{"name": name, **of_step(spent)} for name, spent in dearest],
    }


def kind(name: str) -> str:
    return next(k for k, like in KINDS.items() if any(fnmatchcase(name.lower(), p) for p in like))


def busy(kernels: Iterable[Kernel]) -> float:
    """Microseconds in which at least one ran; they come in the order of their starts."""
    total, until = 0.0, float("-inf")
    for kernel in kernels:
        end = kernel.start + kernel.us
        total += max(0.0, end - max(kernel.start, until))
        until = max(until, end)
    return total
