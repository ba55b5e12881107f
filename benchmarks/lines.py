"""One JSON line a case, whatever becomes of it, and a table of them all."""

import argparse
import json
import math
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vinerl.bench.run import provenance

Row = dict[str, Any]


def parser(subject: str, doc: str | None) -> argparse.ArgumentParser:
    """With the options that every subject has."""
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(f"python -m benchmarks {subject}", None, doc, None, [], raw)
    made.add_argument("--out", type=Path, help="a file that the lines are appended to, too")
    made.add_argument(
        "--budget", type=float, default=math.inf, help="seconds after which no case is begun"
    )
    return made


class Lines:
    """On stdout and in --out. The first line is what everything was measured with."""

    def __init__(self, subject: str, args: argparse.Namespace):
        self.began, self.budget, self.out = time.perf_counter(), args.budget, args.out
        self.rows: list[Row] = []
        given = {name: value for name, value in vars(args).items() if value != math.inf}
        made_with = {"commit": provenance.commit(), "source": provenance.source_hash()}
        made_with |= {"hardware": provenance.hardware(), "versions": provenance.versions()}
        self._say({"subject": subject, "arguments": given} | made_with)

    def case(self, facts: Row, work: Callable[[], Row]) -> Row:
        """`facts` and what `work` found, or why it found nothing."""
        try:
            spent = time.perf_counter() - self.began > self.budget
            found = {"skipped": f"--budget {self.budget:g} is spent"} if spent else work()
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # they hold arrays on the device
            first = (str(error).splitlines() or [""])[0]
            found = {"error": f"{type(error).__name__}: {first[:300]}"}
        self.rows.append(facts | found)
        self._say(self.rows[-1])
        return self.rows[-1]

    def show(self, columns: Sequence[str], markdown: bool = False) -> None:
        print(table(self.rows, columns, markdown), file=sys.stderr)

    def _say(self, row: Row) -> None:
        line = json.dumps(row, default=str)
        print(line, flush=True)
        if self.out:
            with self.out.open("a") as file:
                file.write(line + "\n")


def table(rows: Sequence[Row], columns: Sequence[str], markdown: bool = False) -> str:
    """Numbers to four digits. Why a row has none stands at its end."""
    why = [row.get("error") or row.get("skipped") or "" for row in rows]
    names = [*columns, ""] if any(why) else [*columns]
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    cells = [[*row, reason][: len(names)] for row, reason in zip(cells, why, strict=True)]
    if markdown:
        lines = [names, ["---"] * len(names), *cells]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    pad = lambda line: "  ".join(x.ljust(w) for x, w in zip(line, widths, strict=True)).rstrip()
    return "\n".join(map(pad, [names, *cells]))


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
