"""A run that fails: when it is begun again, and when it is not."""

import json
import time
from itertools import pairwise

import pytest

from vinerl.bench.plans import crew, entries, leash, sharing
from vinerl.bench.plans.entries import Entry
from vinerl.errors import InputError

POINT = "pointmaze-medium-navigate-singletask-task1-v0"
RUN = Entry("group", POINT, "vine", (0,), 1000)


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Processes that get to these steps, one after the other, and fail; None: before any."""
    begun = []

    def of(*steps, over=lambda: False):
        def hold(words, log, over):
            begun.append(time.monotonic())
            if len(begun) > len(steps):
                (log.parent / "ended").touch()
                return
            log.parent.mkdir(exist_ok=True)
            if step := steps[len(begun) - 1]:
                (log.parent / "metrics.jsonl").write_text(json.dumps({"step": step}) + "\n")
            raise InputError(f"exit code {len(begun)}")

        monkeypatch.setattr(leash, "hold", hold)
        monkeypatch.setattr(entries, "ended", lambda out: (out / "ended").exists())
        return crew.finish(RUN, tmp_path / "run", tmp_path, over), len(begun)

    return of, begun


def test_it_goes_on_as_long_as_it_gets_further(failing):
    of, _ = failing
    assert of(100, 300, 700) == ("", 4)


def test_it_is_given_up_where_it_fails_at_the_same_step_again(failing, capsys):
    of, _ = failing
    assert of(100, 300, 300, 300) == (f"{RUN.name}: exit code 3", 3)
    assert capsys.readouterr().out.count("it is begun again") == 2


def test_what_fails_as_it_begins_is_not_begun_again(failing):
    of, _ = failing
    assert of(None, None) == (f"{RUN.name}: exit code 1", 1)


def test_through_mps_it_waits_for_the_others_to_end_and_may_fail_once_more(failing, monkeypatch):
    """A fault of any took all of them; a new one cannot begin while the last are there."""
    monkeypatch.setenv(sharing.FOLDERS[0], "somewhere")
    monkeypatch.setattr(crew, "RECOVERY", 0.3)
    of, begun = failing
    assert of(500, None, 800, None, None) == (f"{RUN.name}: exit code 4", 4)
    assert all(b - a >= 0.3 for a, b in pairwise(begun))


def test_when_time_is_up_it_is_not_waited_for(failing, monkeypatch):
    """It was asked to stop before it could go on: no failure."""
    monkeypatch.setenv(sharing.FOLDERS[0], "somewhere")
    of, _ = failing
    until = time.monotonic() + 0.5
    assert of(500, over=lambda: time.monotonic() > until) == ("", 1)
    assert time.monotonic() - until < 5
