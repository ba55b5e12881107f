"""Being asked to end: by Ctrl-C, or by whoever runs the machine."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

WORDS = b"\nfinishing the block and saving; once more to end at once\n"


@contextmanager
def noted() -> Iterator[list[int]]:
    """The first SIGTERM or Ctrl-C is noted, to be answered after the block; a second ends it."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def note(number, _):
        if asked:
            raise SystemExit(128 + number)
        asked.append(number)
        if sys.__stderr__:  # not print: whatever it was called in may be printing
            with suppress(OSError):
                os.write(sys.__stderr__.fileno(), WORDS)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
