"""One safetensors file a tree, with a JSON of what it is and its hash beside it.

Both are written aside, synced and renamed, the JSON last: a tensor file without one is no
checkpoint. Loading verifies the hash, the names, the shapes and the types before anything is used.
"""

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy

from vinerl import disk
from vinerl.errors import InputError
from vinerl.types import Params

SCHEMA = 1


def save(path: Path, tree: Params, **facts: Any) -> None:
    """`tree` as path.safetensors and `facts` (plain values) with the hash as path.json."""
    named, _ = jax.tree_util.tree_flatten_with_path(jax.device_get(tree))
    data = safetensors.numpy.save({_name(p): np.asarray(x, order="C") for p, x in named})
    card = {"schema": SCHEMA, "sha256": hashlib.sha256(data).hexdigest()} | facts
    disk.write(path.with_suffix(".safetensors"), data)
    disk.write_sealed(path.with_suffix(".json"), card)


def card(path: Path) -> dict:
    """The facts saved with a tree."""
    return disk.read_sealed(path.with_suffix(".json"), SCHEMA)


def load(path: Path, like: Params) -> Params:
    """The tree at `path`, which must have the names, shapes and types of `like`."""
    file, facts = path.with_suffix(".safetensors"), card(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error})") from error
    if hashlib.sha256(data).hexdigest() != facts["sha256"]:
        raise InputError(f"{file}: damaged, its hash is not the recorded one; use another step's")
    arrays = safetensors.numpy.load(data)
    named, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {_name(p): (x.shape, np.dtype(x.dtype)) for p, x in named}
    found = {name: (x.shape, x.dtype) for name, x in arrays.items()}
    if expected != found:
        name = min(n for n in expected | found if expected.get(n) != found.get(n))
        raise InputError(
            f"{file}: made by another agent or config; {name} is {_words(found.get(name))}, "
            f"expected {_words(expected.get(name))}"
        )
    return jax.tree.unflatten(structure, [arrays[_name(p)] for p, _ in named])


def _words(kind: tuple[tuple[int, ...], np.dtype] | None) -> str:
    return f"{kind[1]} {list(kind[0])}" if kind else "not there"


def _name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")
