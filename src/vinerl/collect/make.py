"""Making a dataset: episodes from worker processes, in pieces that survive an interruption.

Meanwhile DATASET.making/ holds the pieces that are there; whoever asks for the same dataset again
goes on with them. At the end the files are assembled there and moved to their names.
"""

import errno
import hashlib
import io
import json
import os
import platform
import shutil
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from vinerl import disk
from vinerl.collect.recipes import Recipe
from vinerl.data import files
from vinerl.envs.workers import Workers
from vinerl.errors import InputError
from vinerl.owner import Owner

Show = Callable[[int, int], None]  # (episodes done, episodes in all)
SCHEMA = 1


def make(
    recipe: Recipe,
    folder: Path,
    processes: int,
    show: Show = lambda *_: None,
    controller: Path | None = None,
) -> Path:
    """The training file, the validation file and a card that says how they were made."""
    if processes < 1:
        raise InputError(f"--workers {processes}: expected a whole number, 1 or more")
    if recipe.seed < 0:
        raise InputError(f"--seed {recipe.seed}: expected a whole number, 0 or more")
    names = [f"{recipe.dataset}-val.npz", f"{recipe.dataset}.json", f"{recipe.dataset}.npz"]
    making = folder / f"{recipe.dataset}.making"
    assembled = making / names[1]  # the card is written last
    if not assembled.exists():
        _check_free(folder, names)
    try:
        with Owner(making):
            _begin(making, recipe)
            if not assembled.exists():
                _check_free(folder, names)  # another process may just have made them
                seconds = collect(recipe, making, processes, show, controller)
                _assemble(recipe, making, names, seconds)
            _move(making, folder, names)
            for path in (*_pieces(making, recipe), assembled):  # last what lets one go on
                path.unlink(missing_ok=True)
            shutil.rmtree(making, ignore_errors=True)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(
            f"{folder}: the disk is full. Make room and ask for the same again: it goes on with "
            f"what {making.name} holds. Or choose another --dir."
        ) from error
    return folder / names[-1]


def _check_free(folder: Path, names: list[str]) -> None:
    for path in (folder / name for name in names):
        if path.exists():
            raise InputError(f"{path} exists and is not overwritten; choose another --dir")


def _move(making: Path, folder: Path, names: list[str]) -> None:
    """To their final names. The card stays here too: an interrupted move goes on."""
    val, card, train = names
    for name in (val, train):
        if (making / name).exists() and (folder / name).exists():
            raise InputError(f"{folder / name} exists and is not overwritten; move it away")
    disk.write(folder / card, (making / card).read_bytes())
    for name in (val, train):
        if (making / name).exists():
            os.replace(making / name, folder / name)


def versions() -> dict[str, str]:
    named = {name: version(name) for name in ("mujoco", "dm-control", "ogbench", "numpy")}
    return named | {"python": platform.python_version()}


def _begin(making: Path, recipe: Recipe) -> None:
    """Pieces of another recipe, or of other versions, would not fit together."""
    facts = {"schema": SCHEMA, "recipe": asdict(recipe), "versions": versions()}
    path = making / "recipe.json"
    if not path.exists():
        disk.write_sealed(path, facts)
    begun = disk.read_sealed(path, SCHEMA)
    if begun != facts:
        raise InputError(
            f"{making} holds the beginning of another dataset: {_differences(begun, facts)}. "
            "Remove that folder, or ask for the same again to go on with it."
        )


def _differences(old: dict, new: dict) -> str:
    parts = [
        f"{name} was {old[part].get(name)!r}, now {value!r}"
        for part in ("recipe", "versions")
        for name, value in new[part].items()
        if old[part].get(name) != value
    ]
    return ", ".join(parts)


