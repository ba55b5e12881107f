"""The ablation's picture: a row a task, what was measured against alpha."""

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
ASIDE = {"vine": 0.97, "euler": 1.03}  # so that points on one alpha do not hide each other


def draw(found: Sequence[Block], path: Path) -> Path:
    """What is missing is not drawn."""
    kinds = list(dict.fromkeys(_kind(v, b) for b in found for v in b.variants if v.there))
    colour = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}
    with plt.rc_context(STYLE):
        size = (2.9 * len(MEASURES), 2.6 * len(found) + 0.6)
        figure, grid = plt.subplots(len(found), len(MEASURES), figsize=size, **GRID)
        for row, block in zip(grid, found, strict=True):
            for axes, (name, heading) in zip(row, MEASURES.items(), strict=True):
                for variant in (v for v in block.variants if v.there):
                    _line(axes, variant, name, colour[_kind(variant, block)])
                axes.set_title(heading, loc="left")
                axes.set(xscale="log", xlabel="alpha")
                _ticks(axes, block)
                if name == "success":
                    axes.set_ylim(-0.03, 1.03)
                elif axes.lines:
                    axes.set_yscale("log")
            about = [block.group, tasks.short(block.task), kind(steps(block), block.shared)]
            row[0].set_ylabel("\n".join(about), fontsize=6.5)
        sign = lambda label, **look: grid[0, 0].plot([], [], label=label, **look)[0]
        handles = [sign(kind, color=colour[kind], lw=3) for kind in kinds]
        handles += [sign(sampler, color="black", **look) for sampler, look in LOOK.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
        words = (
            "Sampler and regulariser against alpha: success with its 95% bootstrap interval over "
            "seeds; means over seeds at the end; largest of any step and seed, where it is finite"
        )
        return save(figure, path, head=words, dpi=110)


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
