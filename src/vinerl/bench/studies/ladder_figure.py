"""The ladder's picture: what every agent draws on every bandit."""

from pathlib import Path
from typing import Any

import numpy as np

from vinerl.bench.pictures.plots import COLOURS, STYLE, Circle, plt
from vinerl.bench.studies import ladder
from vinerl.bench.studies.bandits import BANDITS
from vinerl.bench.studies.ladder import BOTH, CLIMBERS, REACHED, RUNGS, TUNED, Lines

COLUMNS = 9
GREEN, RED, GREY = COLOURS[0], COLOURS[1], "#bbbbbb"
SMALL: dict[Any, Any] = STYLE | {"axes.grid": False, "font.size": 8}
PLAIN: dict[str, Any] = {"xlim": (-1.05, 1.05), "ylim": (-1.05, 1.05), "xticks": [], "yticks": []}


def draw(found: Lines, path: Path) -> Path:
    """A column an agent, three rows a bandit each; below, fine-tuning from two starts."""
    there = {line["climber"] for line in found}
    columns = [(name, c, "fresh", name) for name, c in CLIMBERS.items() if name in there]
    tuned = [
        (name, c, begin, f"{name}\n{begin}")
        for name, c in TUNED.items()
        for begin in BOTH
        if name in there
    ]
    bands = [columns[i : i + COLUMNS] for i in range(0, len(columns), COLUMNS)]
    bands += [tuned] if tuned else []
    with plt.rc_context(SMALL):
        figure = plt.figure(figsize=(COLUMNS * 1.08, 3.75 * len(bands) + 0.4))
        figure.suptitle(
            "Actions of each agent (first seed) and their mean value (all seeds). Green: "
            f"{REACHED} of the optimum is reached; red: had to be and is not. Cross: the best.",
            x=0.01,
            ha="left",
            fontsize=8,
        )
        parts = figure.subfigures(len(bands), 1, squeeze=False)[:, 0]
        for part, band in zip(parts, bands, strict=True):
            grid = part.subplots(len(RUNGS), COLUMNS, squeeze=False)
            part.subplots_adjust(0.035, 0.02, 0.99, 0.85, wspace=0.08, hspace=0.2)
            for axes in grid[:, len(band) :].flat:
                axes.set_axis_off()
            for column, (name, climber, begin, title) in enumerate(band):
                for axes, rung in zip(grid[:, column], RUNGS, strict=True):
                    value = ladder.mean(found, "value", name, rung, begin)
                    bad = begin == "fresh" and name in CLIMBERS
                    bad = bad and ladder.missed(climber, rung, value)
                    colour = RED if bad else GREEN if value >= REACHED else GREY
                    _thumbnail(axes, found, name, rung, begin, value, colour)
                grid[0, column].set_title(title, fontsize=8.5, fontweight="bold", pad=4)
            for axes, rung in zip(grid[:, 0], RUNGS, strict=True):
                axes.set_ylabel(rung)
        figure.savefig(path, dpi=110)
        plt.close(figure)
    return path


def _thumbnail(axes, found: Lines, name, rung, begin, value: float, colour: str) -> None:
    bandit = BANDITS[rung]
    of = {"climber": name, "rung": rung, "begin": begin}
    line = next(line for line in found if of.items() <= line.items())
    for mode, share in zip(bandit.modes, bandit.shares, strict=True):
        alpha = 0.12 + 0.5 * float(share) * (len(bandit.shares) > 1)
        axes.add_patch(Circle(tuple(mode), 2.5 * bandit.spread, color="#888888", alpha=alpha, lw=0))
    axes.plot(*bandit.peaks[0], "x", color="black", ms=5, mew=1.1, zorder=2)
    axes.scatter(*np.transpose(line["actions"]), s=2.5, lw=0, color=COLOURS[2], zorder=3)
    axes.text(0.97, 0.03, f"{value:.2f}", transform=axes.transAxes, ha="right", color=colour)
    axes.set(**PLAIN, aspect="equal")
    for spine in axes.spines.values():
        spine.set(visible=True, color=colour, lw=1.6)
