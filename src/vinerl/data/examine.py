"""Everything that is wrong with a file of transitions, and what is merely odd about it."""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import numpy as np

from vinerl.data import files
from vinerl.data.files import Arrays, Fault
from vinerl.errors import InputError

SATURATED = 0.5  # share of a dimension's actions at the edge from which on it is odd
NAMED = 8  # columns in a message
COLOURS = (1, 3, 4)  # channels that an image usually has
OUT_OF_TIME = ("timeouts", "truncations", "truncated")  # what others call it


class Finding(NamedTuple):
    """`wrong` is refused by training; `odd` may be meant so."""

    level: Literal["wrong", "odd"]
    key: str  # of an array, or "file"
    message: str  # with rows and counts, and what to do


class Report(NamedTuple):
    text: str
    findings: list[Finding]


def report(path: Path) -> Report:
    """What the file holds, as text, and all findings, the wrong ones first.

    With a wrong shape nothing odd is looked for.
    """
    try:
        arrays = files.read(path)
    except InputError as error:
        found = [Finding("wrong", "file", str(error).removeprefix(f"{path}: "))]
        return Report(_text(path, [], found), found)
    found = [Finding("wrong", *fault) for fault in files.faults(arrays)]
    whole = not any(files.misshapen(arrays))
    if whole:
        found += [Finding("odd", *fault) for rule in _ODD for fault in rule(arrays)]
    facts = [*(_counts(arrays) if whole else []), "", *_table(arrays)]
    return Report(_text(path, facts, found), found)


def starts(arrays: Arrays) -> np.ndarray:
    """[episodes + 1], the row each episode starts in, and the number of rows."""
    ends = arrays["terminals"].astype(bool)
    return np.append(np.flatnonzero(np.append(True, ends[:-1])), len(ends))


def episode_sums(arrays: Arrays, x: np.ndarray) -> np.ndarray:
    """[episodes], the sum of x [rows] over each episode's transitions."""
    return np.add.reduceat(np.where(files.used(arrays), x, 0), starts(arrays)[:-1])


def _text(path: Path, facts: list[str], findings: list[Finding]) -> str:
    wrong = sum(f.level == "wrong" for f in findings)
    verdict = f"{wrong or 'nothing'} wrong, {len(findings) - wrong or 'nothing'} odd"
    lines = [f"{f.level:5}  {f.message}" for f in findings]
    return "\n".join([str(path), *facts, "", *lines, verdict])


def _counts(arrays: Arrays) -> list[str]:
    used = files.used(arrays)
    lengths = episode_sums(arrays, used)
    said = f"{lengths.min():g}, {np.median(lengths):g}, {lengths.max():g}"
    count = "1 episode" if len(lengths) == 1 else f"{len(lengths)} episodes"
    lines = [f"{count}, {used.sum()} transitions; lengths {said} (least, median, most)"]
    if "rewards" not in arrays:
        return [*lines, "no rewards: an OGBench task gives them (--task), --data needs them"]
    if not files.finite(arrays["rewards"]).all():
        return lines
    returns = episode_sums(arrays, arrays["rewards"].astype(np.float64))
    ended = ""
    if "masks" in arrays:
        ended = f"; the task itself ended in {(arrays['masks'][used] == 0).sum()} transitions"
    said = f"{returns.min():.4g}, {np.median(returns):.4g}, {returns.max():.4g}"
    return [*lines, f"returns {said} (least, median, most){ended}"]


