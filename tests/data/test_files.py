"""Files of transitions: two layouts that are read, and everything that is refused."""

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinerl.data import files
from vinerl.errors import InputError

N = 12
ENDS = np.array([3, 8, 11])
NOWHERE = Path("data.npz")
DRAW = np.random.default_rng(0)


def compact(labelled=True, **changes):
    """OGBench's layout: three episodes, the last row of each its final observation."""
    draw = np.random.default_rng(0)
    arrays = {
        "observations": draw.normal(size=(N, 3)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (N, 2)).astype(np.float32),
        "terminals": np.isin(np.arange(N), ENDS),
        "qpos": draw.normal(size=(N, 2)).astype(np.float32),
    }
    if labelled:
        masks = (np.arange(N) != ENDS[0] - 1).astype(np.float32)
        arrays |= {"rewards": draw.normal(size=N).astype(np.float32), "masks": masks}
    return arrays | changes


def spelled_out():
    """The same data with next_observations, every row a transition."""
    arrays = compact()
    used, last = ~arrays["terminals"], np.append(arrays["terminals"][1:], False)
    kept = ("observations", "actions", "rewards", "masks")
    rows = {name: arrays[name][used] for name in kept}
    after = arrays["observations"][np.flatnonzero(used) + 1]
    return rows | {"next_observations": after, "terminals": last[used]}


def as_bytes(arrays, save=np.savez) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.npz"


def load(arrays):
    files.check(arrays, NOWHERE)
    return files.to_transitions(arrays, NOWHERE)


def refused(arrays, *words):
    """What is said about arrays that are wrong."""
    with pytest.raises(InputError) as error:
        load(arrays)
    message = str(error.value)
    assert message.startswith("data.npz: ")
    for word in words:
        assert word in message
    return message


