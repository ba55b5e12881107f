"""Pictures of runs. Each says at its foot, and in the file, which runs it shows."""

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np

from vinerl.bench.numbers.stats import bootstrap
from vinerl.bench.pictures.show import footnotes
from vinerl.bench.run.jobs import portable
from vinerl.bench.run.runs import Run, folder, groups, names, seal, title
from vinerl.errors import InputError
from vinerl.train import metrics

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

DARK = "#4d4d4d"
COLOURS = ["#0b6e4f", "#c1440e", "#3b5b92", "#8a6d3b", "#6a3d7c", DARK, "#c2347e", "#2a9db0"]
LEGEND: dict[str, Any] = {"framealpha": 0.6, "edgecolor": "none"}  # legible over a line
WIDE = 100  # times the median: what lies so far out presses everything else to the floor
FEW = 3  # lines that leave room for their names beside them
STROKES: list[Any] = ["-", "--", ":", "-.", (0, (6, 1.5, 1, 1.5, 1, 1.5))]
ACROSS = 120  # letters and signs of a legend's line below the plots
GRID: dict[str, Any] = {"squeeze": False, "layout": "constrained"}
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 9,
    "axes.titlesize": 10,
    "figure.dpi": 150,
}


class Stamp(NamedTuple):
    """Where a picture comes from."""

    foot: list[str]
    record: str  # JSON: the runs' folders and what identifies them


def stamp(runs: Sequence[Run], manifests: Sequence[dict[str, Any]]) -> Stamp:
    hashes = lambda m: {"manifest": seal(m), "data": m["data"]["sha256"]}
    pairs = zip(runs, manifests, strict=True)
    return Stamp(footnotes(runs), json.dumps([{"run": folder(r)} | hashes(m) for r, m in pairs]))


def draw(run: Run, manifest: dict[str, Any]) -> list[Path]:
    """Every picture that this run has material for."""
    origin = stamp([run], [manifest])
    with plt.rc_context(STYLE):
        made = [curve(run, origin), paths(run, origin)]
    return [path for path in made if path]


def band(axes, x: np.ndarray, y: np.ndarray, label: str, colour: str, stroke: Any = "-") -> None:
    """Mean and 95% bootstrap interval over seeds, y [N, S], and every seed as a thin line."""
    axes.plot(x, y, color=colour, lw=0.5, alpha=0.35)
    axes.plot(x, y.mean(axis=1), color=colour, lw=1.8, label=label, ls=stroke)
    if y.shape[1] > 1:
        axes.fill_between(x, *bootstrap(y.T, 2000), color=colour, alpha=0.18, lw=0)


class Source(NamedTuple):
    """Members that make up one line of a plot."""

    label: str
    lines: list[dict[str, Any]]  # metrics
    members: list[int]
    look: tuple[str, Any]  # colour and stroke


PANELS = [
    ("eval/success", "success", "linear"),
    ("grad_norm/step", "gradient arriving at denoising step k, at the end", "log"),
    ("grad_norm/actor_max", "largest actor gradient norm since the last log", "log"),
    ("actor/bc", "squared distance to the data's action", "linear"),
    ("actor/spread", "spread of actions in one state", "linear"),
    ("critic/q", "mean Q", "linear"),
]


def curve(run: Run, origin: Stamp) -> Path | None:
    """Success, the gradient at each denoising step, and how policy and critic are doing."""
    manifest, lines = run.manifest, run.metrics
    of = groups(manifest["members"])
    sources = [
        Source(name, lines, own, look(0, i, 1, len(of))) for i, (name, own) in enumerate(of.items())
    ]
    seeds = len({m["seed"] for m in manifest["members"]})
    subject = manifest["task"] or Path(manifest["data"]["path"]).name
    count = "1 seed" if seeds == 1 else f"{seeds} seeds"
    heading = f"{portable(manifest['agent']['name'])} on {subject}: {count}"
    return _panels(sources, heading, run.path / "curve.png", origin, online([manifest]))


