"""Seconds of something that is done again and again."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

PARTS = 3


def spend(many: Callable[[int], Any], times: int) -> float:
    """Of all of the times together. What is returned is waited for, so `many` may run ahead."""
    begin = time.perf_counter()
    jax.block_until_ready(many(times))
    return time.perf_counter() - begin


def repeated(many: Callable[[int], Any], seconds: float) -> tuple[float, float]:
    """Of one of the times that `many(times)` does it: the median of three parts, and their spread.

    The parts take about `seconds` together, after a warm-up.
    """
    spend(many, 2)
    times = 1
    while (spent := spend(many, times)) < seconds / 8:
        times *= 2
    times = max(1, int(times * seconds / PARTS / spent))
    parts = [spend(many, times) / times for _ in range(PARTS)]
    middle = float(np.median(parts))
    return middle, (max(parts) - min(parts)) / middle


def calls(work: Callable[[], Any], seconds: float) -> float:
    """Seconds of one call; the first may compile."""

    def many(times: int) -> Any:
        for _ in range(times - 1):
            work()
        return work()

    return repeated(many, seconds)[0]
