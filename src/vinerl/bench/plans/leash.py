"""python -m vinerl.bench.plans.leash COMMAND ...: vinerl, asked to stop when its input ends.

Whoever starts it holds the other end of a pipe. However that process goes, killed or done, the
pipe closes with it, and what it started does not run on unseen.
"""

import os
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vinerl.errors import InputError


class Failed(InputError):
    """A process that ended with this exit code."""

    def __init__(self, what: str, code: int):
        super().__init__(what)
        self.code = code

    @property
    def crashed(self) -> bool:
        """Neither was it asked to end, nor was there something for the user to put right."""
        asked = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)
        return self.code not in (2, *asked)


def hold(words: Sequence[str], log: Path, over: Callable[[], bool], low: bool = False) -> None:
    """vinerl WORDS until it has ended, or `over`: then it is let go and may save what it has.

    In a process of its own, which gives its memory back; at `low` priority it leaves the cores to
    others. `Failed` tells of one that failed.
    """
    before = ["nice", "-n", "10"] if low and shutil.which("nice") else []
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as said:
        print("vinerl", *words, file=said, flush=True)
        process = subprocess.Popen(
            [*before, sys.executable, "-m", "vinerl.bench.plans.leash", *words],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours to pass on, once
        )
        try:
            while process.poll() is None and not over():
                time.sleep(0.1)
        finally:
            stopped = process.poll() is None
            process.communicate()  # lets go of the leash, and waits
    if process.returncode and not stopped:
        code = process.returncode
        raise Failed(f"vinerl {words[0]} ended with exit code {code}; see {log}", code)


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_watch, daemon=True).start()
    runpy.run_module("vinerl", run_name="__main__")
