"""Processes of our own that answer requests: python -m MODULE ARGUMENT ..."""

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from subprocess import PIPE

import numpy as np

from vinerl.envs import wire
from vinerl.errors import WorkerError

SOURCE = Path(__file__).resolve().parents[2]  # so that workers find the package uninstalled, too

Answer = Callable[[dict, list[np.ndarray]], tuple[dict, Sequence[np.ndarray]]]


class Workers:
    """`count` processes that run `module`; who waits `patience` seconds for one gives it up."""

    def __init__(self, module: str, *arguments: str, count: int, patience: float = 300.0):
        paths = [str(SOURCE), *filter(None, sys.path)]
        # One BLAS thread where a simulator is stepped; more only get in each other's way.
        env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        env |= {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
        command = [sys.executable, "-m", module, *arguments]
        start = partial(subprocess.Popen, command, env=env, stdin=PIPE, stdout=PIPE)
        self.what = " ".join((module, *arguments))
        with _undisturbed():
            self.processes: list[subprocess.Popen[bytes]] = [start() for _ in range(count)]
        self.patience, self.waiting, self.closed = patience, None, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __len__(self) -> int:
        return len(self.processes)

    def send(self, w: int, header: dict, arrays: Sequence[np.ndarray] = ()) -> None:
        try:
            wire.send(self.processes[w].stdin, header, arrays)  # pyright: ignore[reportArgumentType]
        except OSError as error:
            raise self._gone(w) from error

    def receive(self, w: int) -> tuple[dict, list[np.ndarray]]:
        self.waiting = w, time.monotonic()
        try:
            header, arrays = wire.receive(self.processes[w].stdout)  # pyright: ignore[reportArgumentType]
        except EOFError as error:
            raise self._gone(w) from error
        finally:
            self.waiting = None
        if "error" in header:
            raise WorkerError(f"worker {w} ({self.what}) failed:\n{header['error']}")
        return header, arrays

    def kill(self) -> None:
        """End at once; whoever waits for an answer learns that there will be none."""
        for process in self.processes:
            process.kill()

    def close(self) -> None:
        self.closed.set()
        for process in self.processes:
            with suppress(OSError):  # of a worker that has gone before it read everything
                process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]
        for process in self.processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]

    def _watch(self) -> None:
        """Kill a worker that hangs, so that whoever waits for it learns of it."""
        while not self.closed.wait(min(1.0, self.patience / 4)):
            waiting = self.waiting
            if waiting and time.monotonic() - waiting[1] > self.patience:
                self.processes[waiting[0]].kill()

    def _gone(self, w: int) -> WorkerError:
        code = self.processes[w].wait()
        return WorkerError(
            f"worker {w} ({self.what}) has gone, exit code {code}; one that does not answer for "
            f"{self.patience:g} s is killed"
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Who is started in here does not hear Ctrl-C, not even before it serves."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(answer: Answer) -> None:
    """The other side: answer requests until the parent has gone."""
    # Whatever a simulator prints must not end up between two messages.
    replies = os.fdopen(os.dup(1), "wb")
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent's to answer; we end with it
        signal.signal(number, signal.SIG_IGN)
    os.dup2(2, 1)
    while True:
        try:
            request = wire.receive(sys.stdin.buffer)
        except (EOFError, KeyboardInterrupt):
            return
        try:
            wire.send(replies, *answer(*request))
        except (BrokenPipeError, KeyboardInterrupt):
            return
        except Exception:
            wire.send(replies, {"error": traceback.format_exc()})
            return
