"""Runs side by side on this machine, each in a process and with a log of its own."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from vinerl.bench.plans import entries, leash
from vinerl.bench.plans.entries import Entry
from vinerl.bench.plans.sharing import by_mps
from vinerl.errors import InputError
from vinerl.owner import Owner

RECOVERY = 30.0  # seconds after a fault, for the other processes of MPS to end

Work = TypeVar("Work")
Over = Callable[[], bool]
Submit = Callable[..., Future[str]]  # of a function and its arguments; what went wrong, in words


def follow(
    choose: Callable[[list[Work]], Work | None],
    start: Callable[[Work], Future[str]],
    ended: Callable[[Work, str], None],
    look: Callable[[list[Work]], None],
) -> None:
    """Until nothing runs and nothing is chosen.

    choose    what to start beside what runs, if anything
    ended     is told what has ended, and what went wrong
    look      is called every second with what runs
    """
    running: dict[Future[str], Work] = {}
    try:
        while True:
            while (one := choose(list(running.values()))) is not None:
                running[start(one)] = one
            if not running:
                return
            done, _ = futures.wait(running, timeout=1.0, return_when=futures.FIRST_COMPLETED)
            for future in done:
                ended(running.pop(future), future.result())
            look(list(running.values()))
    except KeyboardInterrupt:
        print("runs are being saved; the same command goes on from there", flush=True)
        raise


@contextmanager
def here(count: int, over: Over = lambda: False) -> Iterator[Submit]:
    """So many at once on this machine, until `over`; leaving early asks them to save and stop."""
    left = threading.Event()
    stop = lambda: left.is_set() or over()
    with ThreadPoolExecutor(count) as pool:
        try:
            yield lambda work, *given: pool.submit(work, *given, stop)
        finally:
            left.set()
            pool.shutdown(cancel_futures=True)


def finish(entry: Entry, folder: Path, data: Path, over: Over = lambda: False) -> str:
    """Bring one run to its end, or until `over`; what went wrong, in words.

    A run that crashes goes on from its last save for as long as it gets further than before.
    Through MPS a fault of one process takes all of them, and until they have gone no other can
    begin: there one crash that got no further is forgiven, too.
    """
    best, spare = 0, 1 if by_mps() else 0
    while True:
        try:
            best = max(best, entries.reached(entry, folder))
            wait_until_free(folder, over)
            if not over():
                entries.run(entry, folder, data, over)
            return ""
        except (InputError, OSError) as error:
            why = f"{entry.name}: {error}"
            further = entries.reached(entry, folder) > best
            again = isinstance(error, leash.Failed) and error.crashed and (further or spare)
        if not again:
            return why
        spare -= 0 if further else 1
        print(f"{why}; it is begun again", flush=True)
        _pause(RECOVERY if by_mps() else 0.0, over)
        if over():
            return why


def _pause(seconds: float, over: Over) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not over():
        time.sleep(0.1)


def wait_until_free(folder: Path, over: Over) -> None:
    """Until a process that lost its starter has saved, or the lock of a lost machine is stale."""
    while not over():
        try:
            with Owner(folder):
                return
        except InputError:
            time.sleep(1.0)
