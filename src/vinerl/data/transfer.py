"""One file from one address: as many connections as it takes, each going on from the last.

What has arrived is in a part, and a note beside it (PART.json) says of which version of the file.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vinerl import disk
from vinerl.errors import InputError

MAGIC = b"PK\3\4"  # how every .npz begins, and no page that says what went wrong
PIECE = 1 << 18
SCHEMA = 1

Show = Callable[[int, int], None]  # (bytes that are here, bytes in all)


class Failed(Exception):
    """This address will not do; the message is the reason."""


class Dropped(Failed):
    """Another try may go on from what has arrived."""


class Useless(Dropped):
    """Another try may do, but from the beginning."""


def receive(
    url: str,
    part: Path,
    show: Show,
    stall: float,
    waits: Sequence[float],
    size: int | None = None,
) -> None:
    """Until `part` is as long as the server says, or no try brings any more of it.

    A connection may be silent for `stall` seconds; `waits` are the pauses between tries, and start
    anew after each that got further. Only a file of `size` bytes is taken, where that is given.
    """
    reached, left = 0, list(waits)
    while True:
        try:
            return _connect(url, part, show, stall, size)
        except Dropped as reason:
            if isinstance(reason, Useless):
                discard(part)
            if _length(part) > reached:
                reached, left = _length(part), list(waits)
            if not left:
                raise
            time.sleep(left.pop(0))


def begun(part: Path, url: str) -> dict[str, Any]:
    """The note of what has arrived from this address; empty where nothing has."""
    with suppress(InputError):
        note = disk.read_sealed(_note(part), SCHEMA)
        if note["url"] == url and part.exists() and _length(part) <= note["size"]:
            return note
    return {}


def discard(part: Path) -> None:
    _note(part).unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def _connect(url: str, part: Path, show: Show, stall: float, size: int | None) -> None:
    """One connection, which adds to the part if the server still has the same version."""
    note = begun(part, url)
    have = _length(part) if note else 0
    if note and have == note["size"]:
        return
    with _opened(url, note, have, stall) as answer:
        if answer.status == 206 and have:
            _check_continues(answer, note, have)
            _check_space(part, note["size"])
        else:
            note = _announced(answer, url, size)
            _check_space(part, note["size"])
            have = _begin(part, note, _read(answer.read, len(MAGIC)), answer)
        with part.open("ab") as file:
            while piece := _read(answer.read1, min(PIECE, note["size"] - have)):
                file.write(piece)
                have += len(piece)
                show(have, note["size"])
            file.flush()
            os.fsync(file.fileno())
    if have < note["size"]:
        raise Dropped(f"the connection ended after {have} of {note['size']} bytes")


def _announced(answer: Any, url: str, size: int | None) -> dict[str, Any]:
    """The note of a file that the server sends from its beginning."""
    if answer.status not in (None, 200):  # None: a file of this machine
        raise Failed(f"HTTP {answer.status} instead of the file")
    headers = answer.headers
    length = headers.get("Content-Length", "")
    if not length.isdecimal():
        raise Failed("it does not say how long the file is (no Content-Length)")
    if size not in (None, int(length)):
        raise Failed(f"{length} bytes long, the official file has {size}")
    note = {"schema": SCHEMA, "url": url, "size": int(length)}
    return note | {"etag": headers.get("ETag"), "modified": headers.get("Last-Modified")}


def _check_continues(answer: Any, note: dict[str, Any], have: int) -> None:
    """Not every server heeds If-Range, or sends the range that it was asked for."""
    found = [answer.headers.get(name) for name in ("ETag", "Last-Modified", "Content-Range")]
    span = f"bytes {have}-{note['size'] - 1}/{note['size']}"
    if found != [note["etag"], note["modified"], span]:
        raise Useless("the file changed between two pieces")


def _begin(part: Path, note: dict[str, Any], first: bytes, answer: Any) -> int:
    """A note never stands beside bytes of another version, wherever this is interrupted."""
    if len(first) < min(len(MAGIC), note["size"]):
        raise Dropped("the connection ended before the file began")
    if first != MAGIC:
        raise Failed(f"not an .npz file but {answer.headers.get_content_type()}")
    discard(part)
    part.touch()
    disk.write_sealed(_note(part), note)
    return part.write_bytes(first)


def _check_space(part: Path, size: int) -> None:
    need = size - _length(part)
    if (lack := need - shutil.disk_usage(part.parent).free) > 0:
        raise Failed(
            f"{need / 1e6:,.1f} MB are still to come, {lack / 1e6:,.1f} MB more than are free in "
            f"{part.parent}"
        )


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _note(part: Path) -> Path:
    return part.with_name(part.name + ".json")


@contextmanager
def _opened(url: str, note: dict[str, Any], have: int, stall: float) -> Iterator[Any]:
    """The answer to one request, for what is missing if the server can tell versions apart."""
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, req, fp, code, msg, headers, newurl):
            if not _may_follow(req.full_url, newurl):
                fp.close()
                raise Failed(f"it redirects to {newurl.split(':')[0]}://, which is not followed")
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    headers = {"User-Agent": "vinerl", "Accept-Encoding": "identity"}
    if have and (version := _version(note)):
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    with _reasons():
        answer = build_opener(Redirects).open(Request(url, headers=headers), timeout=stall)
    with answer:
        yield answer


def _version(note: dict[str, Any]) -> str | None:
    """What If-Range may say; a weak ETag does not vouch for single bytes."""
    etag = note["etag"]
    return etag if etag and not etag.startswith("W/") else note["modified"]


def _may_follow(url: str, target: str) -> bool:
    """Never away from http and https, nor from https to http."""
    return target.startswith("https://" if url.startswith("https://") else ("http://", "https://"))


def _read(read: Callable[[int], bytes], count: int) -> bytes:
    with _reasons():
        return read(count)


@contextmanager
def _reasons() -> Iterator[None]:
    """What the network raises, told apart by whether another try may help."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    try:
        yield
    except HTTPError as error:
        error.close()
        again = error.code >= 500 or error.code in (408, 429)
        kind = Useless if error.code == 416 else Dropped if again else Failed
        raise kind(f"HTTP {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        final = isinstance(reason, FileNotFoundError | IsADirectoryError | PermissionError)
        kind = Failed if final else Dropped
        raise kind(str(reason) or type(reason).__name__) from error
    except ValueError as error:
        raise Failed(f"not an address ({error})") from error
