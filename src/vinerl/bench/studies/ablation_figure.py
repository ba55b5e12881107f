"""The ablation's pictures, against alpha: success alone, and all measures with a row a task."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vinerl.bench.numbers.stats import bootstrap
from vinerl.bench.pictures.plots import COLOURS, GRID, STYLE, plt, save
from vinerl.bench.run import tasks
from vinerl.bench.studies.ablation import MEASURES, Block, Variant, kind, measures
from vinerl.bench.studies.ablation_page import steps

LOOK: dict[str, dict[str, Any]] = {
    "vine": {"ls": "-", "marker": "o"},
    "euler": {"ls": "--", "marker": "s", "mfc": "white"},
}
ACROSS = 5  # panels of success in a row
ASIDE = {"vine": 0.97, "euler": 1.03}  # so that points on one alpha do not hide each other


def draw(found: Sequence[Block], path: Path) -> Path:
    """What is missing is not drawn."""
    colour = _colours(found)
    with plt.rc_context(STYLE):
        size = (2.9 * len(MEASURES), 2.6 * len(found) + 0.6)
        figure, grid = plt.subplots(len(found), len(MEASURES), figsize=size, **GRID)
        for row, block in zip(grid, found, strict=True):
            for axes, (name, heading) in zip(row, MEASURES.items(), strict=True):
                _panel(axes, block, name, colour)
                axes.set_title(heading, loc="left")
            row[0].set_ylabel("\n".join([block.group, *_about(block)]), fontsize=6.5)
        _legend(figure, grid, colour)
        words = (
            "Sampler and regulariser against alpha: success with its 95% bootstrap interval over "
            "seeds; means over seeds at the end; largest of any step and seed, where it is finite"
        )
        return save(figure, path, head=words, dpi=110)


def draw_success(blocks: Sequence[Block], path: Path) -> Path:
    """Of the blocks in which not all succeed always, or never."""
    found = [block for block in blocks if _undecided(block)] or blocks
    colour, rows = _colours(found), -(-len(found) // ACROSS)
    with plt.rc_context(STYLE):
        across = min(len(found), ACROSS)
        figure, grid = plt.subplots(rows, across, figsize=(2.9 * across, 2.7 * rows + 0.5), **GRID)
        for axes, block in zip(grid.flat, found, strict=False):
            _panel(axes, block, "success", colour)
            seeds = {
                seed.seed for v in block.variants for c in v.there.values() for seed in c.seeds
            }
            task, length = _about(block)
            axes.set_title(f"{task}\n{length}, {len(seeds)} seeds", loc="left", fontsize=8)
        for axes in grid.flat[len(found) :]:
            axes.axis("off")
        _legend(figure, grid, colour)
        left_out = "; left out: where all succeed always, or never" * (len(found) < len(blocks))
        words = f"Success against alpha, with its 95% bootstrap interval over seeds{left_out}"
        return save(figure, path, head=words, dpi=110)


def _undecided(block: Block) -> bool:
    scores = {s.score for v in block.variants for cell in v.there.values() for s in cell.seeds}
    return scores not in ({0.0}, {1.0})


def _colours(found: Sequence[Block]) -> dict[str, str]:
    """By what is drawn."""
    kinds = dict.fromkeys(_kind(v, b) for b in found for v in b.variants if v.there)
    return {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}


def _about(block: Block) -> tuple[str, str]:
    return tasks.short(block.task), kind(steps(block), block.shared)


def _panel(axes, block: Block, name: str, colour: dict[str, str]) -> None:
    for variant in (v for v in block.variants if v.there):
        _line(axes, variant, name, colour[_kind(variant, block)])
    axes.set(xscale="log", xlabel="alpha")
    _ticks(axes, block)
    if name == "success":
        axes.set_ylim(-0.03, 1.03)
    elif axes.lines:
        axes.set_yscale("log")


def _legend(figure, grid, colour: dict[str, str]) -> None:
    sign = lambda label, **look: grid[0, 0].plot([], [], label=label, **look)[0]
    handles = [sign(kind, color=own, lw=3) for kind, own in colour.items()]
    handles += [sign(sampler, color="black", **look) for sampler, look in LOOK.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False)


def _kind(variant: Variant, block: Block) -> str:
    """What tells it from the others of its row, its sampler apart."""
    return kind(variant.regulariser, "" if block.shared else variant.other)


def _line(axes, variant: Variant, name: str, colour: str) -> None:
    alphas = sorted(variant.there)
    seen = [measures(variant.there[alpha])[name] for alpha in alphas]
    whole = np.max if name in ("gradient", "estimate") else np.mean
    y = np.array([whole(values) for values in seen])
    y = np.where(np.isfinite(y) & ((y > 0) | (name == "success")), y, np.nan)
    if not np.isfinite(y).any():
        return
    x = np.array(alphas) * ASIDE[variant.sampler]
    axes.plot(x, y, color=colour, lw=1.3, ms=4, **LOOK[variant.sampler])
    if name == "success":
        ends = np.array([bootstrap(values) for values in seen])
        axes.vlines(x, *ends.T, color=colour, lw=1, alpha=0.6)


def _ticks(axes, block: Block) -> None:
    alphas = sorted({alpha for variant in block.variants for alpha in variant.cells})
    axes.set_xlim(alphas[0] / 1.5, alphas[-1] * 1.5)
    axes.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
    axes.minorticks_off()
