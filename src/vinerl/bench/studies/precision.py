"""`vinerl reproduce precision`: what is published in several precisions, side by side.

precision.md    largest gradient norms and estimates, areas under the curves and their differences
precision.png   a row for each recipe: both over the steps, a line a seed, and success

`vinerl reproduce precision-spikes` and `precision-curves` measure what this is about.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vinerl import disk
from vinerl.bench.numbers import results, stats, summary
from vinerl.bench.numbers.results import Cell, Seed
from vinerl.bench.numbers.stats import Estimate
from vinerl.bench.numbers.summary import NONE, Row
from vinerl.errors import InputError

# The most precise first: others are compared with the first there is.
ORDER = ("full-float32", "float32", "bfloat16")
GRADIENT, ESTIMATE = "grad_norm/actor_max", "actor/estimate_max"


class Same(NamedTuple):
    """Cells that differ in their precision alone."""

    name: str
    rows: dict[str, Row]  # by precision, in their order
    evaluated: list[int]  # after these steps, all of them


def cost(folder: Path) -> str:
    cells = sum(len(same.rows) for same in compared(folder))
    return f"nothing is trained: {cells} published cells are compared, in seconds"


def reproduce(folder: Path, out: Path) -> list[Path]:
    found = compared(folder)
    if not found:
        raise InputError(
            f"{folder} has nothing in more than one precision; vinerl reproduce precision-spikes "
            f"--folder {folder} measures it"
        )
    out.mkdir(parents=True, exist_ok=True)
    table = out / "precision.md"
    disk.write(table, markdown(found).encode())
    print(markdown(found))
    return [table, draw(found, out / "precision.png")]


def compared(folder: Path) -> list[Same]:
    """What was evaluated twice or more in two precisions or more."""
    groups: dict[str, dict[str, Row]] = {}
    for row in summary.rows(shared(results.read(folder))):
        if "success" in row.lines:
            recipe = row.cell.recipe
            groups.setdefault(but_precision(recipe), {})[results.precision(recipe)] = row
    several = [_same(rows) for rows in groups.values() if len(rows) > 1]
    return [same for same in several if len(same.evaluated) > 1]


def shared(seeds: Sequence[Seed]) -> list[Seed]:
    """Those that are there in every precision of their recipe; all of it where none is."""
    there: dict[str, dict[str, set[int]]] = {}
    for seed in seeds:
        found = there.setdefault(but_precision(seed.recipe), {})
        found.setdefault(results.precision(seed.recipe), set()).add(seed.seed)
    kept = {key: set.intersection(*found.values()) for key, found in there.items()}
    which = lambda seed: kept[but_precision(seed.recipe)] or {seed.seed}
    return [seed for seed in seeds if seed.seed in which(seed)]


def but_precision(recipe: dict[str, Any]) -> str:
    """A hash of the rest of it."""
    agent = recipe["agent"]
    rest = {name: value for name, value in agent["config"].items() if name != "precision"}
    return results.digest(recipe | {"agent": agent | {"config": rest}})


def _same(rows: dict[str, Row]) -> Same:
    rows = {name: rows[name] for name in ORDER if name in rows}
    first = next(iter(rows.values()))
    evaluated = set.intersection(*(set(row.lines["success"].x.tolist()) for row in rows.values()))
    name = f"{first.task}, {results.name(first.cell.recipe)}, {first.length}"
    return Same(name, rows, sorted(evaluated))


def series(cell: Cell, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Steps and values of every seed, NaN for what was not finite."""
    told = [seed.facts["metrics"].get(name) for seed in cell.seeds]
    return [(np.array(one["step"]), np.array(one["value"], float)) for one in told if one]


def areas(row: Row, evaluated: Sequence[int]) -> np.ndarray:
    """Of every seed, the mean height of its curve."""
    curve = row.lines["success"]
    return stats.area(np.array(evaluated), curve.y[:, np.isin(curve.x, evaluated)].T)


def difference(row: Row, other: Row, evaluated: Sequence[int]) -> Estimate | None:
    """Of the areas, over the seeds that both have: these share their starts and batches."""
    seeds = [[seed.seed for seed in of.cell.seeds] for of in (row, other)]
    common = sorted(set(seeds[0]) & set(seeds[1]))
    if not common:
        return None
    of_row, of_other = (
        areas(of, evaluated)[[mine.index(seed) for seed in common]]
        for of, mine in zip((row, other), seeds, strict=True)
    )
    return stats.difference(of_row, of_other, (common, common))


def markdown(found: Sequence[Same]) -> str:
    rows = [
        "Of each precision: the largest norm of the actor's gradient and the largest number in any "
        "estimate on the way, over all steps and the seeds that all precisions have; and the mean "
        "height of the success curve, with its difference to the first line's, seed by seed (95% "
        "bootstrap intervals). On a GPU, float32 is multiplied as TF32 unless it is full.",
    ]
    for same in found:
        rows += ["", f"| {same.name} | seeds | gradient | estimate | area | difference |"]
        rows.append("|---|---|---|---|---|---|")
        first = next(iter(same.rows.values()))
        for precision, row in same.rows.items():
            largest = [_largest(row.cell, name) for name in (GRADIENT, ESTIMATE)]
            each = areas(row, same.evaluated)
            area = Estimate(each.mean(), *stats.bootstrap(each))
            apart = difference(row, first, same.evaluated) if row is not first else None
            cells = [precision, _seeds(row.cell), *largest, _told(area, ""), _told(apart, "+")]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _seeds(cell: Cell) -> str:
    frozen = sum(map(summary.frozen, cell.seeds))
    return f"{len(cell.seeds)}, {frozen} frozen" if frozen else str(len(cell.seeds))


def _largest(cell: Cell, name: str) -> str:
    values = np.concatenate([np.empty(0), *(y for _, y in series(cell, name))])
    if not len(values):
        return NONE
    return f"{values.max():.3g}" if np.isfinite(values).all() else "not finite"


def _told(found: Estimate | None, sign: str) -> str:
    if found is None:
        return NONE
    value, low, high = (format(float(x), f"{sign}.3f") for x in found)
    return f"{value} [{low}, {high}]"


def draw(found: Sequence[Same], path: Path) -> Path:
    from vinerl.bench.pictures.plots import COLOURS, GRID, STYLE, band, plt, save

    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(len(found), 3, figsize=(12, 2.9 * len(found)), **GRID)
        for (gradient, estimate, success), same in zip(grid, found, strict=True):
            for precision, row in same.rows.items():
                colour = COLOURS[ORDER.index(precision)]
                for axes, name in ((gradient, GRADIENT), (estimate, ESTIMATE)):
                    for i, (x, y) in enumerate(series(row.cell, name)):
                        axes.plot(x, y, color=colour, lw=1, label=None if i else precision)
                curve = row.lines["success"]
                band(success, curve.x, curve.y.T, precision, colour)
            gradient.set_title(textwrap.fill(same.name, 42), loc="left")
            gradient.set_ylabel("largest actor gradient norm")
            estimate.set_ylabel("largest number in an estimate")
            success.set(ylim=(-0.03, 1.03), ylabel="success")
            gradient.legend(frameon=False, fontsize=8)
            for axes in (gradient, estimate, success):
                axes.set_xlabel("gradient steps")
                axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
            for axes in (gradient, estimate):
                axes.set_yscale("log")
        words = (
            "Since the last log, a line a seed; success with mean and 95% bootstrap interval. On a "
            "GPU, float32 is multiplied as TF32 unless it is full"
        )
        return save(figure, path, head=words, dpi=120)
