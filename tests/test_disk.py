"""Files that are whole or not there, and that notice when they have been changed."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinerl import disk
from vinerl.errors import InputError

FACTS = {"schema": 1, "step": 40, "rate": 0.005, "members": [{"seed": 0, "status": "learning"}]}


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    disk.write(path, b"first")

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(disk.os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        disk.write(path, b"second")
    assert path.read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["file"], "no half-written file is left"
    monkeypatch.undo()
    disk.write(path, b"third")
    assert path.read_bytes() == b"third"
    assert disk.sha256(path).startswith("b1e99324505bd32d")  # printf third | sha256sum


def test_sealed_facts_come_back(tmp_path):
    disk.write_sealed(tmp_path / "facts.json", FACTS)
    assert disk.read_sealed(tmp_path / "facts.json", schema=1) == FACTS


@given(st.data())
def test_any_flipped_bit_is_noticed_or_changes_nothing(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "facts.json"
    disk.write_sealed(path, FACTS)
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    with suppress(InputError):
        assert disk.read_sealed(path, schema=1) == FACTS


@given(st.floats(0, 1, exclude_max=True))
def test_a_file_that_was_cut_short_is_refused(tmp_path_factory, share):
    path = tmp_path_factory.getbasetemp() / "facts.json"
    disk.write_sealed(path, FACTS)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"facts\.json"):
        disk.read_sealed(path, schema=1)


def test_an_edited_value_and_another_schema_are_refused_by_name(tmp_path):
    path = tmp_path / "facts.json"
    disk.write_sealed(path, FACTS)
    with pytest.raises(InputError, match="schema 1, this version reads 2"):
        disk.read_sealed(path, schema=2)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": 41}))
    with pytest.raises(InputError, match="edited"):
        disk.read_sealed(path, schema=1)
