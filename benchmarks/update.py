"""The time of a gradient step: this project's, the peers' way, and what the device can do.

python -m benchmarks update --stacks 1,4,12 --set precision=bfloat16
python -m benchmarks update --grow seeds --grow batch=256,1024 --budget 300 --out update.jsonl
python -m benchmarks update --stacks 12 --option xla_gpu_dot_merger_threshold_mb=32
python -m benchmarks update --grow all --small        a rehearsal on a CPU

Random data of antmaze sizes. `tflops` counts the matrix products of a step from their shapes;
`intensity` is FLOP for a byte that they and the state move. Ratios are of `tflops`, to what the run
measured, too: the peers' way (`times_peers`), a large product of the same precision (`of_product`),
and what that and the memory's bandwidth leave at this intensity (`of_roof`).

Each --option is a further case of every stack: the same block, compiled with this option of XLA
beside those that it always has, or in their place. `a=1,b=2` sets two at once; a switch is true or
false.
"""

import argparse
import re
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from benchmarks import limits, lines, material, steps
from vinerl.data.fold import Transitions
from vinerl.errors import InputError
from vinerl.rl.learner import AgentConfig

GROW = {
    "seeds": (1, 2, 4, 8, 12, 24, 48),
    "batch": (128, 256, 512, 1024, 2048, 4096),
    "K": (1, 2, 5, 10, 20, 50),
    "width": (128, 256, 512, 1024, 2048),
    "obs": (29, 128, 512, 2048),
    "rows": (10_000, 100_000, 1_000_000, 4_000_000),
}
SMALL = {"seeds": (1, 2), "batch": (8, 16), "K": (1, 3), "width": (8, 16)}
SMALL |= {"obs": (5, 29), "rows": (1000, 2000)}
COLUMNS = ("case", "grow", "members", "batch", "K", "width", "obs", "rows", "precision", "option")
COLUMNS += ("ms_per_step", "ms_per_member", "compile_s", "tflops", "gb_s", "peak_gb")
COLUMNS += ("times_peers", "of_product", "of_roof")


class Case(NamedTuple):
    config: AgentConfig
    members: int
    obs: int
    rows: int
    grow: str | None = None  # the size that is varied
    option: str | None = None  # of the compiler, as it was given

    @property
    def facts(self) -> dict[str, Any]:
        cfg = self.config
        sizes = {"batch": cfg.batch_size, "K": getattr(cfg, "flow_steps", None)}
        sizes |= {"width": cfg.critic_hidden[-1], "obs": self.obs, "rows": self.rows}
        facts = {"grow": self.grow, "members": self.members, "precision": cfg.precision}
        return facts | sizes | {"option": self.option}


def main(args: list[str]) -> None:
    given = options().parse_args(args)
    config, make = material.agent(given.agent, material.settings(given.set), given.small)
    cases = plan(given, config)
    said = lines.Lines("update", given)
    products = {
        name: said.case(
            {"case": "product", "precision": name},
            partial(limits.product, name, given.small, given.seconds),
        )
        for name in limits.PRECISIONS
    }
    copy = said.case({"case": "copy"}, partial(limits.copy, given.small, given.seconds))

    def data(case: Case) -> Transitions:
        return material.random_data(case.rows, case.obs, given.action)

    def peers(case: Case) -> lines.Row:
        return steps.peers(case.config, make, data(case), given.seconds)

    @cache  # lists of sizes have one program in common
    def project(case: Case) -> lines.Row:
        stack = case.config, make, case.members, data(case)
        found = steps.stacked(*stack, given.seconds, compiler_options(case.option))
        return found | ratios(found, theirs, products.get(case.config.precision, {}), copy)

    alone = base(given, replace(config, precision="float32"))._replace(members=1)
    theirs = said.case({"case": "peers"} | alone.facts, partial(peers, alone))
    for case in cases:
        work = partial(project, case._replace(grow=None))
        said.case({"case": "project"} | case.facts, work)
    said.show(COLUMNS)


