"""`vinerl reproduce spikes`: where the actor's gradient leaps, and what keeps it from doing so.

spikes.md    how often and how far, for each variant, beside the first one, seed by seed
spikes.png   largest gradient norms and estimates over the steps, a line a seed

`vinerl reproduce spikes-small` trains what this is about; nothing is trained here.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vinerl import disk
from vinerl.bench.numbers import results, summary
from vinerl.bench.numbers.results import Cell, length
from vinerl.bench.numbers.stats import Estimate, bootstrap
from vinerl.bench.numbers.summary import NONE
from vinerl.bench.plans.entries import Entry
from vinerl.bench.studies import ablation
from vinerl.bench.studies.ablation import Block, Variant
from vinerl.bench.studies.precision import ESTIMATE, GRADIENT, series
from vinerl.bench.studies.table1_page import grid
from vinerl.errors import InputError

GROUPS = "spikes"  # sections of the queue whose name begins so
BEGINNING = 0.1  # of a run: norms fall there, from wherever they start
LEAP = 10.0  # times the seed's own median
HEAD = ["sampler", "regulariser", "other", "seeds", "with a spike", "spikes in 1,000 steps"]
HEAD += ["median norm", "largest", "largest estimate", "largest norm, times the first line's"]
HEAD += ["chance"]
INTRO = f"""# Spikes of the actor's gradient

Every line of a run's log has the largest norm since the line before. A spike is a line with more
than {LEAP:g} times the median of its seed, after the first tenth of the run. Median norm: of the
seeds' medians; largest norm and largest number in any estimate: of all lines and seeds after that
tenth. The last two columns compare each seed's largest norm with that of the same seed in the first
line of the table: geometric mean and 95% bootstrap interval over seeds, and how often a difference
as large comes out when every seed's sign is a coin's. {NONE}: missing.
"""


class Seen(NamedTuple):
    """Lines of a cell's logs after the beginning: [S, N]."""

    steps: int  # between two lines
    norms: np.ndarray
    estimates: np.ndarray

    @property
    def spikes(self) -> np.ndarray:
        return self.norms > LEAP * np.median(self.norms, axis=1, keepdims=True)


def cost(folder: Path) -> str:
    there = [cell for block in blocks(folder) for v in block.variants if (cell := _cell(v))]
    return f"nothing is trained: {len(there)} published cells are looked at, in seconds"


def reproduce(folder: Path, out: Path) -> list[Path]:
    found = blocks(folder)
    drawn = [block for block in found if any(map(_cell, block.variants))]
    if not drawn:
        raise InputError(
            f"{folder} has nothing of this; vinerl reproduce spikes-small --folder {folder} "
            "measures it"
        )
    out.mkdir(parents=True, exist_ok=True)
    page, text = out / "spikes.md", markdown(found)
    disk.write(page, text.encode())
    print(text)
    return [page, draw(drawn, out / "spikes.png")]


def blocks(folder: Path) -> list[Block]:
    rows = summary.rows(results.read(folder))
    return [block for block, _ in ablation.sections(folder, rows, about_spikes)]


def about_spikes(entry: Entry) -> bool:
    return entry.group.startswith(GROUPS)


def seen(cell: Cell) -> Seen:
    """Infinite for what was not finite."""
    (steps, norms), (_, estimates) = (_late(cell, name) for name in (GRADIENT, ESTIMATE))
    return Seen(int(steps[1] - steps[0]), norms, estimates)


