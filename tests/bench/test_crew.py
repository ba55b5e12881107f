"""A run that fails: when it is begun again, and when it is not."""

import json
import time
from itertools import pairwise

import pytest

from vinerl.bench.plans import crew, entries, leash, sharing
from vinerl.bench.plans.entries import Entry

POINT = "pointmaze-medium-navigate-singletask-task1-v0"
RUN = Entry("group", POINT, "vine", (0,), 1000)


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """Processes that get to these steps, one after the other, and fail; None: before any."""
    begun = []

    def of(*steps, code=1, over=lambda: False):
        def hold(words, log, over):
            begun.append(time.monotonic())
            if len(begun) > len(steps):
                (log.parent / "ended").touch()
                return
            log.parent.mkdir(exist_ok=True)
            if step := steps[len(begun) - 1]:
                (log.parent / "metrics.jsonl").write_text(json.dumps({"step": step}) + "\n")
            raise leash.Failed(f"failure {len(begun)}", code)

        monkeypatch.setattr(leash, "hold", hold)
        monkeypatch.setattr(entries, "ended", lambda out: (out / "ended").exists())
        return crew.finish(RUN, tmp_path / "run", tmp_path, over), len(begun)

    monkeypatch.delenv(sharing.FOLDERS[0], raising=False)
    return of, begun


def test_it_goes_on_as_long_as_it_gets_further(failing):
    of, _ = failing
    assert of(100, 300, 700) == ("", 4)


def test_it_is_given_up_where_it_fails_at_the_same_step_again(failing, capsys):
    of, _ = failing
    assert of(100, 300, 300, 300) == (f"{RUN.name}: failure 3", 3)
    assert capsys.readouterr().out.count("it is begun again") == 2


def test_further_is_further_than_ever(failing, monkeypatch):
    """A resumed run cuts its log back to the last save: 200 is no progress after 300."""
    of, _ = failing
    monkeypatch.setattr(crew, "RECOVERY", 0.0)
    monkeypatch.setenv(sharing.FOLDERS[0], "somewhere")
    assert of(300, 100, 200) == (f"{RUN.name}: failure 3", 3)


def test_what_fails_as_it_begins_is_not_begun_again(failing):
    of, _ = failing
    assert of(None, None) == (f"{RUN.name}: failure 1", 1)


@pytest.mark.parametrize("code", [2, 130, 143, -15])
def test_what_the_user_asked_for_or_must_put_right_is_not_begun_again(failing, code):
    """Ctrl-C, a signal, a wrong option, a frozen member under --stop-on-bad."""
    of, _ = failing
    assert of(100, 200, code=code) == (f"{RUN.name}: failure 1", 1)


@pytest.mark.parametrize("code", [1, -6, -9, -11])
def test_a_crash_is(failing, code):
    of, _ = failing
    assert of(100, code=code) == ("", 2)


def test_through_mps_it_waits_for_the_others_to_end_and_may_fail_once_more(failing, monkeypatch):
    """A fault of any took all of them; a new one cannot begin while the last are there."""
    monkeypatch.setenv(sharing.FOLDERS[0], "somewhere")
    monkeypatch.setattr(crew, "RECOVERY", 0.3)
    of, begun = failing
    assert of(500, None, 800, None, None) == (f"{RUN.name}: failure 4", 4)
    assert all(b - a >= 0.3 for a, b in pairwise(begun))


def test_when_time_is_up_it_is_not_waited_for_and_the_failure_told(failing, monkeypatch):
    monkeypatch.setenv(sharing.FOLDERS[0], "somewhere")
    of, _ = failing
    until = time.monotonic() + 0.5
    assert of(500, over=lambda: time.monotonic() > until) == (f"{RUN.name}: failure 1", 1)
    assert time.monotonic() - until < 5


def test_what_cannot_be_read_is_said_in_words(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    assert entries.reached(RUN, tmp_path) == 0
    said = crew.finish(RUN, tmp_path, tmp_path)
    assert said.startswith(f"{RUN.name}: ")
    assert "manifest.json" in said
