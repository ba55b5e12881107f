"""Published cells as the report shows them: a name, numbers, lines, and what to know of them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vinerl.bench.numbers import reference, results, stats
from vinerl.bench.numbers.results import Cell, Seed
from vinerl.bench.run import tasks

NONE = "–"
LINES = ("success", "grad_norm/step", "actor/spread", "grad_norm/actor_max")


class Lines(NamedTuple):
    x: np.ndarray  # [N]
    y: np.ndarray  # [S, N], NaN for what was not finite


class Row(NamedTuple):
    """A cell in words and numbers."""

    cell: Cell
    key: str  # names it in the page and in links
    name: str
    lines: dict[str, Lines]  # by panel; an agent need not have all

    @property
    def task(self) -> str:
        return str(results.where(self.cell.recipe).parent)

    @property
    def steps(self) -> int:
        return self.cell.recipe["steps"]

    @property
    def length(self) -> str:
        return results.length(self.steps)

    @property
    def published(self) -> reference.Published | None:
        recipe = self.cell.recipe
        if not as_published(recipe):
            return None
        task = tasks.named(recipe["task"])
        return reference.published(recipe["agent"]["name"], task, self.steps)


def as_published(recipe: dict[str, Any]) -> bool:
    """Whether nothing was changed, and nothing done before or after the training."""
    apart = {"pretrain", "online"} & set(recipe) or results.normalised(recipe)
    return not apart and results.label(recipe) == recipe["agent"]["name"]


def rows(seeds: Sequence[Seed]) -> list[Row]:
    """By task and length."""
    cells = results.cells(seeds)
    found = map(_row, cells, results.names(cells))
    return sorted(found, key=lambda row: (row.task, row.steps, row.name))


def numbers(row: Row) -> dict[str, tuple[float | None, str]]:
    """By column: what to sort by, None for nothing, and what to show."""
    cell, found = row.cell, row.published
    shown = {
        "steps": (row.steps, row.length),
        "seeds": (len(cell.seeds), str(len(cell.seeds))),
        "success": _estimate(*cell.mean()),
        "area": (None, NONE),
        "spread": (None, NONE),
        "gradient": (None, NONE),
        "published": _estimate(*found.score) if found else (None, NONE),
        "difference": _difference(cell, found) if found else (None, NONE),
    }
    curve = row.lines.get("success")
    if curve and len(curve.x) > 1:
        areas = stats.area(curve.x, curve.y.T)
        shown["area"] = _estimate(areas.mean(), *stats.bootstrap(areas))
    if "actor/spread" in row.lines:
        shown["spread"] = _one(row.lines["actor/spread"].y[:, -1].mean(), ".4f")
    if "grad_norm/actor_max" in row.lines:
        shown["gradient"] = _one(row.lines["grad_norm/actor_max"].y.max(), ".4g")
    return shown


def notes(cell: Cell) -> list[str]:
    """What a reader of the numbers must know."""
    stopped = sum(map(frozen, cell.seeds))
    said = [f"{origin(cell.recipe)} data"] if origin(cell.recipe) != "official" else []
    said += [f"{stopped} of {len(cell.seeds)} frozen"] if stopped else []
    said += [] if all(s.facts["final"] for s in cell.seeds) else ["no final evaluation"]
    return said + [f"seeds differ in {name}" for name in cell.differing()]


def frozen(seed: Seed) -> bool:
    return seed.facts["status"]["status"] != "learning"


def origin(recipe: dict[str, Any]) -> str:
    return recipe["data"].get("origin", "regenerated")


def _row(cell: Cell, name: str) -> Row:
    lines = {one: _lines(cell, one) for one in LINES}
    key = results.where(cell.recipe).as_posix()
    found = {one: line for one, line in lines.items() if len(line.x)}
    return Row(cell, key, name, found)


def _lines(cell: Cell, name: str) -> Lines:
    if name == "success":
        return _curve(cell)
    told = [seed.facts["metrics"].get(name) for seed in cell.seeds]
    if not all(told):
        return Lines(np.empty(0), np.empty((len(told), 0)))
    if isinstance(told[0], list):  # a number for each step of the sampler
        y = np.array(told, float)
        return Lines(np.arange(y.shape[1]), y)
    return _common([(one["step"], one["value"]) for one in told], cell)


def _curve(cell: Cell) -> Lines:
    """Success in the evaluations that all seeds have; the one at the end comes last."""
    curves = []
    for seed in cell.seeds:
        final, curve = seed.facts["final"], seed.facts["curve"]
        end = ([final["step"]], [final["success"]]) if final else ([], [])
        curves.append((curve["step"] + end[0], curve["success"] + end[1]))
    return _common(curves, cell)


def _common(told: Sequence[tuple[list[int], list[float | None]]], cell: Cell) -> Lines:
    """Steps that all seeds have, no further than the cell goes."""
    by_step = [dict(zip(*one, strict=True)) for one in told]
    x = sorted(set.intersection(*map(set, by_step)))
    x = [step for step in x if step <= cell.recipe["steps"]]
    return Lines(np.array(x), np.array([[one[step] for step in x] for one in by_step], float))


def _estimate(mean: float, low: float, high: float) -> tuple[float, str]:
    interval = "" if np.isnan(low) else f" [{low:.3f}, {high:.3f}]"
    return float(mean), f"{mean:.3f}{interval}"


def _difference(cell: Cell, found: reference.Published) -> tuple[float, str]:
    value, low, high = reference.difference(cell.scores, found)
    interval = "" if np.isnan(low) else f" [{low:+.3f}, {high:+.3f}]"
    return float(value), f"{value:+.3f}{interval}"


def _one(value: float, how: str) -> tuple[float | None, str]:
    return (float(value), f"{value:{how}}") if np.isfinite(value) else (None, "not finite")
