"""Table 1's picture: our learning curves over QAM's, a panel a task and agent."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from vinerl.bench.numbers import beside, reference, results, summary
from vinerl.bench.numbers.reference import FINAL, Key
from vinerl.bench.numbers.results import Seed, length
from vinerl.bench.numbers.summary import Row
from vinerl.bench.run import tasks
from vinerl.bench.studies.table1 import AGENTS

EVERY = 50_000  # steps between the evaluations of others
ACROSS = 4
GREY = "#8c8c8c"


def draw(seeds: Sequence[Seed], path: Path) -> Path | None:
    """None where there is nothing of ours."""
    from vinerl.bench.pictures.plots import COLOURS, GRID, STYLE, band, plt, save

    found = panels(seeds)
    if not found:
        return None
    across = min(ACROSS, len(found))
    down = -(-len(found) // across)
    with plt.rc_context(STYLE):
        size = (3.6 * across, 2.9 * down)
        figure, axes = plt.subplots(down, across, figsize=size, sharey=True, **GRID)
        for empty in axes.flat[len(found) :]:
            empty.set_axis_off()
        for at, rows in zip(axes.flat, found, strict=False):
            for colour, row in zip(COLOURS, rows, strict=False):
                curve = row.lines["success"]
                recipe = row.cell.recipe
                told = f"ours, to {length(row.steps)}, {results.precision(recipe)}"
                told += results.which_data(recipe)
                band(at, curve.x, curve.y.T, told, colour)
            _others(at, rows)
            title = f"{rows[0].task}: {rows[0].cell.recipe['agent']['name']}"
            at.set_title(title, loc="left", fontsize=8.5)
            at.set(xlim=(0, None), ylim=(-0.03, 1.03), xlabel="gradient steps")
            at.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
            at.legend(frameon=False, fontsize=7)
        for at in axes[:, 0]:
            at.set_ylabel("success")
        words = (
            "Our cells of table 1 on the way, mean and 95% bootstrap interval over seeds, and in "
            "grey what was published: QAM's curve (12 seeds); for VINE the paper's interval at 1M"
        )
        return save(figure, path, head=words, dpi=120)


def panels(seeds: Sequence[Seed]) -> list[list[Row]]:
    """Our rows of each task and agent that the table has."""
    about = lambda row: (row.task, AGENTS.index(row.cell.recipe["agent"]["name"]))
    known = lambda row: row.cell.recipe["agent"]["name"] in AGENTS and "success" in row.lines
    rows = [row for row in summary.rows(seeds) if known(row) and _counterpart(row)]
    rows = [row for row in rows if summary.as_published(row.cell.recipe)]
    return [list(of) for _, of in groupby(sorted(rows, key=about), about)]


def _counterpart(row: Row) -> reference.Published | None:
    return beside.counterpart(row.cell.recipe, FINAL)


def _others(at, rows: Sequence[Row]) -> None:
    task, agent = tasks.named(rows[0].cell.recipe["task"]), rows[0].cell.recipe["agent"]["name"]
    key = Key(agent, task.domain, int(task.name.removesuffix("-v0")[-1]))
    most = max(row.lines["success"].x[-1] for row in rows)
    curve = reference.qam_curves().get(key)
    if curve:
        x, mean, low, high = (np.asarray(line)[curve.steps < most + EVERY] for line in curve)
        at.fill_between(x, low, high, color=GREY, alpha=0.25, lw=0)
        at.plot(x, mean, color=GREY, lw=1.2, marker="o", ms=3, label="published")
    elif end := _counterpart(rows[0]):
        at.axhspan(end.score.low, end.score.high, color=GREY, alpha=0.2, lw=0)
        at.axhline(end.score.mean, color=GREY, lw=1, ls="--", label="published, at 1M")
