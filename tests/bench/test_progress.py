"""How far long work is, in lines."""

import pytest

from vinerl.bench.run import progress


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_the_speed_leaves_out_what_was_compiled_before_the_first_update(clock, capsys):
    """A minute until ten steps are done, then ten a second."""
    bar = progress.Progress("training", 1010, every=10.0)
    for clock[0], done in ((60.0, 10), (65.0, 60), (70.0, 110), (160.0, 1010)):
        bar.update(done, "well")
    assert capsys.readouterr().out.splitlines() == [
        "training 10/1010  well",
        "training 110/1010  10/s  1:30 left  well",
        "training 1010/1010  10/s  0:00 left  well",
    ]


def test_work_done_in_one_update_has_no_speed(clock, capsys):
    bar = progress.Progress("training", 4)
    clock[0] = 1.0
    bar.update(4)
    assert capsys.readouterr().out == "training 4/4\n"
