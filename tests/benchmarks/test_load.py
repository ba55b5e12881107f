"""`python -m benchmarks load`."""

import json

import numpy as np
import pytest

from benchmarks import load

ROWS = 2500  # in three episodes, so 2497 transitions


def test_every_stage_is_timed_and_its_bytes_are_known(tmp_path, capsys):
    load.main(["--rows", str(ROWS), "--repeat", "1", "--dir", str(tmp_path)])
    said = capsys.readouterr()
    rows = {row["case"]: row for row in map(json.loads, said.out.splitlines()[1:])}
    assert list(rows) == ["np.load", "read", "check", "label", "fold up", "put", "all"]
    for row in rows.values():
        assert row["gb_s"] == pytest.approx(row["gb"] / row["seconds"])
    assert rows["read"]["of_numpy"] == rows["read"]["seconds"] / rows["np.load"]["seconds"]
    assert rows["np.load"]["gb"] == pytest.approx(4 * ROWS * (29 + 8 + 15 + 14 + 1) / 1e9, rel=0.01)
    # Observations; a row number, eight actions, reward, mask and end; the count.
    assert rows["put"]["gb"] == 4 * (ROWS * 29 + 2497 * (1 + 8 + 3) + 1) / 1e9
    assert not list(tmp_path.iterdir())


def test_numpy_reads_the_same_numbers(tmp_path):
    made, path = load.made(50), tmp_path / "data.npz"
    np.savez(path, **made)  # pyright: ignore[reportArgumentType]
    read = load.plain(path)
    assert set(read) == set(made)
    assert all(np.array_equal(read[name], made[name]) for name in made)


def test_the_median_and_the_last_result(monkeypatch):
    times = iter([0.0, 5.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(load.time, "perf_counter", lambda: next(times))
    results = iter("abc")
    assert load.repeated(lambda: next(results), 3) == (2.0, "c")
