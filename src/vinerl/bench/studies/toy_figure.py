"""The toy's figure: paths of three samplers, and what fine-tuning leaves of the modes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinerl.bench.pictures import plots
from vinerl.bench.pictures.plots import COLOURS, Circle, plt
from vinerl.bench.studies import pentagon
from vinerl.bench.studies.pentagon import MODES, REGULARISERS, REWARDS, SPREAD, WIDTH, Scale
from vinerl.bench.studies.toy import ALPHAS, COLUMNS, NAMES, Lines, Setting, average

PATHS, POINTS = 120, 500
NOWHERE = "#9a9a9a"
INK = "#333333"
STYLE: dict[Any, Any] = plots.STYLE | {"axes.titlesize": 9.5, "pdf.fonttype": 42, "figure.dpi": 200}
CENTRED: dict[str, Any] = {"ha": "center", "va": "center"}
SAMPLERS = {"euler": COLOURS[2], "ddpm": COLOURS[1], "vine": COLOURS[0]}


def draw(scale: Scale, lines: Lines, files: Sequence[Path]) -> list[Path]:
    """Paths and points are those of the first seed, numbers the mean of all."""
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(11, 7.4))
        halves = figure.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.08])
        top, bottom = halves[:, 0]
        _cloning(top, scale, lines)
        _tuning(bottom, scale, lines)
        for file in files:
            undated = {"CreationDate": None} if file.suffix == ".pdf" else None
            figure.savefig(file, metadata=undated)
        plt.close(figure)
    return list(files)


def _path(scale: Scale, lines: Lines, setting: Setting) -> np.ndarray:
    """[K + 1, POINTS, 2]; every setting from the same noises."""
    noises = jax.random.normal(jax.random.key(7), (pentagon.K + 1, POINTS, 2))
    params = pentagon.from_layers(lines[setting]["weights"])
    return np.asarray(pentagon.paths(scale, setting.sampler, params, noises))


def _colours(action: np.ndarray) -> np.ndarray:
    """A colour a mode, and grey for actions that are at none."""
    far = np.asarray(pentagon.distances(action))
    return np.where(far.min(axis=1) < WIDTH, np.array(COLOURS)[far.argmin(axis=1)], NOWHERE)


def _plane(axes, side: float) -> None:
    axes.set(xlim=(-side, side), ylim=(-side, side), aspect="equal", xticks=[], yticks=[])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color="#dddddd")


def _cloning(figure, scale: Scale, lines: Lines) -> None:
    words = "Behaviour cloning: paths $a_0, \\ldots, a_K$ of three samplers from the same noises"
    _heading(figure, "a", words)
    grid = figure.add_gridspec(1, 3, left=0.012, right=0.72, bottom=0.02, top=0.84, wspace=0.04)
    for i, sampler in enumerate(SAMPLERS):
        axes = figure.add_subplot(grid[i])
        _paths(axes, scale, lines, sampler)
        near = average(lines, "near", "behaviour", sampler, 0.0)
        axes.set_title(f"{NAMES[sampler]}: {near:.0%} end at a mode", loc="left")
    grid = figure.add_gridspec(1, 1, left=0.785, right=0.985, bottom=0.14, top=0.84)
    _gradients(figure.add_subplot(grid[0]), lines)


def _paths(axes, scale: Scale, lines: Lines, sampler: str) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import withStroke

    setting = Setting("behaviour", sampler, 0.0, min(s.seed for s in lines))
    path = _path(scale, lines, setting)[:, :PATHS]
    colours = _colours(path[-1])
    # VINE forgets a_0, so its first line is only hinted at.
    for part, alpha in ((path[:2], 0.1 if sampler == "vine" else 0.4), (path[1:], 0.4)):
        each = list(part.swapaxes(0, 1))
        axes.add_collection(LineCollection(each, colors=colours, lw=0.5, alpha=alpha))
    axes.scatter(*path[0].T, c="#b5b5b5", s=1.5, lw=0)
    axes.scatter(*path[-1].T, c=colours, s=7, lw=0, zorder=4)
    for mode, reward, colour in zip(MODES, REWARDS, COLOURS, strict=False):
        axes.add_patch(Circle(mode, 3 * SPREAD, fill=False, ec=colour, lw=0.9, zorder=5))
        x, y = 1.42 * mode
        label = axes.text(x, y, f"{reward:.1f}", **CENTRED, color=colour, fontweight="bold")
        label.set(zorder=6, path_effects=[withStroke(linewidth=2.5, foreground="white")])
    _plane(axes, 1.9)


def _gradients(axes, lines: Lines) -> None:
    for sampler, colour in SAMPLERS.items():
        rows = [x["gradient"] for s, x in lines.items() if s[:2] == ("behaviour", sampler)]
        norms = np.mean(rows, axis=0)
        k = np.flatnonzero(norms)  # 0 has no place on a log scale
        axes.plot(k, norms[k], "o-", color=colour, lw=1.6, ms=3, label=NAMES[sampler])
    axes.set(yscale="log", xlabel="k", xticks=range(0, pentagon.K + 1, 2))
    axes.set_title("value gradient that arrives at $a_k$", loc="left")
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _tuning(figure, scale: Scale, lines: Lines) -> None:
    _heading(figure, "b", "Value-gradient fine-tuning through all K steps, held to the data by")
    grid = figure.add_gridspec(1, 3, left=0.04, right=0.99, bottom=0.075, top=0.815, wspace=0.05)
    seed = min(s.seed for s in lines)
    for column, regulariser in enumerate(REGULARISERS):
        inner = grid[column].subgridspec(2, 3, wspace=0.06, hspace=0.36)
        for row, sampler in enumerate(("vine", "euler")):
            for i, alpha in enumerate(ALPHAS):
                axes = figure.add_subplot(inner[row, i])
                _points(axes, scale, lines, Setting(regulariser, sampler, alpha, seed))
                if row == 0:
                    axes.set_title(f"weight {alpha:g}", fontsize=7.5, color=INK, pad=3)
                if row == 0 and i == 1:
                    place = {"transform": axes.transAxes, "fontweight": "bold"}
                    axes.text(0.5, 1.22, NAMES[regulariser], **CENTRED, **place)
                if column == 0 and i == 0:
                    axes.set_ylabel(NAMES[sampler], fontweight="bold")
    ring = "ring: the one point that is best with the endpoint term, by arithmetic"
    figure.text(0.988, 0.962, ring, fontsize=7.5, color=INK, ha="right", va="top")


def _points(axes, scale: Scale, lines: Lines, setting: Setting) -> None:
    action = _path(scale, lines, setting)[-1]
    for mode, reward, colour in zip(MODES, REWARDS, COLOURS, strict=False):
        axes.add_patch(Circle(mode, WIDTH, color=colour, alpha=0.05 + 0.2 * reward, lw=0))
    axes.scatter(*action.T, c=_colours(action), s=3, lw=0, alpha=0.75, zorder=3)
    if setting.policy == "endpoint":
        ring = {"mfc": "none", "mec": "black", "ms": 9, "mew": 0.7}
        axes.plot(*pentagon.collapsed(setting.alpha), "o", **ring)
    _plane(axes, 1.15)
    spread, near, value, norm, _ = (average(lines, name, *setting[:3]) for name in COLUMNS)
    words = f"spread {spread:.2f}   near {near:.2f}\nvalue {value:.2f}   gradient {norm:.0f}"
    axes.set_xlabel(words, fontsize=6, color=INK, labelpad=3)


def _heading(figure, letter: str, words: str) -> None:
    figure.text(0.012, 0.965, letter, fontsize=12, fontweight="bold", va="top")
    figure.text(0.03, 0.965, words, fontsize=11, va="top")
