"""`vinerl reproduce curves`: learning curves of all that is published, beside what others have.

curves.jsonl   one object a line: every seed's curve, and the curves others published
curves.md      both at the steps that both have
curves.png     a panel a task; of more cells than there are colours, those as published
"""

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vinerl import disk
from vinerl.bench.numbers import reference, results, summary
from vinerl.bench.numbers.reference import Curve
from vinerl.bench.numbers.stats import bootstrap
from vinerl.bench.numbers.summary import Row
from vinerl.bench.run import tasks
from vinerl.errors import InputError

BESIDE = {"rebrac": "o", "fql": "s", "fbrac": "^", "qam": "D"}  # shown with every task, as marks
WIDTH = 44  # letters of a name in a line of its legend
EVERY = 50_000  # steps between the evaluations of others


class Panel(NamedTuple):
    """A task: our cells, and what others have up to its last step or the next after it."""

    task: str
    rows: list[Row]
    published: dict[str, Curve]  # by agent


def cost(folder: Path) -> str:
    cells = sum(len(panel.rows) for panel in panels(folder))
    return f"nothing is trained: {cells} published cells are drawn, in seconds"


def reproduce(folder: Path, out: Path) -> list[Path]:
    found = panels(folder)
    out.mkdir(parents=True, exist_ok=True)
    raw, table = out / "curves.jsonl", out / "curves.md"
    disk.write(raw, "".join(json.dumps(x) + "\n" for x in told(found)).encode())
    disk.write(table, markdown(found).encode())
    print(markdown(found))
    return [raw, table, draw(found, out / "curves.png")]


def panels(folder: Path) -> list[Panel]:
    several = lambda row: "success" in row.lines and len(row.lines["success"].x) > 1
    rows = list(filter(several, summary.rows(results.read(folder))))
    if not rows:
        raise InputError(
            f"{folder} has no curves; vinerl results add RUN --folder {folder} does it"
        )
    return [_panel(task, _named(list(of))) for task, of in groupby(rows, lambda row: row.task)]


def _named(rows: list[Row]) -> list[Row]:
    """A task's, with their lengths where one name has several."""
    count = Counter(row.name for row in rows)
    longer = lambda row: f"{row.name}, to {row.length}" if count[row.name] > 1 else row.name
    return [row._replace(name=longer(row)) for row in rows]


def _panel(task: str, rows: list[Row]) -> Panel:
    known = tasks.named(rows[0].cell.recipe["task"])
    number = int(known.name.removesuffix("-v0")[-1])
    most = max(row.lines["success"].x[-1] for row in rows)
    ours = [row.cell.recipe["agent"]["name"] for row in rows]
    published = {}
    for agent in dict.fromkeys([*BESIDE, *ours]):
        curve = reference.qam_curves().get(reference.Key(agent, known.domain, number))
        if curve:
            published[agent] = Curve(*(line[curve.steps < most + EVERY] for line in curve))
    return Panel(task, rows, published)


def told(found: Sequence[Panel]) -> list[dict[str, Any]]:
    """Every curve, seed by seed, and those of others."""
    rows: list[dict[str, Any]] = []
    for panel in found:
        for row in panel.rows:
            curve = row.lines["success"]
            about = {"task": panel.task, "agent": row.name, "cell": row.key}
            rows += [
                about | {"seed": seed.seed, "step": curve.x.tolist(), "success": y.tolist()}
                for seed, y in zip(row.cell.seeds, curve.y, strict=True)
            ]
        for agent, curve in panel.published.items():
            about = {"task": panel.task, "agent": agent, "origin": reference.QAM}
            lines = {name: line.tolist() for name, line in curve._asdict().items()}
            rows.append(about | lines)
    return rows


def markdown(found: Sequence[Panel]) -> str:
    rows = [
        "Mean success and 95% bootstrap interval over seeds, at the steps for which there are "
        "published curves too or, of a task without any, at the end. Ours on our data; the others "
        f"are {reference.QAM}.",
    ]
    for panel in found:
        steps = sorted({int(s) for curve in panel.published.values() for s in curve.steps})
        steps = steps or sorted({row.steps for row in panel.rows})
        head = " | ".join(map(results.length, steps))
        rows += ["", f"| {panel.task} | seeds | {head} |", "|---" * (len(steps) + 2) + "|"]
        for row in panel.rows:
            curve = row.lines["success"]
            at = {int(x): y for x, y in zip(curve.x, curve.y.T, strict=True)}
            cells = [_cell(at[s].mean(), *bootstrap(at[s])) if s in at else "–" for s in steps]
            rows.append(f"| {row.name} | {len(row.cell.seeds)} | {' | '.join(cells)} |")
        for agent, curve in panel.published.items():
            cells = [_cell(*three) for three in zip(*curve[1:], strict=True)]
            rows.append(f"| published {agent} | 12 | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _cell(mean: float, low: float, high: float) -> str:
    return f"{mean:.2f} [{low:.2f}, {high:.2f}]"


def apart(groups: Sequence[Sequence[str]], colours: Sequence[str]) -> dict[str, str]:
    """A colour for each name: the same wherever it is, another than those it stands beside, as long
    as there are enough."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(name for group in groups for name in group):
        beside = [found.get(other) for group in groups if name in group for other in group]
        found[name] = min(colours, key=beside.count)
    return found


def drawn(panel: Panel, most: int) -> list[Row]:
    """Of more than so many cells those that were run as published; without any, the first."""
    if len(panel.rows) <= most:
        return panel.rows
    usual = [row for row in panel.rows if summary.as_published(row.cell.recipe)]
    return (usual or panel.rows)[:most]


def draw(found: Sequence[Panel], path: Path) -> Path:
    from vinerl.bench.pictures.plots import COLOURS, DARK, GRID, STYLE, band, plt, save

    bright = [colour for colour in COLOURS if colour != DARK]  # others' curves are grey
    chosen = [drawn(panel, len(bright)) for panel in found]
    colours = apart([[row.name for row in rows] for rows in chosen], bright)
    across = min(3, len(found))
    down = -(-len(found) // across)
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(down, across, figsize=(4.8 * across, 3.6 * down), **GRID)
        for axes in grid.flat[len(found) :]:
            axes.set_axis_off()
        for axes, panel, rows in zip(grid.flat, found, chosen, strict=False):
            for row in rows:
                curve, name = row.lines["success"], textwrap.fill(row.name, WIDTH)
                band(axes, curve.x, curve.y.T, name, colours[row.name])
            for agent, curve in panel.published.items():
                reach = np.clip([curve.mean - curve.low, curve.high - curve.mean], 0, None)
                look = {"color": "#8c8c8c", "lw": 0.8, "ls": ":", "ms": 4, "capsize": 2}
                mark = BESIDE.get(agent, "v")
                axes.errorbar(*curve[:2], reach, **look, marker=mark, label=f"{agent} (published)")
            others = len(panel.rows) - len(rows)
            more = f", {others} more in curves.md" if others else ""
            axes.set_title(f"{panel.task}{more}", loc="left")
            axes.set(ylim=(-0.03, 1.03), xlabel="gradient steps", ylabel="success")
            axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
            below = {"loc": "upper left", "bbox_to_anchor": (-0.05, -0.2), "ncols": 2}
            axes.legend(**below, frameon=False, fontsize=6.5)
        words = (
            "Published cells, mean and 95% bootstrap interval over seeds, on our data; in grey "
            "QAM's released curves on the official data (12 seeds)"
        )
        return save(figure, path, head=words, dpi=120)
