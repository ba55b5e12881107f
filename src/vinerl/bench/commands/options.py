"""From the words of a command to its options, and how --help tells them."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import tyro

C = TypeVar("C")
T = TypeVar("T")

# An option whose comment says what holds where it is not given.
Given = tyro.conf.DisallowNone[Annotated[T | None, tyro.conf.arg(help_behavior_hint="")]]


def parse(kind: type[C], args: Sequence[str], name: str, **how: Any) -> C:
    config = (tyro.conf.PositionalMetavarFromFieldName,)
    return tyro.cli(kind, prog=f"vinerl {name}", args=args, config=config, **how)
