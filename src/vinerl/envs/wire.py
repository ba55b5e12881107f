"""Messages between a parent and its workers: a JSON header and arrays, nothing that executes."""

import json
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np


def send(stream: BinaryIO, header: dict, arrays: Sequence[np.ndarray] = ()) -> None:
    arrays = [np.asarray(x, order="C") for x in arrays]
    head = json.dumps([header, [[x.dtype.str, x.shape] for x in arrays]]).encode()
    stream.write(struct.pack("<I", len(head)) + head + b"".join(x.tobytes() for x in arrays))
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict, list[np.ndarray]]:
    """The next message; EOFError once the other side is gone."""
    (length,) = struct.unpack("<I", _exactly(stream, 4))
    header, forms = json.loads(_exactly(stream, length))
    return header, [_array(stream, *form) for form in forms]


def leaves(obs: Any) -> list[np.ndarray]:
    """The arrays of an observation in the order in which JAX flattens it."""
    if isinstance(obs, dict):
        return [leaf for name in sorted(obs) for leaf in leaves(obs[name])]
    x = np.asarray(obs)
    return [x.astype(np.float32) if x.dtype == np.float64 else x]


def _array(stream: BinaryIO, dtype: str, shape: Sequence[int]) -> np.ndarray:
    kind = np.dtype(dtype)
    data = _exactly(stream, int(np.prod(shape)) * kind.itemsize)
    return np.frombuffer(data, kind).reshape(shape)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    parts, left = [], count
    while left:
        part = stream.read(left)
        if not part:
            raise EOFError("the other process has gone")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
