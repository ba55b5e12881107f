"""`python -m benchmarks data`."""

import json

import pytest

from benchmarks import data
from vinerl.errors import InputError


def test_rows_are_made_and_replayed(capsys):
    data.main(["--names", "pointmaze-medium-navigate-v0", "--rows", "101", "--episodes", "1"])
    said = capsys.readouterr()
    first, row = map(json.loads, said.out.splitlines())
    assert first["subject"] == "data"
    assert row["case"] == "pointmaze-medium-navigate-v0"
    assert min(row["made"], row["bare"]) > 0
    assert len(row["ratios"]) == row["turns"] == 7
    assert row["apart"] < 1e-4
    assert said.err.split()[:3] == ["case", "made", "bare"]


def test_an_episode_is_longer_than_what_is_replayed_at_a_time():
    with pytest.raises(InputError, match="--rows 50"):
        data.main(["--names", "antmaze-large-navigate-v0", "--rows", "50"])
    with pytest.raises(InputError, match="nowhere"):
        data.main(["--names", "nowhere-v0"])
