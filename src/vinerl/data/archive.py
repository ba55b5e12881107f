"""Arrays out of an .npz file that is not trusted: what it claims is held against what is there."""

import math
import tokenize
import zipfile
import zlib
from pathlib import PureWindowsPath
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

# A flipped bit can make of a file any of these: another version, an encrypted one, another format,
# a header that Python's parser gives up on.
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    RuntimeError,
    TypeError,
    SyntaxError,
    MemoryError,
    tokenize.TokenError,
)


class HasObjects(ValueError):
    """An array of Python objects, which only a pickle could hold."""


DESCRIPTOR = 24  # bytes that may follow a member's data, at most
RATIO = 1032  # nothing grows by more when it is inflated


def read(file: BinaryIO) -> dict[str, np.ndarray]:
    """Every array by its name, or one of UNREADABLE before memory is taken for a false claim."""
    if not zipfile.is_zipfile(file):
        raise zipfile.BadZipFile("no zip archive, and a pickle is never loaded")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        check_names(members)
        check_directory(file, members, archive.start_dir)
        return {m.filename.removesuffix(".npy"): _array(archive, m) for m in members}


def check_names(members: list[zipfile.ZipInfo]) -> None:
    """Each is KEY.npy and stays where it is unpacked, on any system; none comes twice."""
    seen = set()
    for name in (PureWindowsPath(member.filename) for member in members):
        if name.anchor or ".." in name.parts or name.suffix != ".npy" or name in seen:
            raise zipfile.BadZipFile(f"{name.as_posix()!r} cannot be the name of an array in it")
        seen.add(name)


def check_directory(file: BinaryIO, members: list[zipfile.ZipInfo], start: int) -> None:
    """Members lie end to end up to the directory's start: a gap is one that it has lost."""
    end = 0
    for member in sorted(members, key=lambda m: m.header_offset):
        _check_gap(member.header_offset - end)
        file.seek(member.header_offset + 26)
        lengths = int(np.frombuffer(file.read(4), "<u2").sum())  # of name and extra field
        end = member.header_offset + 30 + lengths + member.compress_size
    _check_gap(start - end)


def _check_gap(size: int) -> None:
    if not 0 <= size <= DESCRIPTOR:
        raise zipfile.BadZipFile("its directory does not list what is in it")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read only if its header asks for as many bytes as the member can hold and says it holds."""
    with archive.open(member) as file:
        old = npy.read_magic(file) == (1, 0)
        shape, _, kind = (npy.read_array_header_1_0 if old else npy.read_array_header_2_0)(file)
        there = member.file_size - file.tell()
    if kind.hasobject:
        raise HasObjects(f"{member.filename} holds Python objects: a pickle is never loaded")
    claimed = math.prod(shape) * kind.itemsize
    most = member.compress_size * (RATIO if member.compress_type == zipfile.ZIP_DEFLATED else 1)
    if claimed != there or member.file_size > most:
        has = min(there, most)
        raise ValueError(f"{member.filename} claims {claimed} bytes of numbers and has {has}")
    with archive.open(member) as file:
        return npy.read_array(file, allow_pickle=False)