def collect(
    recipe: Recipe,
    making: Path,
    processes: int,
    show: Show = lambda *_: None,
    controller: Path | None = None,
) -> float:
    """Every piece that is not there yet; the seconds that took."""
    begin, size = time.monotonic(), recipe.together
    firsts = range(0, recipe.total, size)
    left = [first for first in firsts if not _good(_piece(making, first))]
    done = recipe.total - sum(min(size, recipe.total - first) for first in left)
    show(done, recipe.total)
    todo, lock, stop = iter(left), threading.Lock(), threading.Event()
    arguments = [recipe.to_json(), *([str(controller)] if controller else [])]
    everyone: list[Workers] = []

    def work() -> None:
        nonlocal done
        workers = Workers("vinerl.collect.worker", *arguments, count=1)
        everyone.append(workers)
        try:
            while not stop.is_set() and (first := next(todo, None)) is not None:
                numbers = list(range(first, min(first + size, recipe.total)))
                workers.send(0, {"numbers": numbers})
                header, arrays = workers.receive(0)
                disk.write(_piece(making, first), _packed(header, arrays))
                with lock:
                    done += len(numbers)
                    show(done, recipe.total)
        finally:
            stop.set()
            workers.close()

    with ThreadPoolExecutor(processes) as pool:
        working = [pool.submit(work) for _ in range(min(processes, len(left)))]
        try:
            for one in working:
                one.result()
        except BaseException:
            stop.set()
            for workers in everyone:
                workers.kill()
            raise
    return time.monotonic() - begin


def _piece(making: Path, first: int) -> Path:
    return making / f"{first:06d}.npz"


def _pieces(making: Path, recipe: Recipe) -> list[Path]:
    return [_piece(making, first) for first in range(0, recipe.total, recipe.together)]


def _packed(header: dict, arrays: list[np.ndarray]) -> bytes:
    names, buffer = header["names"], io.BytesIO()
    columns: dict[str, Any] = {
        n: np.concatenate(arrays[i :: len(names)]) for i, n in enumerate(names)
    }
    np.savez(buffer, facts=np.array(json.dumps(header["facts"])), **columns)
    return buffer.getvalue()


def _good(path: Path) -> bool:
    """Whether a piece is there and whole."""
    with suppress(InputError):
        return bool(files.read(path))
    return False


def _assemble(recipe: Recipe, making: Path, names: list[str], seconds: float) -> None:
    """Pieces to files of the official layout, an array at a time; the card last."""
    pieces = _pieces(making, recipe)
    each, cut = recipe.together * recipe.rows, recipe.episodes * recipe.rows
    content = {
        names[2]: _write(making / names[2], pieces, each, 0, cut),
        names[0]: _write(making / names[0], pieces, each, cut, recipe.total * recipe.rows),
    }
    facts = [fact for path in pieces for fact in json.loads(str(_array(path, "facts")))]
    told = facts[: recipe.episodes]
    card = {
        "origin": "regenerated",
        "recipe": asdict(recipe),
        "per_episode": {name: float(np.mean([f[name] for f in told])) for name in told[0]},
        "content": content,  # of the arrays; the same however and wherever they were packed
        "sha256": {name: disk.sha256(making / name) for name in (names[2], names[0])},
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),  # since the last interruption
        "versions": versions(),
    }
    disk.write(making / names[1], json.dumps(card, indent=1).encode())


def _write(path: Path, pieces: list[Path], each: int, begin: int, end: int) -> str:
    """Rows begin to end of pieces of `each` as one .npz file; a hash of its names and numbers."""
    digest = hashlib.sha256()
    with path.open("wb") as raw:
        with zipfile.ZipFile(raw, "w") as archive:
            for name, like in sorted(files.read(pieces[0]).items()):
                if name == "facts":
                    continue
                member = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
                member.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(member, "w", force_zip64=True) as out:
                    head = {"descr": like.dtype.str, "fortran_order": False}
                    head["shape"] = (end - begin, *like.shape[1:])
                    np.lib.format.write_array_header_1_0(out, head)
                    digest.update(f"{name} {head}".encode())
                    for rows in _rows(pieces, each, name, begin, end):
                        data = rows.tobytes()
                        digest.update(data)
                        out.write(data)
        raw.flush()
        os.fsync(raw.fileno())
    return digest.hexdigest()


def _rows(pieces: list[Path], each: int, name: str, begin: int, end: int) -> Iterator[np.ndarray]:
    for first, path in zip(range(0, end, each), pieces, strict=False):
        if first + each > begin:
            yield _array(path, name)[max(begin - first, 0) : end - first]


def _array(piece: Path, name: str) -> np.ndarray:
    with np.load(piece, allow_pickle=False) as arrays:
        return arrays[name]
