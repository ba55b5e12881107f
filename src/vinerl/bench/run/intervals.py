"""How often things happen in a run. A block's length divides all of it."""

from fractions import Fraction
from typing import NamedTuple

from vinerl.errors import InputError
from vinerl.train import loop

SAVE = 10_000  # steps between checkpoints, at most, where evaluations are further apart
ROUND = 100  # environment steps between updates, at most


class Every(NamedTuple):
    """Steps between two of a kind."""

    log: int
    save: int
    share: int  # what these, the evaluations and the end have in common

    def round(self, online_steps: int, utd: Fraction) -> int:
        """Environment steps between updates: they divide all intervals and make whole updates."""
        limit = loop.interval(self.share, online_steps)
        whole = [n for n in range(1, ROUND + 1) if limit % n == 0 and n % utd.denominator == 0]
        if not whole:
            raise InputError(
                f"--utd {utd}: steps and intervals share {limit}, and no part of it up to {ROUND} "
                f"is a multiple of {utd.denominator}; change --utd, --online-steps or --log-every"
            )
        return whole[-1]


def choose(steps: int, eval_every: int, log_every: int | None, block: int | None) -> Every:
    """What was not asked for follows from the evaluations, or from a tenth of the run."""
    every = eval_every or max(1, steps // 10)
    log = log_every or (every // 10 if every % 10 == 0 else every)
    save = _save(eval_every or log * max(1, every // log), log)
    share = loop.interval(steps, log, eval_every, save)
    if block and share % block:
        raise InputError(f"--block {block} must divide {share}, as all intervals do")
    return Every(log, save, share)


def _save(every: int, log: int) -> int:
    """At every evaluation, or so, and where these are far apart, between them."""
    part = loop.interval(every, log)
    often = [n for n in range(part, SAVE + 1, part) if every % n == 0]
    return every if every <= SAVE else often[-1] if often else part