def compare(runs: Sequence[Run], path: Path) -> Path | None:
    """The same for several runs."""
    check_picture(path)
    named = [(n, r.manifest, r.metrics) for n, r in zip(names(runs), runs, strict=True)]
    settings = list(dict.fromkeys(s for _, m, _ in named for s in groups(m["members"])))
    sources = [
        Source(
            _label(name, setting, [manifest["members"][i] for i in chosen]),
            lines,
            chosen,
            look(number, settings.index(setting), len(named), len(settings)),
        )
        for number, (name, manifest, lines) in enumerate(named)
        for setting, chosen in groups(manifest["members"]).items()
    ]
    manifests = [manifest for _, manifest, _ in named]
    subjects = dict.fromkeys(m["task"] or Path(m["data"]["path"]).name for m in manifests)
    with plt.rc_context(STYLE):
        origin = stamp(runs, manifests)
        return _panels(sources, ", ".join(subjects), path, origin, online(manifests))


def look(run: int, setting: int, runs: int, settings: int) -> tuple[str, Any]:
    """A colour and a stroke: colours tell apart what there is more of, runs or settings. Where the
    strokes do not suffice for that, each line has the next of all pairs."""
    first, second, of = (run, setting, settings) if runs >= settings else (setting, run, runs)
    again, colour = divmod(first, len(COLOURS))
    stroke = again * of + second
    if -(-max(runs, settings) // len(COLOURS)) * of > len(STROKES):
        stroke, colour = divmod(first * of + second, len(COLOURS))
    return COLOURS[colour], STROKES[stroke % len(STROKES)]


def looks(count: int) -> list[tuple[str, Any]]:
    """Of so many lines."""
    return [look(i, 0, count, 1) for i in range(count)]


def online(manifests: Sequence[dict[str, Any]]) -> list[int]:
    """The steps at which runs went on online, where they did."""
    return sorted({m["run"]["steps"] for m in manifests if m["run"].get("online_steps")})


def _label(name: str, setting: str, members: list[dict[str, Any]]) -> str:
    frozen = sum(member["status"] != "learning" for member in members)
    said = ", ".join(filter(None, (name, setting)))
    return f"{said} ({frozen} of {len(members)} frozen)" if frozen else said


def _panels(
    sources: Sequence[Source], title: str, path: Path, origin: Stamp, begins: Sequence[int]
) -> Path | None:
    panels = [p for p in PANELS if any(p[0] in line for s in sources for line in s.lines)]
    if not panels:
        return None
    across = max(1, min(3, ACROSS // (8 + max(len(source.label) for source in sources))))
    height, below = (len(panels) + 1) // 2, 0 if len(sources) <= FEW else -(-len(sources) // across)
    rows = [1.0] * height + [0.06 + 0.1 * below] * bool(below)
    size = (9, 2.5 * sum(rows))
    figure, grid = plt.subplots(len(rows), 2, figsize=size, height_ratios=rows, **GRID)
    for axes, (name, heading, scale) in zip(grid.flat, panels, strict=False):
        for source in sources:
            x, y = metrics.curve(source.lines, name)
            if not len(x):
                continue
            x, y = (x, y[:, source.members]) if y.ndim == 2 else _last(y[:, source.members])
            band(axes, x, y, source.label, *source.look)
        axes.set_title(heading, loc="left")
        axes.set_yscale(_scale(axes, scale))
        if name == "grad_norm/step":
            axes.set_xlabel("k")
        else:
            for step in begins:
                axes.axvline(step, color="#8c8c8c", lw=1, ls="--")
            online_too = "; environment steps from the dashed line on" if begins else ""
            axes.set_xlabel(f"gradient steps{online_too}")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}")
        if name == "eval/success":
            axes.set_ylim(-0.03, 1.03)
    lines = [Line2D([], [], color=s.look[0], ls=s.look[1], lw=1.8, label=s.label) for s in sources]
    if below:
        how = {"loc": "upper left", "ncols": across, "frameon": False, "fontsize": 8}
        legend = grid[-1, 0].legend(handles=lines, **how, handlelength=3.2)
        legend.set_in_layout(False)  # it is as wide as both columns
    elif len(sources) > 1:
        grid.flat[0].legend(handles=lines, **LEGEND, fontsize=8)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    return _save(figure, path, origin, f"{title}; mean and 95% bootstrap interval over seeds")


def _scale(axes, usual: str) -> str:
    """The usual one, or a log scale where only that shows both the most of its lines and what lies
    far above; never where there is nothing above 0."""
    found = np.concatenate([np.ravel(line.get_ydata()) for line in axes.lines] or [np.empty(0)])
    found = found[np.isfinite(found)]
    if not (found > 0).any():
        return "linear"
    return "log" if found.min() > 0 and found.max() > WIDE * np.median(found) else usual


def _last(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A list of numbers a member, at the end: their places [K + 1] and values [K + 1, S]."""
    last = y[-1].T
    return np.arange(len(last)), np.where(last > 0, last, np.nan)  # 0 has no place on a log scale


def paths(run: Run, origin: Stamp) -> Path | None:
    """Where the policies went at the end, or, without a map, the rewards they got on the way."""
    file = run.path / "final.json"
    if not file.exists():
        return None
    final, members = json.loads(file.read_text()), run.manifest["members"]
    episodes, maze = final["episodes"]["eval/success"], final["environment"].get("maze")
    shown = min(len(episodes), 4)
    figure, grid = plt.subplots(1, shown, figsize=(3.4 * shown, 4), **GRID)
    for axes, member, of_member in zip(grid.flat, members, episodes, strict=False):
        if maze:
            _walls(axes, maze)
        for e in of_member:
            colour = COLOURS[0] if e["success"] else COLOURS[1]
            if maze and e["path"]:
                x, y = np.array(e["path"], float).T
                axes.plot(x, y, color=colour, lw=0.9, alpha=0.7)
                axes.plot(x[0], y[0], "o", color=colour, ms=3)
            elif e["rewards"]:
                axes.plot(np.array(e["rewards"], float), color=colour, lw=0.9, alpha=0.7)
                axes.set_xlabel("environment steps")
                axes.set_ylabel("reward")
        reached = sum(e["success"] for e in of_member)
        axes.set_title(f"{title(member)}: {reached:g} of {len(of_member)} episodes")
    rest = f"; {shown} of {len(episodes)} members" if shown < len(episodes) else ""
    marks = "dot: start; yellow: goal; " if maze else ""
    words = f"{marks}green: reached the goal; red: did not{rest}"
    return _save(figure, run.path / "paths.png", origin, words)


def _walls(axes, maze: dict[str, Any]) -> None:
    cells, unit, (dx, dy) = np.array(maze["map"]), maze["unit"], maze["offset"]
    rows, columns = cells.shape
    left, low = -dx - unit / 2, -dy - unit / 2
    extent = (left, left + columns * unit, low + rows * unit, low)
    axes.imshow(cells, cmap="Greys", vmin=0, vmax=2.2, extent=extent)
    goal = Circle(maze["goal"], maze["tolerance"], color="#e3b505", alpha=0.6, lw=0)
    axes.add_patch(goal)
    axes.invert_yaxis()
    axes.set_aspect("equal")
    axes.set_axis_off()


RECORD = {".png": "Description", ".svg": "Description", ".pdf": "Subject"}  # in a file


def _save(figure, path: Path, origin: Stamp, head: str) -> Path:
    key = RECORD.get(path.suffix)
    return save(figure, path, origin.foot, head, metadata={key: origin.record} if key else None)


def check_picture(path: Path) -> None:
    """Refuse what is no picture by its name, so that none is written over other files."""
    if path.suffix.removeprefix(".").lower() not in FigureCanvasBase.get_supported_filetypes():
        raise InputError(f"{path} is no picture by its name: give one that ends in .png")


def save(figure, path: Path, foot: Sequence[str] = (), head: str = "", **how) -> Path:
    """With what it shows at its head, and what it was made from at its foot."""
    width, height = figure.get_size_inches()
    words = textwrap.wrap(head, int(13 * width), break_on_hyphens=False)
    lines = [part for line in foot for part in textwrap.wrap(line, int(20 * width))]
    above = (0.17 * len(words) + 0.05) / height if words else 0
    below = (0.12 * len(lines) + 0.06) / height
    figure.get_layout_engine().set(rect=(0, below, 1, 1 - above - below))
    figure.text(0.012, 1 - 0.05 / height, "\n".join(words), va="top")
    figure.text(0.012, 0.05 / height, "\n".join(lines), color="#8c8c8c", fontsize=6, va="bottom")
    figure.savefig(path, **how)
    plt.close(figure)
    return path
