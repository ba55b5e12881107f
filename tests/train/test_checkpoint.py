"""What is saved comes back exactly, or not at all."""

import errno
import json
import os
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny import SPEC, dataset, tiny
from vinerl.errors import InputError
from vinerl.train import checkpoint, offline, stack

CONFIG, MAKE = tiny("vine")
AGENT_OF = stack.maker(MAKE, CONFIG, SPEC)
BLOCK = offline.train_block(AGENT_OF)
DATA = jax.device_put(dataset())


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert jax.tree.map(lambda x: x.dtype, a) == jax.tree.map(lambda x: x.dtype, b)


def loaded(path, like):
    """The tree, or the words with which it is refused."""
    try:
        return checkpoint.load(path, like)
    except InputError as error:
        return str(error)


@pytest.fixture(scope="module")
def half():
    """Two members after a block."""
    members = stack.members(replace(CONFIG, alpha=(1.0, 2.0)), seeds=(7,))
    runs, _ = BLOCK(jax.jit(partial(offline.start, AGENT_OF))(members), DATA, 2)
    return jax.device_get(runs)


@pytest.fixture(scope="module")
def saved(half, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "state-2"
    checkpoint.save(path, half, step=2, note="a word")
    return path


@pytest.fixture
def copy(saved, tmp_path):
    """A checkpoint to be damaged."""
    for suffix in (".safetensors", ".json"):
        (tmp_path / f"state-2{suffix}").write_bytes(saved.with_suffix(suffix).read_bytes())
    return tmp_path / "state-2"


def test_a_whole_stack_comes_back_exactly(half, saved):
    assert_equal(checkpoint.load(saved, half), half)
    assert checkpoint.card(saved)["step"] == 2
    assert checkpoint.card(saved)["note"] == "a word"


def test_shapes_are_enough_to_load(half, saved):
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), half)
    assert_equal(checkpoint.load(saved, like), half)


def test_resumed_training_repeats_itself(half, saved):
    resumed = checkpoint.load(saved, half)
    assert_equal(BLOCK(resumed, DATA, 2), BLOCK(half, DATA, 2))


def test_saving_leaves_two_files_and_replaces_what_was_there(half, saved, copy):
    other = half._replace(status=half.status + 1)
    checkpoint.save(copy, other, step=3)
    assert sorted(p.name for p in copy.parent.iterdir()) == ["state-2.json", "state-2.safetensors"]
    assert_equal(checkpoint.load(copy, half), other)


def test_a_save_that_fails_leaves_the_old_checkpoint_and_nothing_else(half, copy, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(copy, half._replace(status=half.status + 1), step=3)
    assert sorted(p.name for p in copy.parent.iterdir()) == ["state-2.json", "state-2.safetensors"]
    assert_equal(checkpoint.load(copy, half), half)


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_wherever_it_is(half, saved, tmp_path_factory, where, bit):
    folder = tmp_path_factory.mktemp("flipped")
    data = bytearray(saved.with_suffix(".safetensors").read_bytes())
    data[int(where * len(data))] ^= 1 << bit
    (folder / "x.safetensors").write_bytes(data)
    (folder / "x.json").write_bytes(saved.with_suffix(".json").read_bytes())
    with pytest.raises(InputError, match=r"x\.safetensors: damaged"):
        checkpoint.load(folder / "x", half)


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_card_spoils_no_tensor(half, saved, tmp_path_factory, where, bit):
    """The file is refused by name, or the bit was in a fact that loading does not use."""
    folder = tmp_path_factory.mktemp("flipped")
    card = bytearray(saved.with_suffix(".json").read_bytes())
    card[int(where * len(card))] ^= 1 << bit
    (folder / "x.json").write_bytes(card)
    (folder / "x.safetensors").write_bytes(saved.with_suffix(".safetensors").read_bytes())
    found = loaded(folder / "x", half)
    if isinstance(found, str):
        assert str(folder / "x") in found
    else:
        assert_equal(found, half)


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.99999])
@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
def test_a_truncated_file_is_refused(half, copy, suffix, kept):
    file = copy.with_suffix(suffix)
    data = file.read_bytes()
    file.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(InputError, match=f"state-2{suffix}"):
        checkpoint.load(copy, half)


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
def test_a_missing_file_is_refused(half, copy, suffix):
    copy.with_suffix(suffix).unlink()
    with pytest.raises(InputError, match=f"state-2{suffix}"):
        checkpoint.load(copy, half)


@pytest.mark.parametrize("card", [[], {}, {"schema": 2}, {"schema": 1}, "word"])
def test_a_card_of_another_kind_is_refused(half, copy, card):
    copy.with_suffix(".json").write_text(json.dumps(card))
    with pytest.raises(InputError, match=r"state-2\."):
        checkpoint.load(copy, half)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actor_hidden": (9,)}, r"kernel is float32 \[2, 8, 2\], expected float32 \[2, 9, 2\]"),
        ({"critics": 3}, r"bias is float32 \[2, 2, 1\], expected float32 \[2, 3, 1\]"),
        ({"actor_layer_norm": True}, r"LayerNorm_0/bias is not there, expected float32 \[2, 8\]"),
    ],
)
def test_a_checkpoint_of_another_config_is_refused(saved, change, said):
    config = replace(CONFIG, **change)
    start = partial(offline.start, stack.maker(MAKE, config, SPEC))
    like = jax.eval_shape(start, stack.members(config, seeds=(0, 1)))
    with pytest.raises(InputError, match=rf"state-2\.safetensors: made by another .*{said}"):
        checkpoint.load(saved, like)


def test_a_checkpoint_of_another_number_of_members_is_refused(half, saved):
    with pytest.raises(InputError, match=r"state-2\.safetensors"):
        checkpoint.load(saved, jax.tree.map(lambda x: x[:1], half))


def test_facts_must_be_json(half, tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoint.save(tmp_path / "x", {"a": half.status}, value=float("nan"))
    assert not (tmp_path / "x.json").exists(), "a tensor file without a card is no checkpoint"
