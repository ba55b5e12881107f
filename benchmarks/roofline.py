"""TFLOP/s over members, under what the device can multiply and what its memory can feed.

python -m benchmarks update --grow seeds --out after.jsonl
python -m benchmarks roofline before.jsonl after.jsonl --out roofline.png

A file is a line for each precision. All members of a stack do the same work, so a larger stack has
the same FLOP for a byte and roofs are level: a product's rate, and intensity times bandwidth. What
was compiled with an --option is left out.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.ticker import LogLocator

from benchmarks.lines import Row
from vinerl.bench.pictures import plots
from vinerl.bench.pictures.plots import plt
from vinerl.errors import InputError


class Measured(NamedTuple):
    """What a file says of one precision."""

    file: str
    precision: str
    device: str
    stacks: list[Row]  # in the order of their sizes
    peers: list[Row]
    product: float | None  # TFLOP/s
    bandwidth: float | None  # GB/s


class Roof(NamedTuple):
    words: str
    tflops: float
    side: str  # of the picture, where it is named


def main(args: list[str]) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks roofline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="lines of `update`")
    parser.add_argument("--out", type=Path, default=Path("roofline.png"), help="the picture")
    given = parser.parse_args(args)
    print(draw([found for path in given.files for found in read(path)], given.out))


def read(path: Path) -> list[Measured]:
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise InputError(f"{path}: line {number} is no JSON ({error})") from error
    timed = [row for row in rows if "tflops" in row and not row.get("option")]
    stacks = [r for r in timed if r["case"] == "project" and r["grow"] in (None, "seeds")]
    if not stacks:
        raise InputError(
            f"{path}: no stack was timed in it; python -m benchmarks update --out {path} does that"
        )
    device = next((row["hardware"]["device"] for row in rows if "hardware" in row), "unknown")
    products = {row["precision"]: row["tflops"] for row in timed if row["case"] == "product"}
    return [
        Measured(
            path.stem,
            precision,
            device,
            sorted((r for r in stacks if r["precision"] == precision), key=lambda r: r["members"]),
            [row for row in timed if row["case"] == "peers"],
            products.get(precision),
            next((row["gb_s"] for row in rows if "gb_s" in row), None),
        )
        for precision in dict.fromkeys(row["precision"] for row in stacks)
    ]


def roofs(found: Sequence[Measured]) -> list[Roof]:
    """Of every precision that a stack was timed in; the best that any of the files saw."""
    best: dict[str, Roof] = {}
    for one in found:
        intensity, both = one.stacks[0]["intensity"], []
        if one.product:
            both.append(Roof(f"a large {one.precision} product", one.product, "right"))
        if one.bandwidth:
            words = f"memory, {one.precision}: {intensity:.0f} FLOP a byte"
            both.append(Roof(words, intensity * one.bandwidth / 1e3, "left"))
        for roof in both:
            if roof.words not in best or roof.tflops > best[roof.words].tflops:
                best[roof.words] = roof
    return list(best.values())


def draw(found: Sequence[Measured], path: Path) -> Path:
    sizes = sorted({row["members"] for one in found for row in one.stacks})
    with plt.rc_context(plots.STYLE):
        figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
        for i, one in enumerate(found):
            colour = plots.COLOURS[i % len(plots.COLOURS)]
            x, y = ([row[name] for row in one.stacks] for name in ("members", "tflops"))
            axes.plot(x, y, "o-", color=colour, ms=4, label=f"{one.file} ({one.precision})")
            for row in one.peers[:1]:
                axes.plot(1, row["tflops"], "D", color=colour, ms=6, mfc="white")
        if any(one.peers for one in found):
            axes.plot([], [], "D", color="#4d4d4d", mfc="white", label="the peers' way")
        for roof in roofs(found):
            right = roof.side == "right"
            axes.axhline(roof.tflops, color="#8c8c8c", lw=1, ls="--" if right else ":")
            at, away = (sizes[-1] if right else 1, roof.tflops), (0, 3 if right else -10)
            beside: dict[str, Any] = {"xytext": away, "textcoords": "offset points", "fontsize": 8}
            axes.annotate(f"{roof.words}: {roof.tflops:.3g}", at, ha=roof.side, **beside)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.set_xticks(sizes, map(str, sizes))
        axes.set_xlabel("members of a stack")
        axes.set_ylabel("TFLOP/s")
        axes.legend(frameon=False, fontsize=8)
        devices = ", ".join(dict.fromkeys(one.device for one in found))
        files = ", ".join(dict.fromkeys(one.file for one in found))
        head = f"Gradient steps on {devices}; products counted from their shapes"
        return plots.save(figure, path, [f"from {files}"], head)
