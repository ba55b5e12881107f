"""Who started which process, and where it listens, as Linux tells it."""

from contextlib import suppress
from pathlib import Path

LISTENING = "0A"


def parents() -> dict[int, int]:
    """Of every process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return found


def line(process: int, parent: dict[int, int]) -> list[int]:
    """A process, its parent, and so on."""
    return [process, *line(parent[process], parent)] if process in parent else []


def addresses(process: int) -> set[str]:
    """In hex, of all TCP sockets on which a process or its descendants listen."""
    parent, sockets = parents(), set()
    for below in (p for p in parent if process in line(p, parent)):
        with suppress(OSError):
            for number in Path(f"/proc/{below}/fd").iterdir():
                with suppress(OSError):
                    sockets.add(str(number.readlink()))
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows += [row.split() for row in Path(table).read_text().splitlines()[1:]]
    ours = (row for row in rows if row[3] == LISTENING and f"socket:[{row[9]}]" in sockets)
    return {row[1].partition(":")[0] for row in ours}
