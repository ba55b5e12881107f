"""Messages between processes."""

import io
import json

import jax
import numpy as np
import pytest

from vinerl.envs import wire

ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4)[:, ::2],  # not contiguous
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([True, False]),
    np.zeros((0, 5), np.float32),
    np.array(7, np.int64),
    np.array([1.5, -2.0], ">f4"),
]
HEADER = {"do": "step", "slots": [0, 3], "text": "ü\n", "nothing": None}


class Slow(io.BytesIO):
    """A pipe that hands out a byte at a time."""

    def read(self, size=-1):
        return super().read(min(size, 1))


def message(header=HEADER, arrays=ARRAYS) -> bytes:
    stream = io.BytesIO()
    wire.send(stream, header, arrays)
    return stream.getvalue()


@pytest.mark.parametrize("kind", [io.BytesIO, Slow])
def test_what_is_sent_is_received(kind):
    header, arrays = wire.receive(kind(message()))
    assert header == HEADER
    for sent, received in zip(ARRAYS, arrays, strict=True):
        assert (sent.dtype, sent.shape) == (received.dtype, received.shape)
        np.testing.assert_array_equal(sent, received)


def test_messages_follow_each_other():
    stream = io.BytesIO(message() + message({"n": 2}, []) + message({"n": 3}))
    assert [wire.receive(stream)[0] for _ in range(3)] == [HEADER, {"n": 2}, {"n": 3}]
    with pytest.raises(EOFError):
        wire.receive(stream)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.9, 0.999])
def test_a_message_that_breaks_off_is_the_end(share):
    whole = message()
    with pytest.raises(EOFError, match="the other process has gone"):
        wire.receive(io.BytesIO(whole[: int(share * len(whole))]))


def test_objects_are_not_read():
    """Were they sent, only their addresses would be."""
    form = json.dumps([{}, [["|O", [1]]]]).encode()
    stream = io.BytesIO(len(form).to_bytes(4, "little") + form + bytes(8))
    with pytest.raises(ValueError, match="OBJECT"):
        wire.receive(stream)


def test_leaves_come_in_the_order_of_jax():
    obs = {
        "joints": np.arange(3.0),
        "camera": np.zeros((2, 2, 3), np.uint8),
        "arm": {"z": np.float32(1), "b": [1.0, 2.0]},
    }
    arrays = {"joints": obs["joints"], "camera": obs["camera"]}
    arrays["arm"] = {name: np.asarray(x) for name, x in obs["arm"].items()}
    leaves = wire.leaves(obs)
    assert [x.shape for x in leaves] == [(2,), (), (2, 2, 3), (3,)]
    for ours, theirs in zip(leaves, jax.tree.leaves(arrays), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [x.dtype for x in leaves] == ["float32", "float32", "uint8", "float32"]
