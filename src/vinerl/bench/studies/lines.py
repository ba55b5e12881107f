"""A study's raw numbers: one object a line, added to as they are measured."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vinerl import disk
from vinerl.errors import InputError


def read(path: Path, origin: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of this origin; those of another are left alone."""
    if not path.exists():
        return []
    found = []
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        try:
            line = json.loads(text)
            if line["origin"] == origin:
                found.append(line)
        except (ValueError, TypeError, KeyError) as error:
            how = "remove this line, and it is measured again"
            raise InputError(f"{path}: line {number} is damaged ({error!r}); {how}") from error
    return found


def append(path: Path, origin: dict[str, Any], lines: Iterable[dict[str, Any]]) -> None:
    """The whole file anew, so that what was measured together is in it or not."""
    rows = [line | {"origin": origin} for line in lines]
    text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    disk.write(path, (path.read_bytes() if path.exists() else b"") + text.encode())