def options() -> argparse.ArgumentParser:
    parser = lines.parser("update", __doc__)
    parser.add_argument("--agent", default="vine")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a field of its config"
    )
    parser.add_argument("--stacks", default="1,4,12", help="members, where nothing is varied")
    parser.add_argument(
        "--grow",
        action="append",
        default=[],
        metavar="NAME[=VALUES]",
        help=f"vary {', '.join(GROW)} or, each in turn, all; values with commas, else ours",
    )
    parser.add_argument("--members", type=int, default=4, help="where another size is varied")
    parser.add_argument("--obs", type=int, default=material.OBS, help="size of an observation")
    parser.add_argument("--action", type=int, default=material.ACTION)
    parser.add_argument("--rows", type=int, help=f"of data ({material.ROWS})")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="XLA's: every stack once more, compiled with it",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="that a case is timed for")
    parser.add_argument("--small", action="store_true", help="tiny networks, little data")
    return parser


def plan(given: argparse.Namespace, config: AgentConfig) -> list[Case]:
    """Every stack to be timed, each with the compiler's usual options first."""
    for option in given.option:
        compiler_options(option)  # what cannot be read is said before anything is timed
    chosen = (None, *given.option)
    return [case._replace(option=one) for case in stacks(given, config) for one in chosen]


def stacks(given: argparse.Namespace, config: AgentConfig) -> list[Case]:
    first = base(given, config)
    if not given.grow:
        return [first._replace(members=n) for n in numbers("--stacks", given.stacks)]
    lists = SMALL if given.small else GROW
    there = [name for name in GROW if name != "K" or hasattr(config, "flow_steps")]
    found = []
    for said in given.grow:
        name, several, values = said.partition("=")
        if name not in (*GROW, "all") or (several and name == "all"):
            raise InputError(f"--grow {said}: expected {', '.join(GROW)} (perhaps =1,2,3) or all")
        if name not in (*there, "all"):
            raise InputError(f"--grow {said}: {given.agent} takes no steps to make an action")
        for size in there if name == "all" else [name]:
            sizes = numbers(f"--grow {size}", values) if several else lists[size]
            found += [grown(first, size, value) for value in sizes]
    return found


def base(given: argparse.Namespace, config: AgentConfig) -> Case:
    rows = given.rows or (material.SMALL_ROWS if given.small else material.ROWS)
    return Case(config, given.members, given.obs, rows)


def grown(case: Case, name: str, value: int) -> Case:
    """The same case with one size set."""
    cfg, case = case.config, case._replace(grow=name)
    if name in ("seeds", "obs", "rows"):
        return case._replace(**{"members" if name == "seeds" else name: value})
    widths = {
        role: (value,) * len(getattr(cfg, role)) for role in ("actor_hidden", "critic_hidden")
    }
    sizes: dict[str, dict[str, Any]] = {"batch": {"batch_size": value}, "K": {"flow_steps": value}}
    return case._replace(config=replace(cfg, **(sizes | {"width": widths})[name]))


def compiler_options(option: str | None) -> dict[str, Any] | None:
    """From a=1,b=2; a value may have commas of its own (xla_gpu_enable_command_buffer=A,B)."""
    if option is None:
        return None
    said = re.split(r",(?=\w+=)", option)
    return material.settings(said, "--option", "xla_gpu_dot_merger_threshold_mb=32")


def ratios(found: lines.Row, theirs: lines.Row, product: lines.Row, copy: lines.Row) -> lines.Row:
    """To what could be measured in the same run."""
    rate, said = found["tflops"], {}
    if "tflops" in theirs:
        said["times_peers"] = rate / theirs["tflops"]
    if "tflops" in product:
        said["of_product"] = rate / product["tflops"]
    if "tflops" in product and "gb_s" in copy:
        said["of_roof"] = rate / min(product["tflops"], found["intensity"] * copy["gb_s"] / 1e3)
    return said


def numbers(flag: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"{flag} {text}: expected whole numbers with commas") from error
