"""A study's raw numbers: one object a line, added to as they are measured."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vinerl import disk
from vinerl.errors import InputError

Line = dict[str, Any]


def read(path: Path, origin: dict[str, Any]) -> list[Line]:
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


def whole(found: Iterable[Line], of: str, count: int) -> dict[Any, list[Line]]:
    """By what each is `of`, the last so many lines, one a member; where some are missing, none."""
    by: dict[Any, list[Line]] = {}
    for line in found:
        by.setdefault(line.get(of), []).append(line)
    return {value: told[-count:] for value, told in by.items() if len(told) >= count}


def named(found: Iterable[Line], of: str, members: Sequence[str]) -> list[Line]:
    """A run's lines under the names that its members have now."""
    several = whole(found, of, len(members)).values()
    each = (pair for told in several for pair in zip(told, members, strict=True))
    return [line | {"run": name} for line, name in each]


def append(path: Path, origin: dict[str, Any], lines: Iterable[dict[str, Any]]) -> None:
    """The whole file anew, so that what was measured together is in it or not."""
    rows = [line | {"origin": origin} for line in lines]
    text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    disk.write(path, (path.read_bytes() if path.exists() else b"") + text.encode())
