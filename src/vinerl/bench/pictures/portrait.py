"""One picture of a file of transitions: where it has been, how it went, what was done."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinerl.data import examine, files, repair
from vinerl.data.files import Arrays
from vinerl.envs import ogbench
from vinerl.errors import InputError

BINS = 80  # a side of the coverage
CELL = 8  # bins a side of a maze's cell
GREENS = ["#cfe6dc", "#0b6e4f", "#04241a"]
PIXELS = 256  # of an image that are looked at


def draw(path: Path, out: Path) -> Path:
    """Coverage, episode returns (else lengths) and actions of a file, as the PNG `out`.

    Rows that are NaN or infinite are left out, and counted.
    """
    from vinerl.bench.pictures import plots

    if out.suffix.lower() != ".png":
        raise InputError(f"--out {out}: the picture is a PNG, so its name must end in .png")
    arrays = files.read(path)
    files.check_shapes(arrays, path)
    arrays, dropped = repair.drop_bad_rows(arrays)
    if not len(arrays["actions"]):
        raise InputError(f"{path}: no transition in it is finite, so there is nothing to draw")
    with plots.plt.rc_context(plots.STYLE):
        figure, axes = plots.plt.subplot_mosaic(
            [["coverage", "episodes"], ["coverage", "actions"]],
            figsize=(10, 5.4),
            width_ratios=[1.25, 1],
            height_ratios=[1, 1.6],
            layout="constrained",
        )
        if maze := maze_of(path):
            _map(axes["coverage"], arrays, maze)
        else:
            _components(axes["coverage"], arrays)
        _episodes(axes["episodes"], arrays, plots.COLOURS[0])
        _actions(axes["actions"], arrays, plots.COLOURS)
        for each in axes.values():
            each.set_axisbelow(True)
        figure.suptitle(path.name, x=0.01, ha="left", fontsize=13)
        figure.supxlabel(facts(path, arrays, dropped), x=0.01, ha="left", fontsize=9)
        figure.savefig(out, format="png")
        plots.plt.close(figure)
    return out


def facts(path: Path, arrays: Arrays, dropped: int = 0) -> str:
    """How much there is, and where it comes from if a card beside the file says so."""
    dimensions = arrays["actions"].shape[1]
    parts = [
        f"{len(examine.starts(arrays)) - 1:,} episodes",
        f"{files.used(arrays).sum():,} transitions",
        f"{dimensions} action dimension{'s' * (dimensions > 1)}",
    ]
    if dropped:
        parts.append(f"rows left out as NaN or infinite: {dropped:,}")
    card = path.with_name(f"{dataset_of(path)}.json")
    if card.is_file():
        try:
            parts.append(str(json.loads(card.read_text())["origin"]))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{card}: not the card of a dataset ({error!r}); remove it") from error
    return "  ·  ".join(parts)


def dataset_of(path: Path) -> str:
    """A validation file belongs to the dataset whose name it extends."""
    return path.stem.removesuffix("-val")


def maze_of(path: Path) -> dict[str, Any] | None:
    """The map that `ogbench.describe` tells of, if the file is named like one of its mazes."""
    name = dataset_of(path)
    if name not in ogbench.DATASETS or "maze" not in name:
        return None
    env = ogbench.make(ogbench.env_id(name.replace("-v0", "-singletask-task1-v0")))
    try:
        return ogbench.describe(env)["maze"]
    finally:
        env.close()


def components(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first two principal components [rows, <= 2] of x [rows, D], each column standardised.

    And the shares of the variance they have.
    """
    x = x.astype(np.float64) - x.mean(axis=0, dtype=np.float64)
    spread = x.std(axis=0)
    x = x[:, spread > 0] / spread[spread > 0]
    values, vectors = np.linalg.eigh(x.T @ x)
    return x @ vectors[:, ::-1][:, :2], (values[::-1] / max(values.sum(), 1))[:2]


