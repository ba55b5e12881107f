"""How far long work is: a live line on a terminal, plain lines elsewhere."""

import sys
import time


class Progress:
    """Steps of some work, their speed, the time left, and what is worth knowing meanwhile.

    The speed is that since the first update: what went before it, such as compiling, is done once.
    """

    def __init__(self, what: str, total: int, done: int = 0, every: float = 10.0):
        self.what, self.total, self.first = what, total, done
        self.begin: float | None = None
        self.shown = time.monotonic()
        self.every, self.note, self.live = every, "", _live()
        if self.live:
            self.live.start()
            self.task = self.live.add_task(what, total=total, completed=done, note="")

    def update(self, done: int, note: str | None = None, total: int | None = None) -> None:
        self.note = self.note if note is None else note
        self.total = self.total if total is None else total
        now = time.monotonic()
        if self.begin is None:
            self.begin, self.first = now, done
        rate = (done - self.first) / max(now - self.begin, 1e-9)
        speed = [_rate(rate)] if rate else []
        if self.live:
            text = "  ".join([*speed, self.note])
            self.live.update(self.task, completed=done, total=self.total, note=text)
        elif done >= self.total or now - self.shown >= self.every:
            self.shown = now
            left = [f"{duration((self.total - done) / rate)} left"] if rate else []
            line = "  ".join([f"{self.what} {done}/{self.total}", *speed, *left, self.note])
            print(line.rstrip(), flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_) -> None:
        if self.live:
            self.live.stop()


def duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _rate(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def _live():
    """rich's display, where there is a terminal and rich to draw on it."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars
    except ImportError:
        return None
    done = TextColumn("{task.completed:.0f}/{task.total:.0f}")
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())
    return Bars(*columns, TextColumn("{task.fields[note]}"))
