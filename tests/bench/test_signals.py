"""Being asked to end, whatever the program is doing."""

import os
import signal
import sys

import pytest

from vinerl.bench.run import signals


def send(number):
    os.kill(os.getpid(), number)
    for _ in range(1000):  # the handler runs between two of these
        pass


class Terminal:
    """Whoever prints to it is asked to end in the middle of it, and must not print again."""

    def __init__(self, number):
        self.number, self.busy = number, False

    def write(self, words):
        if self.busy:
            raise RuntimeError("reentrant call")
        self.busy = True
        if words == "x":
            send(self.number)
        self.busy = False
        return len(words)

    def flush(self):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_print_that_is_under_way_is_not_entered_again(number, monkeypatch, capfd):
    with signals.noted() as asked:
        monkeypatch.setattr(sys, "stdout", Terminal(number))
        print("x", end="")
        monkeypatch.undo()
    assert asked == [number]
    assert "finishing the block and saving" in capfd.readouterr().err


def twice():
    with signals.noted():
        send(signal.SIGTERM)
        send(signal.SIGINT)


def test_the_second_time_it_ends_at_once():
    with pytest.raises(SystemExit) as ended:
        twice()
    assert ended.value.code == 128 + signal.SIGINT
