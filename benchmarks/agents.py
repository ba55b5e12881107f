"""The time of a gradient step of every agent, at the sizes its protocol has for antmaze-large.

python -m benchmarks agents --markdown
python -m benchmarks agents --agents vine,fql --set precision=bfloat16
python -m benchmarks agents --small                   a rehearsal on a CPU

A stack of four seeds each and, of some, one seed alone. Random data.
"""

from functools import partial

from benchmarks import lines, material, steps
from benchmarks.update import numbers
from vinerl.agents import AGENTS

ALONE = ("vine", "fql", "qam")  # timed as one member, too
COLUMNS = ("agent", "members", "batch", "ms_per_step", "ms_per_member", "compile_s")
COLUMNS += ("gflop_per_step", "tflops")


def main(args: list[str]) -> None:
    parser = lines.parser("agents", __doc__)
    parser.add_argument("--agents", default=",".join(AGENTS))
    parser.add_argument("--members", default="4", help="of a stack; several with commas")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a field of their configs"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="that a case is timed for")
    parser.add_argument("--small", action="store_true", help="tiny networks, little data")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    given = parser.parse_args(args)

    fields, names = material.settings(given.set), given.agents.split(",")
    agents = {name: material.agent(name, fields, given.small) for name in names}
    stacks = [(name, members) for members in numbers("--members", given.members) for name in names]
    rows = material.SMALL_ROWS if given.small else material.ROWS
    data = material.random_data(rows, material.OBS, material.ACTION)
    said = lines.Lines("agents", given)
    for name, members in dict.fromkeys(stacks + [(n, 1) for n in names if n in ALONE]):
        config, make = agents[name]
        facts = {"agent": name, "members": members, "batch": config.batch_size}
        facts |= {"precision": config.precision}
        said.case(facts, partial(steps.stacked, config, make, members, data, given.seconds))
    said.show(COLUMNS, given.markdown)