def assert_equal(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


# What is read


def test_a_file_comes_back_as_it_was_written(path):
    path.write_bytes(as_bytes(compact(), np.savez_compressed))
    arrays = files.read(path)
    assert list(arrays) == list(compact())
    assert_equal(arrays.values(), compact().values())
    files.check(arrays, path)


def test_the_last_row_of_an_episode_is_its_final_observation():
    arrays = compact()
    data = load(arrays)
    rows = [0, 1, 2, 4, 5, 6, 7, 9, 10]
    assert data.row.tolist() == rows
    assert data.terminal.tolist() == [0, 0, 1, 0, 0, 0, 1, 0, 1]
    assert data.mask.tolist() == [1, 1, 0, 1, 1, 1, 1, 1, 1]
    assert_equal([data.obs, data.reward], [arrays["observations"], arrays["rewards"][rows]])
    np.testing.assert_allclose(data.action, arrays["actions"][rows], atol=2e-5)


def test_both_layouts_are_the_same_data():
    assert_equal(load(spelled_out()), load(compact()))


def test_episodes_of_one_step_may_be_spelled_out():
    """A bandit: no row follows another."""
    arrays = spelled_out() | {"terminals": np.ones(N - len(ENDS))}
    data = load(arrays)
    assert data.row.tolist() == list(range(0, 18, 2))
    assert_equal([data.obs[1::2]], [arrays["next_observations"]])


def test_observations_may_be_a_tree():
    arrays = compact()
    joints = arrays.pop("observations")
    camera = DRAW.integers(0, 256, (N, 4, 4, 3)).astype(np.uint8)
    arrays |= {"observations/joints": joints, "observations/camera": camera}
    data = load(arrays)
    assert set(data.obs) == {"joints", "camera"}
    assert data.obs["camera"].dtype == np.uint8
    assert_equal([data.obs["joints"], data.obs["camera"]], [joints, camera])


def test_without_masks_nothing_ends_the_task():
    arrays = compact()
    del arrays["masks"]
    assert (load(arrays).mask == 1).all()


def test_sparse_rewards_are_minus_one_or_zero():
    rewards = np.resize([-3.0, -1.0, 0.0, 0.5], N)
    data = load(compact(rewards=rewards))
    sparse = files.to_transitions(compact(rewards=rewards), NOWHERE, sparse=True)
    assert data.reward.tolist() == rewards[data.row].tolist()
    assert sparse.reward.tolist() == np.where(rewards == 0, 0, -1)[data.row].tolist()
    assert_equal([sparse.mask], [data.mask])


def test_actions_on_the_edge_are_moved_inside_the_box():
    arrays = compact(actions=np.resize(np.float32([1, -1, 0.5]), (N, 2)))
    action = load(arrays).action
    assert action.max() == np.float32(1 - 1e-5)
    assert action.min() == np.float32(-1 + 1e-5)
    assert 0.5 in action


# Files that cannot be read


def test_a_missing_file(path):
    with pytest.raises(InputError, match=r"data\.npz: there is no such file"):
        files.read(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file(path, save, share):
    whole = as_bytes(compact(), save)
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match=r"data\.npz: not a readable .* truncated or damaged"):
        files.read(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_bit_in_the_numbers(path, save):
    damaged = bytearray(as_bytes({"observations": compact()["observations"]}, save))
    damaged[len(damaged) // 2] ^= 16
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="truncated or damaged"):
        files.read(path)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([np.savez, np.savez_compressed]), st.data())
def test_wherever_a_bit_flips_no_other_numbers_are_read(tmp_path_factory, save, data):
    path = tmp_path_factory.getbasetemp() / "flipped.npz"
    damaged = bytearray(as_bytes(compact(), save))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    try:
        arrays = files.read(path)
    except InputError:
        return
    assert_equal(arrays.values(), [compact()[name] for name in arrays])


class Bomb:
    """Writes a file as soon as it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_is_refused_and_not_run(path, tmp_path):
    trace = tmp_path / "it ran"
    inside = as_bytes(compact(observations=np.array([Bomb(trace)], object)))
    for content in (inside, pickle.dumps(Bomb(trace))):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"not a readable .*pickle"):
            files.read(path)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace)))
    assert trace.exists(), "or the bomb is a dud"


@pytest.mark.parametrize(
    ("begin", "said"),
    [
        (b"\x89HDF\r\n\x1a\n", "but an HDF5 file; examples/own_data.py"),
        (b"PAR1", "but a Parquet file; examples/own_data.py"),
        (b"a,b,c\n1,2,3\n", "zip archive.* truncated or damaged"),
    ],
)
def test_a_file_of_another_format_is_named(tmp_path, begin, said):
    path = tmp_path / "data"
    path.write_bytes(begin + bytes(100))
    with pytest.raises(InputError, match=f"not a readable .npz file.* {said}"):
        files.read(path)


def test_episodes_as_python_objects_are_told_how_to_be_arrays(tmp_path):
    path, episodes = tmp_path / "data.npz", np.empty(2, object)
    episodes[:] = [np.zeros(3), np.zeros(4)]
    np.savez(path, rewards=episodes)
    with pytest.raises(InputError, match=r"rewards.npy holds .* one after the other; examples/"):
        files.read(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"actions": np.zeros(N)}, "one number a row is [rows, 1]"),
        ({"actions": np.zeros((2, 6, 2))}, "without padding"),
        ({"rewards": np.zeros((N, 1))}, "rewards[:, 0] is one number a row"),
        ({"rewards": np.zeros((N, 2))}, "without padding"),
        ({"rewards": np.zeros(3)}, f"with {N} rows, as actions have"),
    ],
)
def test_a_wrong_shape_comes_with_what_may_have_been_meant(changes, said):
    first, *_ = files.misshapen(compact(**changes))
    assert first.key == next(iter(changes))
    assert first.message.endswith(said)


@pytest.mark.parametrize("content", ["text", "a single array"])
def test_another_kind_of_file(path, content):
    if content == "text":
        path.write_text(json.dumps({"observations": [1, 2, 3]}))
    else:
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    with pytest.raises(InputError, match="not a readable"):
        files.read(path)


# Arrays that would spoil a run


@settings(deadline=None)
@given(
    st.sampled_from(["observations", "actions", "rewards", "masks", "qpos"]),
    st.sets(st.integers(0, N - 1), min_size=1),
    st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_wherever_a_number_is_missing_its_key_row_and_count_are_said(name, rows, value):
    arrays = compact()
    arrays[name][sorted(rows), ...] = value
    found = f"{len(rows)} of {N} rows, first in row {min(rows)}"
    refused(arrays, f"{name} is NaN or infinite in {found}")


@pytest.mark.parametrize("name", ["next_observations", "observations/joints"])
def test_a_missing_number_in_the_other_layouts(name):
    arrays = spelled_out()
    if name == "observations/joints":
        arrays[name] = arrays.pop("observations")
    arrays[name][4, 1] = np.nan
    refused(arrays, f"{name} is NaN or infinite in 1 of 9 rows, first in row 4")


@pytest.mark.parametrize("name", ["observations", "actions", "terminals"])
def test_a_missing_key(name):
    arrays = compact()
    del arrays[name]
    refused(arrays, f"no {name} in it; it has", "qpos", "masks")


def test_several_missing_keys_and_an_empty_file():
    refused({}, "no observations and no actions and no terminals in it; it has nothing")


def test_missing_rewards_name_the_way_out():
    refused(compact(labelled=False), "no rewards in it", "--task NAME --dir")


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("actions", (N,), "[rows, A]"),
        ("actions", (N, 2, 2), "[rows, A]"),
        ("actions", (0, 2), "[rows, A]"),
        ("actions", (N, 0), "[rows, A]"),
        ("actions", (), "[rows, A]"),
        ("rewards", (N, 1), f"[rows] with {N} rows, as actions have"),
        ("rewards", (N - 1,), f"[rows] with {N} rows, as actions have"),
        ("masks", (), f"[rows] with {N} rows"),
        ("terminals", (N, 1), f"[rows] with {N} rows"),
        ("observations", (N + 1, 3), f"[rows, ...] with {N} rows, as actions have"),
        ("observations", (), f"[rows, ...] with {N} rows"),
        ("qpos", (N - 2, 2), f"[rows, ...] with {N} rows"),
    ],
)
def test_a_wrong_shape(name, shape, expected):
    arrays = compact(**{name: np.zeros(shape, np.float32)})
    refused(arrays, f"{name} has shape {shape}, expected {expected}")


@pytest.mark.parametrize("kind", ["U3", "complex64", "S2"])
def test_a_wrong_type(kind):
    refused(compact(rewards=np.zeros(N, kind)), "rewards holds", "expected numbers")


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.5), (-3.0, 2.0)])
def test_actions_outside_the_box_and_how_to_map_them(low, high):
    actions = compact()["actions"]
    actions[[4, 7], 1] = low, high
    rows = [row for row, value in ((4, low), (7, high)) if abs(value) > 1]
    message = refused(
        compact(actions=actions),
        f"actions leave [-1, 1] in {len(rows)} of {N} rows, first in row {rows[0]}",
        f"(range {actions.min():.4g} to {high:.4g})",
    )
    rule = message.split("a -> ")[1]
    mapped = [eval(rule, {"a": a}) for a in (actions.min(), high)]
    np.testing.assert_allclose(mapped, [-1, 1], atol=1e-3)


def test_whole_numbers_outside_the_box():
    refused(compact(actions=np.full((N, 2), -128, np.int8)), "actions leave [-1, 1]")


def test_a_last_episode_without_an_end():
    terminals = compact()["terminals"]
    terminals[-1] = False
    refused(compact(terminals=terminals), f"terminals must be 1 in row {N - 1}")


@pytest.mark.parametrize(("row", "also"), [(0, []), (4, []), (9, [10]), (0, range(N))])
def test_an_episode_without_a_transition(row, also):
    terminals = compact()["terminals"]
    terminals[[row, *also]] = True
    refused(compact(terminals=terminals), f"the episode that ends in row {row} has no transition")


def test_a_following_observation_that_does_not_follow():
    arrays = spelled_out()
    arrays["next_observations"][4] += 1
    refused(arrays, "next_observations of row 4 is not the observation of row 5", "terminals to 1")


def test_following_observations_of_another_tree():
    arrays = spelled_out()
    arrays["next_observations/joints"] = arrays.pop("next_observations")
    refused(arrays, "next_observations and observations are not the same tree")


@pytest.mark.parametrize("width", [1, 4])
def test_following_observations_of_another_shape(width):
    arrays = spelled_out() | {"next_observations": np.zeros((N - len(ENDS), width))}
    refused(arrays, "next_observations", f"(9, {width})", "(9, 3)")


# Places


def test_where_data_are_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("VINERL_DATA", raising=False)
    assert files.folder() == Path("~/.cache/vinerl/data").expanduser()
    monkeypatch.setenv("VINERL_DATA", str(tmp_path))
    assert files.folder() == tmp_path
    assert files.folder(Path("~/here")) == Path("~/here").expanduser()


@pytest.mark.parametrize("shape", [(), (3,), (8, 8)])
def test_bytes_that_are_no_images_are_refused(shape):
    with pytest.raises(InputError, match=r"taken for images, \[rows, height, width, channels\]"):
        load(compact(observations=np.zeros((N, *shape), np.uint8)))


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.float16])
def test_observations_of_other_types_become_float32(kind):
    data = load(compact(observations=np.arange(3 * N).reshape(N, 3).astype(kind)))
    assert data.obs.dtype == np.float32
    assert_equal([data.obs], [np.arange(3 * N, dtype=np.float32).reshape(N, 3)])


def test_a_number_too_large_for_float32_is_infinite():
    rewards = np.zeros(N)
    rewards[4] = 1e39
    with pytest.raises(InputError, match=r"rewards is NaN or infinite in 1 of \d+ rows, .* row 4"):
        load(compact(rewards=rewards))
