"""Official files, fetched only when asked, and checked before they count as data.

DATASET.npz, DATASET-val.npz    under these names only when whole and checked
DATASET.json                    their card: for each its address, sha256, size, ETag and date
DATASET.getting/                the parts of what has not arrived yet
"""

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from numpy.lib import format as npy

from vinerl import disk
from vinerl.data import archive, transfer
from vinerl.data.files import OFFICIAL
from vinerl.errors import InputError
from vinerl.owner import Owner

MIRRORS = ("https://rail.eecs.berkeley.edu/datasets/ogbench",)
KNOWN: dict[str, tuple[int, str]] = {}  # size and sha256 by file name, where they are recorded
STALL = 30.0  # seconds without a byte
WAITS = (1.0, 2.0, 4.0, 8.0)  # seconds between tries


def fetch(
    dataset: str,
    folder: Path,
    mirrors: Sequence[str] = MIRRORS,
    show: transfer.Show = lambda *_: None,
    *,
    stall: float = STALL,
    waits: Sequence[float] = WAITS,
) -> list[Path]:
    """The training and the validation file of a dataset, in `folder`.

    Mirrors are the addresses of folders and are tried in turn. After any interruption the next
    call goes on from there. A file that is there already is kept if it was fetched, else refused.
    """
    folder = folder.expanduser()
    _check(dataset, folder, mirrors)
    card, getting = folder / f"{dataset}.json", folder / f"{dataset}.getting"
    targets = [folder / f"{dataset}.npz", folder / f"{dataset}-val.npz"]

    def from_one(url: str, part: Path, name: str) -> dict[str, Any]:
        """What the card will say of a part that is whole and sound."""
        size, _ = KNOWN.get(name, (None, None))
        earlier = bool(transfer.begun(part, url))
        while True:
            transfer.receive(url, part, show, stall, waits, size)
            try:
                return _facts(url, part, _verify(part, name))
            except transfer.Failed:
                transfer.discard(part)
                if not earlier:
                    raise
                earlier = False  # the damage may be in what was here before: all of it once more

    def from_any(path: Path) -> None:
        reasons = ""
        for mirror in mirrors:
            url, part = f"{mirror.rstrip('/')}/{path.name}", getting / f"{path.name}.part"
            print(f"{path.name} from {url}", flush=True)
            try:
                return _publish(part, path, card, from_one(url, part, path.name))
            except transfer.Failed as reason:
                reasons += f"\n  {url}: {reason}"
        raise InputError(
            f"{path.name} could not be fetched:{reasons}\n"
            "Ask again later (what has arrived is kept), give another address with --mirror, or "
            f"make data of the same kind, where that can be done: vinerl data make {dataset}"
        )

    try:
        recorded = _read_card(card)
        if missing := [path for path in targets if not _kept(path, recorded)]:
            with _held(getting):
                for path in missing:
                    from_any(path)
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: {error.strerror or error}. Put that right and ask again: "
            "what has arrived is kept."
        ) from error
    return targets


def _check(dataset: str, folder: Path, mirrors: Sequence[str]) -> None:
    if not re.fullmatch(r"\w[\w.-]*", dataset, re.ASCII):
        raise InputError(f"{dataset!r} is not the name of a dataset")
    official = OFFICIAL.expanduser().resolve()
    if folder.resolve().is_relative_to(official):
        raise InputError(f"{official} belongs to OGBench and is only read; give another --dir")
    for mirror in mirrors:
        if not re.match(r"(https?|file)://", mirror):
            raise InputError(
                f"--mirror {mirror}: not an address that starts with https://, http:// or file:// "
                "(a folder of this machine is file:///PATH)"
            )


def _read_card(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"origin": "official"}
    with suppress(ValueError):
        card = json.loads(path.read_bytes())
        if isinstance(card, dict) and card.get("origin") == "official":
            return card
    raise InputError(
        f"{path} is not the card of official files: data of this name were made here. They are "
        "not overwritten; move them away or give another --dir."
    )


def _kept(path: Path, card: dict[str, Any]) -> bool:
    """Whether the file is there already; one that the card does not describe is refused."""
    if not path.exists():
        return False
    if card.get("sha256", {}).get(path.name) != disk.sha256(path):
        raise InputError(
            f"{path} exists, and no card beside it says that it was fetched. It is not "
            "overwritten; move it away or give another --dir."
        )
    print(f"{path} is there already, from {card['url'][path.name]}", flush=True)
    return True


@contextmanager
def _held(getting: Path) -> Iterator[None]:
    """One process at a time; the folder goes when there is nothing left in it."""
    try:
        with Owner(getting):
            yield
    finally:
        with suppress(OSError):
            getting.rmdir()


def _verify(part: Path, name: str) -> str:
    """The sha256 of a file that is the recorded one or, without a record, sound in itself."""
    sha256 = disk.sha256(part)
    if name in KNOWN:
        if sha256 != KNOWN[name][1]:
            raise transfer.Failed(f"sha256 {sha256}, the official file has {KNOWN[name][1]}")
        return sha256
    try:
        _check_shapes(_shapes(part))
    except archive.UNREADABLE as error:
        raise transfer.Failed(f"damaged, or not a dataset ({error})") from error
    return sha256


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every array, once the checksums of all have been found right."""
    with path.open("rb") as file, zipfile.ZipFile(file) as zipped:
        members = zipped.infolist()
        archive.check_names(members)
        archive.check_directory(file, members, zipped.start_dir)
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{member.filename} is packed in a way that is not NumPy's")
        if (bad := zipped.testzip()) is not None:
            raise ValueError(f"the checksum of {bad} is wrong")
        return {m.filename.removesuffix(".npy"): _shape(zipped, m) for m in members}


def _shape(zipped: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[int, ...]:
    with zipped.open(member) as file:
        old = npy.read_magic(file) == (1, 0)
        shape, _, kind = (npy.read_array_header_1_0 if old else npy.read_array_header_2_0)(file)
        if kind.kind not in "fiub":
            raise ValueError(f"{member.filename} holds {kind}, not numbers")
        if file.tell() + math.prod(shape) * kind.itemsize != member.file_size:
            raise ValueError(f"{member.filename} is not as long as its shape {shape} says")
    return shape


def _check_shapes(found: dict[str, tuple[int, ...]]) -> None:
    for name, rank in (("actions", 2), ("terminals", 1), ("observations", 2)):
        if name not in found:
            raise ValueError(f"no {name} in it")
        if len(found[name]) < rank:
            raise ValueError(f"{name} has shape {found[name]}")
    rows = found["actions"][0]
    for name, shape in found.items():
        if shape[:1] != (rows,):
            raise ValueError(f"{name} has shape {shape}, actions have {rows} rows")


def _facts(url: str, part: Path, sha256: str) -> dict[str, Any]:
    note, now = transfer.begun(part, url), datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"url": url, "sha256": sha256, "size": note["size"], "etag": note["etag"]}
    return facts | {"fetched": now}


def _publish(part: Path, path: Path, card: Path, facts: dict[str, Any]) -> None:
    """The card first, so that no file is ever there without one."""
    recorded = _read_card(card)
    for key, value in facts.items():
        recorded.setdefault(key, {})[path.name] = value
    if path.exists():
        raise InputError(f"{path} appeared while it was fetched and is not overwritten")
    disk.write(card, json.dumps(recorded, indent=1).encode())
    os.replace(part, path)
    transfer.discard(part)