def _features(arrays: Arrays) -> np.ndarray:
    """Observations [rows, D], of each image some pixels."""
    flat = [x.reshape(len(x), -1) for x in jax.tree.leaves(files.observations(arrays))]
    return np.concatenate([x[:, :: -(-x.shape[1] // PIXELS)] for x in flat], axis=1)


def _map(axes, arrays: Arrays, maze: dict[str, Any]) -> None:
    cells, unit, offset = np.array(maze["map"]), maze["unit"], np.array(maze["offset"])
    low = -offset - unit / 2
    high = low + unit * np.array(cells.shape[::-1])
    sides = [(low[0], high[0]), (low[1], high[1])]
    axes.imshow(cells, cmap="Greys", vmin=0, vmax=5, extent=(*sides[0], *sides[1]), origin="lower")
    rows, columns = cells.shape
    points = files.observations(arrays)[:, :2]
    _density(axes, points, [CELL * columns, CELL * rows], sides)
    axes.set_aspect("equal", anchor="NW")
    axes.set_axis_off()
    axes.set_title("coverage: the first two numbers of an observation", loc="left")


def _components(axes, arrays: Arrays) -> None:
    points, shares = components(_features(arrays))
    axes.set_title("coverage: principal components of standardised observations", loc="left")
    if len(shares) < 2:
        axes.hist(
            points[:, 0] if len(shares) else np.zeros(len(points)), bins=BINS, color=GREENS[1]
        )
        axes.set_ylabel("rows")
    else:
        _density(axes, points, [BINS, BINS], None)
        axes.set_ylabel(f"second, {shares[1]:.0%} of the variance")
    axes.set_xlabel(f"first, {shares[0]:.0%} of the variance" if len(shares) else "all are equal")


def _density(axes, points: np.ndarray, bins, sides) -> None:
    """Rows a bin, in shades; a bin without any shows what is below it."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    shades = LinearSegmentedColormap.from_list("greens", GREENS)
    *_, image = axes.hist2d(*points.T, bins=bins, range=sides, cmin=1, cmap=shades, norm=LogNorm())
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.02, 0, 0.02, 0.4)))
    bar.set_label("rows in a bin")
    bar.outline.set_visible(False)


def _episodes(axes, arrays: Arrays, colour: str) -> None:
    """A histogram of returns, or of lengths where there are no rewards."""
    what, x = "length in transitions", files.used(arrays)
    if "rewards" in arrays:
        what, x = "return (sum of rewards)", arrays["rewards"].astype(np.float64)
    values = examine.episode_sums(arrays, x)
    only = np.ptp(values) == 0
    bins = values[0] + np.array([-0.5, 0.5]) if only else min(40, 1 + len(np.unique(values)))
    axes.hist(values, bins=bins, color=colour, alpha=0.85)
    if only:
        axes.set_xlim(values[0] - 5, values[0] + 5)
        axes.set_xticks(values[:1])
    axes.set_title("episodes", loc="left")
    axes.set_xlabel(what)
    axes.set_ylabel("episodes")
    axes.yaxis.get_major_locator().set_params(integer=True)


def _actions(axes, arrays: Arrays, colours: list[str]) -> None:
    """A histogram a dimension, above each other; a peak at an edge is cut, and its share told."""
    actions = arrays["actions"][files.used(arrays)].astype(np.float64)
    dimensions = actions.shape[1]
    edges = np.linspace(min(-1, actions.min()), max(1, actions.max()), 62)
    pad = (edges[-1] - edges[0]) / 100
    for d in range(dimensions):
        counts = np.histogram(actions[:, d], edges)[0]
        inside = counts[1:-1].max()
        heights = 0.8 * np.minimum(counts / (inside or counts.max()), 1)
        axes.stairs(heights - d, edges, baseline=-d, fill=True, color=colours[d % len(colours)])
        for edge, away, side in ((edges[0], -pad, "right"), (edges[-1], pad, "left")):
            share = np.mean(np.abs(actions[:, d] - edge) < 1e-4)
            if share >= 0.01:
                options = {"ha": side, "va": "center", "fontsize": 7, "color": "#555555"}
                axes.text(edge + away, 0.4 - d, f"{share:.0%}", **options)
    axes.set_xlim(edges[0] - 12 * pad, edges[-1] + 12 * pad)
    shown = np.arange(0, dimensions, -(-dimensions // 24))
    axes.set_yticks(0.4 - shown, map(str, shown))
    axes.set_ylim(0.9 - dimensions, 0.9)
    axes.grid(axis="y", visible=False)
    axes.set_title("actions by dimension, and the share at an edge", loc="left")
    axes.set_xlabel("action")
    axes.set_ylabel("dimension")
