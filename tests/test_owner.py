"""One process a run."""

import json
import os
import platform
import subprocess
import sys
import time

import pytest

from vinerl import owner
from vinerl.errors import InputError
from vinerl.owner import Owner


def lock(folder, process, host=None, age=0.0, **more):
    path = folder / "lock.json"
    holder = {"host": host or platform.node(), "process": process, "since": "noon"}
    path.write_text(json.dumps(holder | more))
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))


def test_the_lock_is_there_while_it_is_held_and_gone_after(tmp_path):
    with Owner(tmp_path):
        held = json.loads((tmp_path / "lock.json").read_text())
        assert (held["host"], held["process"]) == (platform.node(), os.getpid())
    assert not (tmp_path / "lock.json").exists()


def test_a_second_owner_is_refused_by_name(tmp_path):
    with Owner(tmp_path), pytest.raises(InputError, match=f"in use by process {os.getpid()} on"):
        Owner(tmp_path).__enter__()


def test_a_live_process_elsewhere_is_respected_until_it_is_silent(tmp_path, capsys):
    lock(tmp_path, 1, host="another-host", age=owner.STALE - 20)
    with pytest.raises(InputError, match="process 1 on another-host"):
        Owner(tmp_path).__enter__()
    lock(tmp_path, 1, host="another-host", age=owner.STALE + 1)
    with Owner(tmp_path):
        assert "took over" in capsys.readouterr().out


def test_a_clock_that_is_wrong_frees_no_folder(tmp_path, monkeypatch):
    """On a shared disk it is the disk's clock that dates a lock, and that is asked."""
    lock(tmp_path, 1, host="another-host")
    later = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(InputError, match=r"process 1 on another-host .* life 0 s ago"):
        Owner(tmp_path).__enter__()


def test_who_was_suspended_for_long_learns_that_the_folder_is_anothers(tmp_path):
    with Owner(tmp_path) as held:
        held.check()
        lock(tmp_path, 7, host="another-host")
        with pytest.raises(InputError, match=r"taken over by process 7 on another-host while"):
            held.check()
    assert json.loads((tmp_path / "lock.json").read_text())["process"] == 7, "and leaves it be"


def test_the_lock_of_a_dead_process_is_taken_over_and_said(tmp_path, capsys):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    lock(tmp_path, dead.pid)
    with Owner(tmp_path):
        assert f"process {dead.pid}" in capsys.readouterr().out
        assert json.loads((tmp_path / "lock.json").read_text())["process"] == os.getpid()


def test_a_number_counted_in_another_container_is_no_proof_of_death(tmp_path):
    """Of this host's name, but where that number is another process or none."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    lock(tmp_path, child.pid, space=-1)
    with pytest.raises(InputError, match=f"process {child.pid} on .*, in another container"):
        Owner(tmp_path).__enter__()
    lock(tmp_path, child.pid, space=-1, age=owner.STALE + 1)
    with Owner(tmp_path):
        held = json.loads((tmp_path / "lock.json").read_text())
        assert held["space"] == owner._space()
    lock(tmp_path, child.pid, space=owner._space())
    with Owner(tmp_path):
        pass


def test_a_torn_lock_is_nobodys_once_it_is_old(tmp_path):
    (tmp_path / "lock.json").write_text('{"host"')
    with pytest.raises(InputError, match=r"in use by a process that left no name.*60 s without"):
        Owner(tmp_path).__enter__()
    os.utime(tmp_path / "lock.json", (0, 0))
    with Owner(tmp_path):
        pass


def test_the_owner_shows_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(owner, "BEAT", 0.02)
    with Owner(tmp_path) as mine:
        os.utime(tmp_path / "lock.json", (0, 0))
        for _ in range(500):
            if (tmp_path / "lock.json").stat().st_mtime > 0:
                break
            mine.stop.wait(0.01)
        assert (tmp_path / "lock.json").stat().st_mtime > 0


def test_of_two_who_take_over_at_once_only_one_succeeds(tmp_path):
    """The second has read the stale lock before the first replaced it."""
    lock(tmp_path, 1, host="another-host", age=owner.STALE + 1)
    late = Owner(tmp_path)
    stale = late._read()
    with Owner(tmp_path):
        mine = (tmp_path / "lock.json").read_text()
        late.mine, answers = "late", iter([stale, mine])
        late._read, late._touched = lambda: next(answers), lambda: 0.0
        with pytest.raises(InputError, match="taken by another process just now"):
            late._take_over()
        assert (tmp_path / "lock.json").read_text() == mine
