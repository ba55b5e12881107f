"""The ablation's tables."""

from collections.abc import Sequence

import numpy as np

from vinerl.bench.numbers.results import length
from vinerl.bench.numbers.stats import bootstrap
from vinerl.bench.numbers.summary import NONE
from vinerl.bench.studies.ablation import MEASURES, Block, Gap, Variant, gaps, measures
from vinerl.bench.studies.table1_page import grid

HEAD = ["sampler", "regulariser", "other", "best alpha", "seeds", *MEASURES.values()]
GAPS = ["success of", "under", "alpha", "seeds", "difference", "chance"]
INTRO = f"""# Sampler and regulariser

Every combination at the alpha with the highest success at the end (of equals, with the higher
curve), which flatters all of them a little: it is chosen by the same seeds. Success with its 95%
bootstrap interval over seeds; spread of the actions in one state and the gradient that arrives at
the sampler's first estimate, both at the end, means over seeds; the largest gradient norm of the
actor and the largest estimate, of any step and seed. {NONE}: missing.
"""
DOUBT = """*Chance* is how often a difference as large comes out when every seed's sign is a coin's.
With 2 seeds it is never below 0.5, with 4 never below 0.125: whatever the interval says, so few
seeds cannot settle one comparison."""


SHORT = """Runs were cut off: everything after the last evaluation on the way that each of them has,
with the few episodes of such an evaluation, also of runs that ended. Of the gradient at the first
estimate only the last line of a log is kept: it is from there."""


def markdown(found: Sequence[Block]) -> str:
    text, tests = [INTRO], []
    for block in found:
        made = gaps(block)
        text += [f"## {block.group}: {block.task}, {steps(block)}", ""]
        text += [SHORT, ""] if block.of else []
        text += [grid([HEAD, *map(_row, block.variants)]), "", "Seed by seed:", ""]
        text += [grid([GAPS, *map(_gap, made)]) if made else f"{NONE} (no pair is there)", ""]
        tests += made
    return "\n".join([*text, "## How many tests", "", counted(tests), ""])


def steps(block: Block) -> str:
    whole = f" of {length(block.of)}" if block.of else ""
    return f"{length(block.steps)}{whole} steps"


def counted(tests: Sequence[Gap]) -> str:
    apart = sum(not gap.difference.low <= 1e-9 or not gap.difference.high >= -1e-9 for gap in tests)
    words = f"Differences looked at: {len(tests)}, {apart} of them with no 0 in their interval."
    return f"{words} {DOUBT}" if tests else words


def _row(variant: Variant) -> list[str]:
    about, alpha = [variant.sampler, variant.regulariser, variant.other], variant.best
    if alpha is None:
        return [*about, *[NONE] * 7]
    there, asked, cell = len(variant.there), len(variant.cells), variant.there[alpha]
    missing = f", {asked - there} missing" if there < asked else ""
    tried = f" (of {there}{missing})" if asked > 1 else ""
    seen = measures(cell)
    numbers = [
        "{:.2f} [{:.2f}, {:.2f}]".format(cell.scores.mean(), *bootstrap(cell.scores)),
        _number(seen["spread"].mean()),
        _number(seen["first"].mean()),
        _number(seen["gradient"].max()),
        _number(seen["estimate"].max()),
    ]
    return [*about, f"{alpha:g}{tried}", str(len(cell.seeds)), *numbers]


def _number(value: float) -> str:
    return NONE if np.isnan(value) else "not finite" if np.isinf(value) else f"{value:.2g}"


def _gap(gap: Gap) -> list[str]:
    told = "{:+.2f} [{:+.2f}, {:+.2f}]".format(*map(float, gap.difference))
    return [gap.what, gap.under, gap.at, str(gap.seeds), told, f"{gap.chance:.3g}"]
