"""The command line of the benchmarks."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import __main__ as command

ROOT = Path(command.__file__).parent


@pytest.mark.parametrize("subject", command.SUBJECTS)
def test_every_subject_says_what_it_is(subject, capsys):
    with pytest.raises(SystemExit) as left:
        import_module(f"benchmarks.{subject}").main(["--help"])
    assert left.value.code == 0
    assert f"python -m benchmarks {subject}" in capsys.readouterr().out


def test_what_the_user_can_put_right_is_a_line_and_exits_with_2(capsys):
    for args in (["updat"], ["update", "--small", "--set", "alpha"]):
        with pytest.raises(SystemExit) as left:
            command.main(args)
        assert left.value.code == 2
        assert capsys.readouterr().err.startswith("benchmarks: ")


def test_without_a_subject_all_are_named(capsys):
    command.main([])
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in command.SUBJECTS)


def test_trust_is_a_program_of_its_own():
    done = subprocess.run([sys.executable, ROOT / "trust.py", "--help"], capture_output=True)
    assert done.returncode == 0, done.stderr
