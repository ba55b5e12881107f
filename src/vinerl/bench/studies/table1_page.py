"""Table 1 in words: Markdown for people, CSV for programs."""

import csv
import io
from collections.abc import Sequence

from vinerl.bench.numbers import beside, reference
from vinerl.bench.numbers.beside import Pair
from vinerl.bench.numbers.reference import FINAL
from vinerl.bench.numbers.results import length
from vinerl.bench.numbers.summary import NONE
from vinerl.bench.run.tuned import DOMAINS
from vinerl.bench.studies.table1 import AGENTS, ALL, PLACES, Number

MARKS = {"inside": "in", "outside": "**out**", "alone": "alone"}
USUAL = "bfloat16"
INTRO = f"""# Table 1

Success in percent, mean and 95% interval. *Published* are {reference.QAM}, with intervals over \
seeds; for VINE, whose seeds were not published, the paper's own. *Ours* were run as published, on \
the data that `vinerl results table` tells; behind the interval over seeds stands how many there \
are, and the precision if it is not {USUAL}. **in**: the 95% interval of the difference, both \
sides' seeds drawn anew, has 0 in it (VINE, and others before 1M steps: the published mean drawn \
from its interval); **out**: it has not; **alone**: nobody published anything after as many steps. \
Cells after other numbers of steps stand in rows of their own, and {NONE} is a cell that nobody has.
"""


def markdown(found: Sequence[Number], pairs: Sequence[Pair]) -> str:
    text = [INTRO, counted(found)]
    for domain in DOMAINS:
        text += [f"\n## {domain}\n", grid(_rows(found, domain))]
    text += ["\n## All 40 tasks\n"]
    text += ["Intervals are over tasks: how much hangs on which were chosen.\n"]
    text += [grid(_rows(found, ALL)), "\n## After the same steps\n"]
    told = [grid(beside.table(pairs)), ""] if pairs else []
    return "\n".join([*text, *told, beside.summed_up(pairs), ""])


def counted(found: Sequence[Number]) -> str:
    """How many cells there are after how many steps; of several in one place, that with most
    seeds."""
    cells = [x for x in found if x.whose == "ours" and x.task]
    whole = sum(x.steps == FINAL for x in found if x.whose == "paper" and x.task)
    parts = []
    for steps in sorted({x.steps for x in cells}):
        some = [x for x in cells if x.steps == steps and x.verdict != "missing"]
        most = {(x.domain, x.task, x.agent): x for x in sorted(some, key=lambda x: x.over or 0)}
        there = [x.verdict for x in most.values()]
        kinds = ", ".join(f"{there.count(kind)} {kind}" for kind in MARKS if kind in there)
        parts.append(f"{len(there)} after {length(steps)} steps{f' ({kinds})' if kinds else ''}")
    return f"Of {whole} cells there are {', '.join(parts)}."


def grid(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *rest])


def _rows(found: Sequence[Number], domain: str) -> list[list[str]]:
    rows = [["task", "steps", "whose", *AGENTS]]
    for task in (task for place, task in PLACES if place == domain):
        of = [x for x in found if (x.domain, x.task) == (domain, task) and x.whose != "paper"]
        for steps in sorted({x.steps for x in of}):
            for whose in ("published", "ours"):
                line = [x for x in of if (x.steps, x.whose) == (steps, whose)]
                rows.append([str(task or ALL), length(steps), whose, *map(_cell(line), AGENTS)])
    return rows


def _cell(line: Sequence[Number]):
    """From an agent to its words."""
    return lambda agent: "<br>".join(_words(x) for x in line if x.agent == agent) or NONE


def _words(x: Number) -> str:
    if x.mean is None or x.low is None or x.high is None:
        return NONE
    score = f"{100 * x.mean:.0f} [{100 * x.low:.0f}, {100 * x.high:.0f}]"
    precise = f", {x.precision}" if x.precision not in ("", USUAL) else ""
    return f"{score} ({x.over}{precise}) {MARKS[x.verdict]}" if x.verdict else score


def as_csv(found: Sequence[Number]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Number._fields)
    for x in found:
        writer.writerow(f"{v:.6g}" if isinstance(v, float) else v for v in x)
    return text.getvalue()
