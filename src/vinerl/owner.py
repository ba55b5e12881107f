"""One process a folder: a lock that says who has it and shows that its owner is alive."""

import json
import os
import platform
import sys
import tempfile
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vinerl.errors import InputError

BEAT = 5.0  # seconds between two signs of life
STALE = 60.0  # seconds without one after which a lock is nobody's


class Owner:
    """Holds `folder` from __enter__ to __exit__; refuses where another process does."""

    def __init__(self, folder: Path):
        self.path = folder / "lock.json"
        self.stop = threading.Event()
        self.mine = ""

    def __enter__(self) -> "Owner":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        holder = {"host": platform.node(), "process": os.getpid(), "since": now}
        self.mine = json.dumps(holder | {"space": _space()})
        if not self._create():
            self._take_over()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join()
        if self._read() == self.mine:
            self.path.unlink(missing_ok=True)

    def check(self) -> None:
        """Refuse to go on in a folder that another process took while this one was suspended."""
        found = self._read()
        if found and found != self.mine:
            raise InputError(
                f"{self.path.parent} was taken over by {_named(_parse(found))} while this process "
                "was suspended: it is left to that one"
            )

    def _create(self) -> bool:
        try:
            with self.path.open("x") as file:
                file.write(self.mine)
        except FileExistsError:
            return False
        return True

    def _take_over(self) -> None:
        """Replace a lock whose owner has gone; two who try at once do not both succeed."""
        found = self._read()
        holder, age = _parse(found), self._now() - self._touched()
        whose = _named(holder)
        if not _gone(holder, age):
            raise InputError(
                f"{self.path.parent} is in use by {whose} since {holder.get('since', 'just now')} "
                f"(last sign of life {age:.0f} s ago; {STALE:.0f} s without one free the folder). "
                "Wait for it, stop it, or use another folder."
            )
        aside = self.path.with_name(f"lock.{os.getpid()}.stale")
        taken = InputError(f"{self.path.parent} was taken by another process just now")
        with suppress(FileNotFoundError):
            os.replace(self.path, aside)
            if (moved := aside.read_text()) != found:  # another was quicker: give it back
                with suppress(FileExistsError), self.path.open("x") as file:
                    file.write(moved)
                aside.unlink()
                raise taken
            aside.unlink()
        if not self._create():
            raise taken
        print(f"took over {self.path.parent} from {whose}, which has gone", flush=True)

    def _beat(self) -> None:
        while not self.stop.wait(BEAT):
            with suppress(OSError):
                if self._read() == self.mine:
                    os.utime(self.path)

    def _read(self) -> str:
        try:
            return self.path.read_text()
        except OSError:
            return ""

    def _now(self) -> float:
        """By the clock that dates the lock: a shared disk's need not be ours."""
        with tempfile.TemporaryFile(dir=self.path.parent) as new:
            return os.fstat(new.fileno()).st_mtime

    def _touched(self) -> float:
        try:
            return self.path.stat().st_mtime
        except OSError:
            return 0.0


def _space() -> int | None:
    """What process numbers are counted in: containers of one host's name have their own."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None


def _counted_here(holder: dict[str, Any]) -> bool:
    """Whether a process number means here what it meant to its holder."""
    return holder.get("host") != platform.node() or holder.get("space", _space()) == _space()


def _parse(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _named(holder: dict[str, Any]) -> str:
    if not holder:  # killed, or not yet there, when it wrote the lock
        return "a process that left no name"
    there = "" if _counted_here(holder) else ", in another container"
    return f"process {holder.get('process')} on {holder.get('host')}{there}"


def _gone(holder: dict[str, Any], age: float) -> bool:
    """A lock without signs of life, or of a process that is no more on this host."""
    if age > STALE:
        return True
    process = holder.get("process")
    if sys.platform == "win32" or holder.get("host") != platform.node():
        return False
    if not _counted_here(holder):
        return False
    if not isinstance(process, int) or process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
