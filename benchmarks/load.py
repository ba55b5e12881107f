"""A dataset from disk to the device, stage by stage, beside np.load of the same file.

python -m benchmarks load --rows 1000000
python -m benchmarks load --rows 10000 --repeat 1

A file like antmaze's (29 numbers observed, 8 acted with, 15 positions, 14 velocities a row) is made
in a temporary folder and has been read before, so that what is timed is not the disk. Medians over
the repetitions. `gb_s` is of the file's bytes and, of `put`, of the bytes that are sent; `of_numpy`
is the time over np.load's.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import lines, material
from vinerl.bench.run import tasks
from vinerl.data import files
from vinerl.data.files import Arrays
from vinerl.data.fold import Transitions
from vinerl.envs import ogbench

WIDTHS = {"observations": material.OBS, "actions": material.ACTION, "qpos": 15, "qvel": 14}
COLUMNS = ("case", "seconds", "gb", "gb_s", "of_numpy")


def main(args: list[str]) -> None:
    parser = lines.parser("load", __doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--task", default=material.TASK, help="a maze, whose rewards are made")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where the file goes (else a temporary folder)")
    given = parser.parse_args(args)
    said = lines.Lines("load", given)
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, **made(given.rows))  # pyright: ignore[reportArgumentType]
        measured(path, given, said)
    said.show(COLUMNS)


def made(rows: int) -> Arrays:
    """Random numbers in episodes, laid out as OGBench's files are."""
    draw = np.random.default_rng(0)
    arrays = {k: draw.uniform(-1, 1, (rows, w)).astype(np.float32) for k, w in WIDTHS.items()}
    ends = np.arange(rows) % material.EPISODE == material.EPISODE - 1
    ends[-1] = True
    return arrays | {"terminals": ends.astype(np.float32)}


def measured(path: Path, given: argparse.Namespace, said: lines.Lines) -> None:
    """np.load, then every stage on what the one before it made, then all of them together."""
    task, size = tasks.named(given.task), path.stat().st_size
    made_by: dict[str, Any] = {}

    def case(name: str, work: Callable[[], Any], numpy: float = 0.0, sends: bool = False) -> float:
        def timed() -> lines.Row:
            seconds, made_by[name] = repeated(work, given.repeat)
            gb = (sum(x.nbytes for x in jax.tree.leaves(made_by[name])) if sends else size) / 1e9
            beside = {"of_numpy": seconds / numpy} if numpy else {}
            return {"seconds": seconds, "gb": gb, "gb_s": gb / seconds} | beside

        return said.case({"case": name, "rows": given.rows}, timed).get("seconds", 0.0)

    numpy = case("np.load", partial(plain, path))
    case("read", lambda: tasks.read(path, drop_bad_rows=False)[0], numpy)
    case("check", lambda: files.check(made_by["read"], path), numpy)
    case("label", lambda: ogbench.label(task.name, made_by["read"]), numpy)
    case("fold up", lambda: files.to_transitions(made_by["label"], path, task.sparse), numpy)
    case("put", lambda: jax.device_put(made_by["fold up"]), numpy, sends=True)
    case("all", lambda: jax.device_put(whole(path, task)), numpy)


def plain(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def whole(path: Path, task: tasks.Task) -> Transitions:
    """As training does it."""
    return tasks.load(tasks.read(path, drop_bad_rows=False)[0], path, task, None)


def repeated(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """The median of the seconds, and the last result."""
    seconds, result = [], None
    for _ in range(times):
        begin = time.perf_counter()
        result = jax.block_until_ready(work())
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds)), result
