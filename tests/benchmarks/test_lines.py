"""Lines and tables of benchmarks."""

import json

import pytest

from benchmarks import lines


def begun(*args):
    return lines.Lines("subject", lines.parser("subject", "what it is").parse_args(args))


def test_lines_begin_with_provenance_and_are_appended_to_the_file(tmp_path, capsys):
    out = tmp_path / "lines.jsonl"
    out.write_text("{}\n")
    begun("--out", str(out)).case({"case": "a"}, lambda: {"ms": 1.5})
    said = capsys.readouterr().out.splitlines()
    assert out.read_text().splitlines() == ["{}", *said]
    first, second = map(json.loads, said)
    assert first["subject"] == "subject"
    assert {"hardware", "versions", "commit", "source", "arguments"} <= set(first)
    assert second == {"case": "a", "ms": 1.5}


def test_a_case_that_fails_is_a_line_and_the_next_one_runs(capsys):
    said = begun()

    def fails():
        raise MemoryError("out of it\nand more")

    assert said.case({"case": "a"}, fails) == {"case": "a", "error": "MemoryError: out of it"}
    assert said.case({"case": "b"}, lambda: {"ms": 1.0}) == {"case": "b", "ms": 1.0}
    assert [json.loads(x)["case"] for x in capsys.readouterr().out.splitlines()[1:]] == ["a", "b"]


def test_who_stops_a_benchmark_is_obeyed():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun().case({}, interrupted)


def test_no_case_is_begun_once_the_budget_is_spent():
    said, begun_cases = begun("--budget", "100"), []
    work = lambda: begun_cases.append(1) or {}
    said.case({}, work)
    said.began -= 101
    assert "skipped" in said.case({}, work)
    assert len(begun_cases) == 1


def test_a_table_has_four_digits_and_says_why_a_row_is_empty():
    rows = [{"case": "a", "ms": 1.23456}, {"case": "bcd", "error": "no memory"}]
    assert lines.table(rows[:1], ("case", "ms")) == "case  ms\na     1.235"
    assert lines.table(rows, ("case", "ms")) == "case  ms\na     1.235\nbcd          no memory"
    assert lines.table(rows, ("case", "ms"), markdown=True).splitlines() == [
        "| case | ms |  |",
        "| --- | --- | --- |",
        "| a | 1.235 |  |",
        "| bcd |  | no memory |",
    ]
