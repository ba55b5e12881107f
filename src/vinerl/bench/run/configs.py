"""Values that an agent's config cannot have, refused before anything compiles."""

from collections.abc import Callable
from dataclasses import fields, replace
from math import inf
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from vinerl.errors import InputError
from vinerl.rl.learner import AgentConfig

# Whole numbers, each 1 or more.
COUNTS = ("batch_size", "horizon", "critics", "critic_blocks", "actor_hidden", "critic_hidden")
COUNTS += ("target_every", "actor_every", "draws", "lr_steps", "flow_steps", "best_of")
# What a float field may be, in words and as a test.
RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "lr": ("a number above 0", lambda x: 0 < x < inf),
    "lr_end": ("a number, 0 or more", lambda x: 0 <= x < inf),
    "tau": ("a number above 0, 1 at most", lambda x: 0 < x <= 1),
    "discount": ("a number from 0 to 1", lambda x: 0 <= x <= 1),
    "max_grad_norm": ("a number above 0", lambda x: x > 0),
}
# Of the agents here; in one of the user's own these names may mean something else.
OURS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "alpha": ("a number, 0 or more", lambda x: 0 <= x < inf),
    "noise": ("a number, 0 or more", lambda x: 0 <= x < inf),
}


def check(config: AgentConfig) -> None:
    """Every field by its type and, where there is one, its range."""
    hints = get_type_hints(type(config))
    ranges = RANGES | (OURS if type(config).__module__.startswith("vinerl.") else {})
    for field in fields(config):
        name, kind, value = field.name, hints[field.name], getattr(config, field.name)
        usual = type(value) is type(field.default) and value == field.default
        if usual:  # what a class of the user's own says itself may be of another type, or infinite
            fault = None
        elif kind is float:
            fault = _floats(value, *ranges.get(name, ("a finite number", lambda x: abs(x) < inf)))
        else:
            fault = _other(name, kind, value)
        if fault:
            raise InputError(f"--agent.{name} {value}: {fault}")
    stop, steps = getattr(config, "stop_at", None), getattr(config, "flow_steps", 1)
    if stop is not None and not 1 <= stop <= steps:
        raise InputError(f"--agent.stop-at {stop}: expected 1 to flow_steps, which is {steps}")


def plain(config: AgentConfig) -> AgentConfig:
    """With every float field a float, or several: 300 and [300.0] are 300.0."""
    floats = [name for name, kind in get_type_hints(type(config)).items() if kind is float]
    return replace(config, **{name: _plain(getattr(config, name)) for name in floats})


def _plain(value: Any) -> float | tuple[float, ...]:
    several = [float(x) for x in (value if isinstance(value, tuple | list) else (value,))]
    return tuple(several) if len(several) > 1 else several[0]


def _floats(value: Any, words: str, fits: Callable[[float], bool]) -> str | None:
    """What is wrong with the value of a field that may hold several."""
    several = value if isinstance(value, tuple | list) else (value,)
    if not several or not all(_number(x) and fits(x) for x in several):
        return f"expected {words}, or several"
    return "a value is given twice" if len(set(several)) != len(several) else None


def _other(name: str, kind: Any, value: Any) -> str | None:
    """What is wrong with any other value; nothing, where its type is not one of those here."""
    if get_origin(kind) in (Union, UnionType) and NoneType in get_args(kind):
        kinds = [one for one in get_args(kind) if one is not NoneType]
        fault = _other(name, kinds[0], value) if value is not None and len(kinds) == 1 else None
        return fault and f"{fault}, or None"
    least, words = (1, ", 1 or more") if name in COUNTS else (-inf, "")
    whole = lambda x: _number(x) and isinstance(x, int) and x >= least
    if get_origin(kind) is Literal:
        fits, expected = value in get_args(kind), f"there are {', '.join(map(str, get_args(kind)))}"
    elif kind is bool:
        fits, expected = isinstance(value, bool), "expected True or False"
    elif kind is int:
        fits, expected = whole(value), f"expected a whole number{words}"
    elif get_origin(kind) is tuple and set(get_args(kind)) <= {int, Ellipsis}:
        fits = isinstance(value, tuple | list) and all(map(whole, value))
        expected = f"expected a list of whole numbers{words}"
    else:
        return None
    return None if fits else expected


def _number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)
