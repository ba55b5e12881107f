"""The published results as one page that needs nothing beside it: vinerl report.

Numbers stand in the page's tables, which can be read without a script. Curves and provenance travel
as JSON; `pages/report.js` draws and tells them.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vinerl import disk
from vinerl.bench.numbers import results, stats, summary
from vinerl.bench.numbers.results import Seed
from vinerl.bench.numbers.summary import NONE, Lines, Row
from vinerl.bench.pictures import show
from vinerl.bench.plans import queue
from vinerl.bench.run import provenance
from vinerl.bench.run.progress import duration
from vinerl.errors import InputError
from vinerl.train import metrics

POINTS = 120  # of a line in a plot; a longer one is drawn by pieces
LOOKS = 48  # colours times dashes that pages/report.js has


class Column(NamedTuple):
    heading: str
    meaning: str = ""  # of a number, told where it is asked for


COLUMNS = {
    "task": Column("Task"),
    "agent": Column("Agent"),
    "steps": Column("Steps"),
    "seeds": Column("Seeds"),
    "success": Column(
        "Success",
        "Share of the episodes that reached the goal in the evaluation at the end or, without "
        "one, in the last on the way: mean over seeds and its 95% bootstrap interval.",
    ),
    "area": Column(
        "Area",
        "Mean height of the success curve from the first evaluation to the last: mean over seeds "
        "and its 95% bootstrap interval.",
    ),
    "spread": Column(
        "Spread",
        "Standard deviation of the actions drawn in one state, at the end: mean over seeds.",
    ),
    "gradient": Column(
        "Largest gradient", "The largest norm of the actor's gradient in any step of any seed."
    ),
    "published": Column(
        "Published",
        "What others report for this agent on this task after as many steps, on the official "
        "data. Nothing is set beside an agent whose values are not those of its task.",
    ),
    "difference": Column(
        "Difference",
        "Success less the published mean, with a 95% interval: the seeds of both sides are drawn "
        "anew or, where no seeds were published, their mean from its own interval.",
    ),
    "notes": Column("Notes"),
}
TEXT = ("task", "agent", "notes")


class Panel(NamedTuple):
    heading: str
    across: str
    log: bool = False
    merge: Callable[..., np.ndarray] = np.mean  # makes one point of a piece


PANELS = {
    "success": Panel("Success", "gradient steps"),
    "grad_norm/step": Panel("Gradient at each denoising step, at the end", "step", log=True),
    "actor/spread": Panel("Spread of actions in one state", "gradient steps"),
    "grad_norm/actor_max": Panel(
        "Largest norm of the actor’s gradient", "gradient steps", log=True, merge=np.max
    ),
}


def write(folder: Path, out: Path) -> Path:
    """The page of everything published in a folder."""
    seeds = results.read(folder)
    if not seeds:
        raise InputError(
            f"nothing is published in {folder}; vinerl results add RUN --folder {folder} does it"
        )
    rows = summary.rows(seeds)
    parts = {
        "style": f"<style>\n{_page('report.css')}</style>",
        "head": _head(seeds, rows),
        "table": _table(rows),
        "meanings": _meanings(),
        "missing": _missing(folder / "queue.toml", seeds),
        "tasks": _tasks(rows),
        "data": _data(rows, folder),
        "script": f"<script>\n{_page('report.js')}</script>",
    }
    page = _page("report.html")
    for name, part in parts.items():  # a part has no comment: every < of a result is escaped
        page = page.replace(f"<!--{name}-->", part)
    out.parent.mkdir(parents=True, exist_ok=True)
    disk.write(out, page.encode())
    return out


def _head(seeds: Sequence[Seed], rows: Sequence[Row]) -> str:
    ours = show.short_commit({"commit": provenance.commit()})
    commits = Counter(show.short_commit(seed.facts["provenance"]) for seed in seeds)
    facts = {
        "Built": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, by commit {ours}",
        "From": f"{_several(len(seeds), 'file')}, one a seed; {_several(len(rows), 'cell')} of "
        f"{_several(len({row.task for row in rows}), 'task')}",
        "Commits": ", ".join(f"{c} ({_several(n, 'seed')})" for c, n in commits.items()),
    }
    return "\n".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items())


def _several(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)


def _table(rows: Sequence[Row]) -> str:
    """A body for each number of steps: whatever it is sorted by, those are not compared."""
    heads = "\n".join(
        f'<th scope="col" role="columnheader" class="{_kind(key)}">'
        f'<button type="button" data-sort="{key}">{column.heading}</button></th>'
        for key, column in COLUMNS.items()
    )
    bodies = []
    for steps in sorted({row.steps for row in rows}):
        of_steps = [row for row in rows if row.steps == steps]
        bodies.append(
            f'<tbody role="rowgroup" data-steps="{steps}">\n<tr role="row" class="length">'
            f'<th role="rowheader" scope="rowgroup" colspan="{len(COLUMNS)}">'
            f"After {of_steps[0].length} steps</th></tr>\n"
            + "\n".join(map(_tr, of_steps))
            + "\n</tbody>"
        )
    return f'<thead role="rowgroup"><tr role="row">\n{heads}\n</tr></thead>\n' + "\n".join(bodies)


def _tr(row: Row) -> str:
    shown = {key: (value, _marked(text)) for key, (value, text) in summary.numbers(row).items()}
    mean, low, high = (f"{100 * x:.1f}%" for x in row.cell.mean())
    shown["success"] = (
        shown["success"][0],
        f'<button type="button" title="Where this comes from">{shown["success"][1]}</button>'
        f'<i class="interval" style="--mean:{mean};--low:{low};--high:{high}"></i>',
    )
    shown |= {
        "task": (None, f'<a href="#{escape(_anchor(row.task))}">{escape(row.task)}</a>'),
        "agent": (None, escape(row.name)),
        "notes": (None, " ".join(f"<span>{escape(x)}</span>" for x in summary.notes(row.cell))),
    }
    tds = []
    for key, column in COLUMNS.items():
        value, text = shown[key]
        kind = f"{_kind(key)} none" if text == NONE else _kind(key)
        sort = "" if value is None else f' data-value="{value!r}"'
        tag, role = ('th scope="row"', "rowheader") if key == "task" else ("td", "cell")
        tds.append(
            f'<{tag} role="{role}" class="{kind}" data-key="{key}" '
            f'data-heading="{column.heading}"{sort}>{text}</{tag[:2]}>'
        )
    return f'<tr role="row" data-cell="{escape(row.key)}">' + "".join(tds) + "</tr>"


def _marked(text: str) -> str:
    """Its interval set apart, to be broken off whole."""
    value, _, interval = escape(text).partition(" [")
    return f"{value} <small>[{interval}</small>" if interval else value


def _kind(key: str) -> str:
    return "text" if key in TEXT else "number"


def _anchor(task: str) -> str:
    return f"task-{task}"


def _meanings() -> str:
    told = [column for column in COLUMNS.values() if column.meaning]
    return "\n".join(f"<dt>{c.heading}</dt><dd>{escape(c.meaning)}</dd>" for c in told)


def _missing(path: Path, seeds: Sequence[Seed]) -> str:
    """What the queue asks for and nobody has measured, folded away; nothing without a queue."""
    if not path.exists():
        return ""
    entries = queue.read(path)
    head, *status = queue.status(entries, seeds)
    left = [(e, row) for e, row in zip(entries, status, strict=True) if row[-1] != "done"]
    if not left:
        return ""
    cost = duration(sum(entry.cost().seconds for entry, _ in left))
    line = lambda tag, row: f"<tr>{''.join(f'<{tag}>{escape(x)}</{tag}>' for x in row)}</tr>"
    body = "\n".join(line("td", row) for _, row in left)
    return (
        f'<details class="missing">\n<summary>Missing: {len(left)} of {len(entries)} planned runs, '
        f"about {cost} on an H200</summary>\n"
        f'<div class="wide" tabindex="0" role="region" aria-label="Missing runs">\n<table>\n'
        f"<thead>{line('th', head)}</thead>\n<tbody>\n{body}\n</tbody>\n"
        "</table>\n</div>\n</details>"
    )


def _tasks(rows: Sequence[Row]) -> str:
    return "\n".join(
        _section(task, [row for row in rows if row.task == task])
        for task in dict.fromkeys(row.task for row in rows)
    )


def _section(task: str, rows: Sequence[Row]) -> str:
    keys = "\n".join(
        f'<li><button type="button" aria-pressed="true" data-cell="{escape(row.key)}">'
        f'<svg aria-hidden="true" width="26" height="10"></svg><span>{escape(row.name)} '
        f"<small>{escape(_size(row))}</small></span></button></li>"
        for row in rows
    )
    figures = "\n".join(
        f'<figure data-panel="{name}"><figcaption>{panel.heading}</figcaption>'
        f'<svg class="plot" role="img" aria-label="{panel.heading} on {escape(task)}"></svg>'
        f'<p class="readout" aria-hidden="true"></p></figure>'
        for name, panel in PANELS.items()
        if any(name in row.lines for row in rows)
    )
    return (
        f'<section class="task" id="{escape(_anchor(task))}">\n<h3>{escape(task)}</h3>\n'
        f'<ul class="keys">\n{keys}\n</ul>\n<div class="figures">\n{figures}\n</div>\n</section>'
    )


def _size(row: Row) -> str:
    frozen = sum(summary.frozen(seed) for seed in row.cell.seeds)
    said = f"{row.length} steps, {_several(len(row.cell.seeds), 'seed')}"
    return f"{said}, {frozen} frozen" if frozen else said


def _data(rows: Sequence[Row], folder: Path) -> str:
    """What the script draws and tells; no < that could end the element early."""
    panels = {
        name: {"across": panel.across, "log": panel.log, "whole": name == "success"}
        for name, panel in PANELS.items()
    }
    facts = {
        "columns": {key: column._asdict() for key, column in COLUMNS.items()},
        "panels": panels,
        "cells": [_facts(*pair, folder) for pair in zip(rows, _colours(rows), strict=True)],
    }
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return f'<script type="application/json" id="data">{text}</script>'


def _colours(rows: Sequence[Row]) -> list[int]:
    """An agent has the same in every task where that is free, and another where a task has it at a
    second length. No two of a task have the same, as long as there are enough."""
    before: Counter[tuple[str, str]] = Counter()
    looks = []
    for row in rows:
        looks.append((row.name, before[row.task, row.name]))
        before[row.task, row.name] += 1
    different = {look: number for number, look in enumerate(dict.fromkeys(looks))}
    taken: dict[str, set[int]] = {}
    chosen = []
    for row, look in zip(rows, looks, strict=True):
        of_task, wish = taken.setdefault(row.task, set()), different[look]
        turn = (wish + i for i in range(LOOKS))
        chosen.append(next((n for n in turn if n % LOOKS not in of_task), wish) % LOOKS)
        of_task.add(chosen[-1])
    return chosen


def _facts(row: Row, colour: int, folder: Path) -> dict[str, Any]:
    cell, found = row.cell, row.published
    return {
        "id": row.key,
        "task": row.task,
        "name": row.name,
        "steps": row.steps,
        "colour": colour,
        "numbers": {key: text for key, (_, text) in summary.numbers(row).items()},
        "notes": summary.notes(cell),
        "source": found.origin if found else None,
        "lines": {name: _drawn(lines, PANELS[name].merge) for name, lines in row.lines.items()},
        "differing": cell.differing(),
        "data": summary.origin(cell.recipe),
        "recipe": cell.recipe,
        "seeds": [
            {
                "seed": seed.seed,
                "file": seed.path.relative_to(folder).as_posix(),
                "success": seed.score,
                "noise0": (seed.facts["final"] or {}).get("success_noise0"),
                "frozen": summary.frozen(seed),
                **seed.facts["status"],
                **seed.facts["provenance"],
            }
            for seed in cell.seeds
        ],
    }


def _drawn(lines: Lines, merge: Callable[..., np.ndarray]) -> dict[str, Any]:
    """Mean, interval and every seed, of at most so many points."""
    pieces = np.array_split(np.arange(len(lines.x)), min(len(lines.x), POINTS))
    y = np.stack([merge(lines.y[:, piece], axis=1) for piece in pieces], axis=1)
    low, high = stats.bootstrap(y, 2000)
    return {
        "x": [int(lines.x[piece[-1]]) for piece in pieces],
        "mean": _digits(y.mean(axis=0)),
        "low": _digits(low),
        "high": _digits(high),
        "seeds": [_digits(one) for one in y],
    }


def _digits(values: np.ndarray) -> list[float | None]:
    return metrics.strict([float(f"{value:.4g}") for value in values])


def _page(name: str) -> str:
    return (
        resources.files("vinerl.bench.numbers").joinpath("pages", name).read_text(encoding="utf-8")
    )
