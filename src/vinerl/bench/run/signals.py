"""Being asked to end: by Ctrl-C, or by whoever runs the machine."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


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
        with suppress(OSError):  # not print: whatever it was called in may be printing
            os.write(2, b"\nfinishing the block and saving; once more to end at once\n")

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
