"""Archives that claim what is not there are refused, and nothing in one gets lost unnoticed."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinerl.data import archive

ARRAYS = {"observations": np.arange(12.0), "actions": np.ones((12, 2)), "masks": np.zeros(12)}


def written(arrays=ARRAYS, save=np.savez) -> bytearray:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return bytearray(buffer.getvalue())


def zipped(name="observations.npy", content=b"", method=zipfile.ZIP_STORED) -> bytearray:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        made.writestr(name, content)
    return bytearray(buffer.getvalue())


def claim(shape, numbers=b"", kind="<f4") -> bytes:
    """An array's bytes whose header speaks of `shape`, whatever follows."""
    buffer = io.BytesIO()
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + numbers


def refused(content) -> str:
    with pytest.raises(archive.UNREADABLE) as error:
        archive.read(io.BytesIO(content))
    return str(error.value)


class Stream(io.RawIOBase):
    """Can only be written to, from the beginning to the end."""

    def __init__(self):
        self.content = bytearray()

    def writable(self):
        return True

    def write(self, part):
        self.content += part
        return len(part)


@pytest.mark.parametrize("way", ["plain", "compressed", "streamed", "appended"])
def test_what_common_writers_make_is_read(way):
    if way == "streamed":
        stream = Stream()
        np.savez(stream, **ARRAYS)
        content = stream.content
    elif way == "appended":
        buffer = io.BytesIO(written({k: ARRAYS[k] for k in ("observations", "actions")}))
        with zipfile.ZipFile(buffer, "a") as more:
            more.writestr("masks.npy", claim((12,), bytes(96), "<f8"))
        content = buffer.getvalue()
    else:
        content = written(save=np.savez if way == "plain" else np.savez_compressed)
    arrays = archive.read(io.BytesIO(content))
    assert list(arrays) == list(ARRAYS)
    for name, x in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], x)


def test_nothing_but_zeros_is_compressed_more_than_anything_else():
    zeros = {"observations": np.zeros((1000, 1000), np.float32)}
    assert (
        archive.read(io.BytesIO(written(zeros, np.savez_compressed)))["observations"] == 0
    ).all()


@pytest.mark.parametrize("shape", [(10**15, 3), (10**8,), (3,), (1,), (), (-2,), (2**63, 2)])
def test_a_header_that_claims_other_than_is_there_takes_no_memory(shape):
    """There are two numbers."""
    content = zipped(content=claim(shape, bytes(8)))
    tracemalloc.start()
    message = refused(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "observations.npy claims" in message
    assert "and has 8" in message
    assert peak < 2**20


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_directory_that_claims_it_too_takes_no_memory(method):
    """Header and directory agree on 400 MB in a file of less than a kilobyte."""
    rows = 10**8
    content = zipped(content=claim((rows,), bytes(8)), method=method)
    size = len(claim((rows,))) + 4 * rows
    entry = content.index(b"PK\x01\x02")
    struct.pack_into("<L", content, entry + 24, size)
    tracemalloc.start()
    assert f"claims {4 * rows} bytes" in refused(content)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


OUTSIDE = ["../up.npy", "a/../../up.npy", "/etc/up.npy", "..\\up.npy", "C:\\up.npy", "C:up.npy"]
NO_ARRAY = ["readme.txt", "folder/", ".npy"]


@pytest.mark.parametrize("name", [*OUTSIDE, *NO_ARRAY])
def test_a_name_that_leads_elsewhere_or_is_none(name):
    content = claim((2,), bytes(8))
    assert "cannot be the name of an array" in refused(zipped(name, content))


def test_a_name_may_have_parts():
    content = zipped("observations/left..camera.npy", claim((2,), bytes(8)))
    assert list(archive.read(io.BytesIO(content))) == ["observations/left..camera"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_arrays_of_one_name():
    buffer = io.BytesIO(zipped(content=claim((2,), bytes(8))))
    with zipfile.ZipFile(buffer, "a") as more:
        more.writestr("observations.npy", claim((1,), bytes(4)))
    assert "cannot be the name" in refused(buffer.getvalue())


@pytest.mark.parametrize("lost", range(len(ARRAYS)))
def test_an_array_that_the_directory_has_lost(lost):
    """The directory is whole in itself, and one array shorter."""
    content = bytes(written())
    end = content.index(b"PK\x05\x06")
    start = content.index(b"PK\x01\x02")
    entries = [b"PK\x01\x02" + e for e in content[start:end].split(b"PK\x01\x02")[1:]]
    left = b"".join(entries[:lost] + entries[lost + 1 :])
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2, 2, len(left), start, 0)
    shortened = content[:start] + left + tail
    with zipfile.ZipFile(io.BytesIO(shortened)) as others_read_it:
        assert len(others_read_it.namelist()) == 2
        assert others_read_it.testzip() is None
    assert "its directory does not list" in refused(shortened)


def test_an_entry_that_swallows_those_behind_it():
    """A flipped bit in the length of an entry's comment, which zipfile does not notice."""
    content = written()
    content[content.index(b"PK\x01\x02") + 33] ^= 0x80
    with zipfile.ZipFile(io.BytesIO(content)) as others_read_it:
        assert others_read_it.namelist() == ["observations.npy"]
    assert "its directory does not list" in refused(content)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([np.savez, np.savez_compressed]), st.data())
def test_wherever_a_bit_flips_all_is_read_or_nothing(save, data):
    content = written(save=save)
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        arrays = archive.read(io.BytesIO(content))
    except archive.UNREADABLE:
        return
    assert list(arrays) == list(ARRAYS)
    for name, x in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], x)


@pytest.mark.parametrize("nonsense", ["-" * 9000 + "1", "(" * 9000, "{'descr': (", "0" * 99, "[{}"])
def test_a_header_that_no_parser_likes(nonsense):
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(nonsense)) + nonsense.encode()
    refused(zipped(content=header))