def _table(arrays: Arrays) -> list[str]:
    rows = [("key", "shape", "type", "range")]
    for name, x in arrays.items():
        shape = " x ".join(map(str, x.shape)) or "a number"
        rows.append((name, shape, str(x.dtype), _range(x)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = lambda row: "  ".join(f"{word:{w}}" for word, w in zip(row, widths, strict=True))
    return [pad(row).rstrip() for row in rows]


def _range(x: np.ndarray) -> str:
    values = x[np.isfinite(x)] if x.dtype.kind == "f" else x
    if x.dtype.kind not in "fiub" or not values.size:
        return "-"
    return f"{float(values.min()):.4g} to {float(values.max()):.4g}"


# What is odd, of arrays whose shapes are right


def _storage(arrays: Arrays) -> Iterator[Fault]:
    said = {"float64": "float32 is what training uses: half as large", "float16": "3 digits only"}
    for kind, why in said.items():
        names = [name for name, x in files.relevant(arrays).items() if str(x.dtype) == kind]
        if names:
            yield Fault(names[0], f"stored in {kind} ({why}): {', '.join(names)}")


def _ignored(arrays: Arrays) -> Iterator[Fault]:
    """Columns under names that mean nothing here."""
    known, rows = {*files.relevant(arrays), *files.UNUSED}, len(arrays["terminals"])
    for name, x in arrays.items():
        if name in known or not x.ndim or len(x) != rows:
            continue
        hint = ""
        if name in OUT_OF_TIME:
            hint = (
                " If it is 1 where time ran out and terminals where the task ended, as in D4RL: "
                "masks = 1 - terminals, then terminals = the larger of both, and give "
                "next_observations, or the last step of each episode is not learned from."
            )
        yield Fault(name, f"{name} is not used.{hint}")


def _images(arrays: Arrays) -> Iterator[Fault]:
    for name, x in files.relevant(arrays).items():
        if name.startswith("observations") and x.ndim == 4 and x.dtype != np.uint8:
            yield Fault(
                name,
                f"{name} is {x.dtype} and so no image, but {x[0].size} numbers in a row. Images "
                "are uint8, 0 to 255.",
            )


def _constant(arrays: Arrays) -> Iterator[Fault]:
    used = files.used(arrays)
    for name, x in files.relevant(arrays).items():
        rows = x[used] if name == "actions" else x
        if not name.startswith(("observations", "actions")) or len(rows) < 2 or x.dtype == np.uint8:
            continue
        same = np.atleast_1d((rows == rows[0]).all(axis=0)).ravel()
        if same.any():
            which = _listed(map(str, np.flatnonzero(same)))
            yield Fault(
                name, f"{name} never changes in {same.sum()} of {len(same)} columns ({which})"
            )


def _saturated(arrays: Arrays) -> Iterator[Fault]:
    far = np.abs(arrays["actions"][files.used(arrays)])
    shares = ((far >= files.CLIP) & (far <= 1)).sum(axis=0) / max(len(far), 1)
    if (shares > SATURATED).any():
        which = _listed(f"{d} ({shares[d]:.0%})" for d in np.flatnonzero(shares > SATURATED))
        yield Fault(
            "actions",
            f"actions are at the edge of [-1, 1] in most transitions in dimension {which}. If they "
            "were clipped, look for their true scale.",
        )


def _channels(arrays: Arrays) -> Iterator[Fault]:
    for name, x in files.relevant(arrays).items():
        image = name.startswith("observations") and x.ndim == 4 and x.dtype == np.uint8
        if image and x.shape[1] in COLOURS and x.shape[3] not in COLOURS:
            yield Fault(
                name,
                f"{name} has {x.shape[3]} channels and a height of {x.shape[1]}. An image is "
                "[height, width, channels]; np.moveaxis(x, 1, -1) turns [channels, height, width] "
                "into that.",
            )


def _unrewarded(arrays: Arrays) -> Iterator[Fault]:
    if "rewards" not in arrays and "qpos" not in arrays:
        yield Fault("rewards", "there are no rewards, without which --data is refused")


def _goes_on(arrays: Arrays) -> Iterator[Fault]:
    """Most of what goes on is said to be over. (A few such rows are right: where the goal was
    reached and the recording went on.)"""
    if "masks" not in arrays:
        return
    ends = arrays["terminals"].astype(bool)
    last = ends if files.spelled_out(arrays) else np.append(ends[1:], False)
    inside = files.used(arrays) & ~last
    rows = np.flatnonzero(inside & (arrays["masks"] == 0))
    if len(rows) > inside.sum() / 2:
        yield Fault(
            "masks",
            f"masks are 0 in {len(rows)} of {inside.sum()} transitions after which the episode "
            f"goes on, first in row {rows[0]}. 0 says that the task itself ended there, 1 that "
            "what follows counts.",
        )


def _unvaried(arrays: Arrays) -> Iterator[Fault]:
    """Nothing to tell good from bad."""
    used = files.used(arrays)
    rewards, masks = (arrays[n][used] if n in arrays else used[:0] for n in ("rewards", "masks"))
    if len(rewards) and (rewards == rewards[0]).all():
        usual = "In OGBench negative rewards are normal until the goal is reached: never, here."
        yield Fault(
            "rewards",
            f"rewards are {float(rewards[0]):.4g} in all {len(rewards)} transitions, so all "
            f"policies are equally good. {_unseen(arrays, 'rewards', rewards[0]) or usual}",
        )
    if len(masks) and masks.all():
        usual = "That is right where episodes only run out of time."
        yield Fault(
            "masks",
            f"masks are 1 in all {len(masks)} transitions: no episode ends in success or failure. "
            f"{_unseen(arrays, 'masks', 1) or usual}",
        )


def _unseen(arrays: Arrays, name: str, usual: float) -> str:
    """What is said of other values in rows in which nothing is done."""
    others = (arrays[name] != usual)[~files.used(arrays)].sum()
    if not others:
        return ""
    return (
        f"Others stand in {others} last rows of episodes, which are final observations. What the "
        "last step gave belongs into the row before, where it was taken, or give next_observations."
    )


def _short(arrays: Arrays) -> Iterator[Fault]:
    lengths = np.diff(starts(arrays))
    if files.spelled_out(arrays) and len(alone := np.flatnonzero(lengths == 1)):
        yield Fault(
            "terminals",
            f"{len(alone)} of {len(lengths)} episodes have one row, the first is row "
            f"{starts(arrays)[alone[0]]}. That is right for a bandit only.",
        )


def _duplicates(arrays: Arrays) -> Iterator[Fault]:
    """Rows with an observation and an action that came before, and whole episodes of them."""
    parts = [*jax.tree.leaves(files.observations(arrays)), arrays["actions"]]
    flat = [np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in parts]
    digests = [_digest(row) for row in zip(*flat, strict=True)]
    if pairs := _repeated(digests):
        yield Fault(
            "observations",
            f"{len(pairs)} of {len(digests)} rows repeat the observation and action of an "
            f"earlier one, first row {pairs[0][1]} that of row {pairs[0][0]}",
        )
    begin = starts(arrays)
    episodes = [_digest(digests[a:b]) for a, b in pairwise(begin)]
    if pairs := _repeated(episodes):
        first, again = (begin[e] for e in pairs[0])
        yield Fault(
            "file",
            f"{len(pairs)} of {len(episodes)} episodes repeat an earlier one: the one from "
            f"row {again} on is the one from row {first} on. Remove the copies: they count twice.",
        )


def _digest(parts) -> bytes:
    whole = blake2b(digest_size=16)
    for part in parts:
        whole.update(part)
    return whole.digest()


def _repeated(digests: list[bytes]) -> list[tuple[int, int]]:
    """(first place, later place) of all that came before."""
    first: dict[bytes, int] = {}
    seen = [(first.setdefault(digest, i), i) for i, digest in enumerate(digests)]
    return [(a, b) for a, b in seen if a != b]


def _listed(words: Iterable[str]) -> str:
    words = list(words)
    return ", ".join(words[:NAMED]) + ", ..." * (len(words) > NAMED)


_ODD = (_storage, _ignored, _images, _channels, _constant, _saturated, _unrewarded, _goes_on)
_ODD += (_unvaried, _short, _duplicates)
