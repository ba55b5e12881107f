"""Files that are whole or not there, and that notice when they have been changed."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from vinerl.errors import InputError

SEAL = "seal"


def write(path: Path, data: bytes) -> None:
    """On disk whole under its final name, or not there at all."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sealed(path: Path, facts: dict[str, Any]) -> None:
    """Strict JSON with a hash of its own contents in it."""
    sealed = {k: v for k, v in facts.items() if k != SEAL}
    sealed[SEAL] = digest(sealed)
    write(path, json.dumps(sealed, indent=1, allow_nan=False).encode())


def read_sealed(path: Path, schema: int) -> dict[str, Any]:
    """What write_sealed wrote, unless a byte that matters has changed since."""
    try:
        facts = json.loads(path.read_bytes().decode())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    if not isinstance(facts, dict) or SEAL not in facts:
        raise InputError(f"{path}: not a file of vinerl's, or damaged: it has no seal")
    seal = facts.pop(SEAL)
    if seal != digest(facts):
        raise InputError(f"{path}: damaged or edited, its contents do not match its seal")
    if facts.get("schema") != schema:
        raise InputError(f"{path}: schema {facts.get('schema')}, this version reads {schema}")
    return facts


def digest(facts: dict[str, Any]) -> str:
    """The hash of facts, in whatever order they stand."""
    text = json.dumps(facts, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