def _late(cell: Cell, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [N] and values [S, N] after the beginning."""
    told = series(cell, name)
    steps = told[0][0]
    if not all(np.array_equal(x, steps) for x, _ in told):
        raise InputError(
            f"{cell.seeds[0].path.parent}: its seeds were logged at different steps, so their "
            "spikes cannot be counted together; run them with one --log-every"
        )
    late = steps > BEGINNING * cell.recipe["steps"]
    values = np.array([y[late] for _, y in told])
    return steps[late], np.where(np.isnan(values), np.inf, values)


def times(cell: Cell, first: Cell) -> tuple[Estimate, float]:
    """Largest norms to those of the same seeds in another cell, and the chance of as much."""
    largest = lambda of: dict(
        zip((seed.seed for seed in of.seeds), seen(of).norms.max(axis=1), strict=True)
    )
    mine, others = largest(cell), largest(first)
    logs = np.log10([mine[seed] / others[seed] for seed in mine if seed in others])
    ratio = Estimate(*(10 ** np.array([logs.mean(), *bootstrap(logs)])))
    return ratio, ablation.coin(logs)


def markdown(found: Sequence[Block]) -> str:
    text = [INTRO]
    for block in found:
        first = _cell(block.variants[0])
        text += [f"## {block.group}: {block.task}, {length(block.steps)} steps", ""]
        text += [grid([HEAD, *(_row(variant, first) for variant in block.variants)]), ""]
    return "\n".join(text)


def _cell(variant: Variant) -> Cell | None:
    """Of the one alpha that there is."""
    return next(iter(variant.there.values()), None)


def _row(variant: Variant, first: Cell | None) -> list[str]:
    about, cell = [variant.sampler, variant.regulariser, variant.other], _cell(variant)
    if not cell:
        return [*about, *[NONE] * (len(HEAD) - len(about))]
    found = seen(cell)
    spikes = found.spikes
    numbers = [
        str(len(spikes)),
        str(int(spikes.any(axis=1).sum())),
        f"{spikes.mean() / found.steps * 1000:.2f}",
        f"{np.median(np.median(found.norms, axis=1)):.3g}",
        f"{found.norms.max():.3g}",
        f"{found.estimates.max():.3g}",
    ]
    if not first or first is cell:
        return [*about, *numbers, NONE, NONE]
    ratio, chance = times(cell, first)
    told = "{:.2g} [{:.2g}, {:.2g}]".format(*map(float, ratio))
    return [*about, *numbers, told, f"{chance:.2g}"]


def draw(found: Sequence[Block], path: Path) -> Path:
    """A row of norms and one of estimates a block, a column for each variant that is there."""
    from vinerl.bench.pictures.plots import GRID, STYLE, plt, save

    there = [[variant for variant in block.variants if _cell(variant)] for block in found]
    columns = max(map(len, there))
    with plt.rc_context(STYLE):
        shape = {"sharey": "row", "figsize": (1.9 * columns + 0.6, 4.2 * len(found))}
        figure, panels = plt.subplots(2 * len(found), columns, **shape, **GRID)
        for variants, norms, estimates in zip(there, panels[::2], panels[1::2], strict=True):
            for variant, above, below in zip(variants, norms, estimates, strict=False):
                _lines(above, variant, GRADIENT)
                _lines(below, variant, ESTIMATE)
                words = ablation.kind(variant.regulariser, variant.other)
                above.set_title(textwrap.fill(f"{variant.sampler}, {words}", 22), loc="left")
            norms[0].set_ylabel("actor's gradient norm")
            estimates[0].set_ylabel("number in an estimate")
            for axes in [*norms[len(variants) :], *estimates[len(variants) :]]:
                axes.axis("off")
        tasks = ", ".join(dict.fromkeys(block.task for block in found))
        words = f"{tasks}: the largest of each {_every(there)} gradient steps, a line a seed"
        return save(figure, path, head=words, dpi=120)


def _every(there: Sequence[Sequence[Variant]]) -> str:
    """Steps between two lines of their logs."""
    cells = [cell for variants in there for variant in variants if (cell := _cell(variant))]
    return " or ".join(map(str, sorted({seen(cell).steps for cell in cells})))


def _lines(axes, variant: Variant, name: str) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    from vinerl.bench.pictures.plots import COLOURS

    cell = _cell(variant)
    assert cell is not None
    for i, (x, y) in enumerate(series(cell, name)):
        axes.plot(x, y, color=COLOURS[i % len(COLOURS)], lw=0.8)
    axes.set_yscale("log")
    if name == ESTIMATE:  # a decade or two, of which powers of ten alone would tell little
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x else "0")
