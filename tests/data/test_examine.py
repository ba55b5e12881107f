"""Whatever is wrong with a file is said with its row, all of it, and so is what is odd."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_files import ENDS, NOWHERE, N, compact, spelled_out

from vinerl.data import files
from vinerl.data.examine import episode_sums, report, starts
from vinerl.errors import InputError

ROWS = st.integers(0, N - 1)


@pytest.fixture(scope="module")
def look(tmp_path_factory):
    """From arrays, through a file, to findings, in a way that says level, key and message."""
    path = tmp_path_factory.mktemp("examine") / "data.npz"

    def through_a_file(arrays):
        np.savez(path, **arrays)
        return report(path).findings

    return through_a_file


def said(findings, level, key):
    """The one message about `key`."""
    (message,) = (f.message for f in findings if (f.level, f.key) == (level, key))
    return message


def of(findings, level):
    return [f.key for f in findings if f.level == level]


@pytest.mark.parametrize("make", [compact, spelled_out])
def test_nothing_is_said_about_a_sound_file(look, make):
    assert look(make()) == []


# What is wrong


@settings(deadline=None, max_examples=60)
@given(
    st.booleans(),
    st.sampled_from(["observations", "actions", "rewards", "masks"]),
    ROWS,
    st.integers(0, 2),
    st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_a_number_missing_anywhere(look, spelled, name, row, column, value):
    arrays = spelled_out() if spelled else compact()
    x = arrays[name]
    row, rows = row % len(x), len(x)
    x.reshape(rows, -1)[row, column % x[0].size] = value
    findings = look(arrays)
    assert of(findings, "wrong") == [name]
    message = said(findings, "wrong", name)
    assert f"in 1 of {rows} rows, first in row {row}. " in message
    assert "--drop-bad-rows" in message


@settings(deadline=None, max_examples=30)
@given(ROWS, st.integers(0, 1), st.sampled_from([-1.5, 1.001, 40.0]))
def test_an_action_outside_the_box_anywhere(look, row, column, value):
    arrays = compact()
    arrays["actions"][row, column] = value
    message = said(look(arrays), "wrong", "actions")
    assert f"leave [-1, 1] in 1 of {N} rows, first in row {row} (range" in message
    assert f"{value:.4g}" in message
    assert "--rescale-actions" in message


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["masks", "terminals"]), ROWS, st.sampled_from([0.5, -1.0, 2.0]))
def test_a_flag_that_is_none_anywhere(look, name, row, value):
    arrays = compact()
    arrays[name] = arrays[name].astype(np.float32)
    arrays[name][row] = value
    findings = look(arrays)
    first = next(f for f in findings if f.level == "wrong")
    assert first.key == name
    assert f"neither 0 nor 1 in 1 of {N} rows, first in row {row} ({value:.4g})" in first.message


@settings(deadline=None, max_examples=30)
@given(st.integers(0, N - len(ENDS) - 1), st.integers(0, 2))
def test_a_following_observation_that_does_not_follow_anywhere(look, row, column):
    arrays = spelled_out()
    arrays["next_observations"][row, column] += 1
    findings = look(arrays)
    if arrays["terminals"][row]:
        assert findings == []
    else:
        message = said(findings, "wrong", "next_observations")
        assert f"of row {row} is not the observation of row {row + 1}" in message
        assert "(1 of 9 rows)" in message


@settings(deadline=None, max_examples=30)
@given(st.integers(0, N - 2))
def test_an_end_that_is_one_too_many_anywhere(look, row):
    terminals = compact()["terminals"]
    terminals[row] = True
    wrong = look(compact(terminals=terminals))
    empty = [0, 4, 9]  # the first rows of episodes
    late = [2, 7, 10]  # the next row was the last of one
    if row in (*empty, *late):
        last = row if row in empty else row + 1
        assert f"ends in row {last} has no transition. " in said(wrong, "wrong", "terminals")
    else:
        assert wrong == []


def test_no_end_at_all(look):
    message = said(look(compact(terminals=np.zeros(N, bool))), "wrong", "terminals")
    assert "1 in no row. It must be 1 in the last row of every episode" in message
    assert f"in row {N - 1}" in message


def test_empty_episodes_are_counted(look):
    message = said(look(compact(terminals=np.ones(N, bool))), "wrong", "terminals")
    assert "the episode that ends in row 0 has no transition; 12 episodes have none" in message


def test_all_that_is_wrong_is_listed(look):
    arrays = compact(rewards=np.zeros((N, 1)), masks=np.full(N, "x"))
    arrays["observations"][5] = np.nan
    arrays["actions"][2, 0] = np.nan
    arrays["actions"][7, 0] = 3
    arrays["terminals"][[4, 11]] = True, False
    del arrays["qpos"]
    findings = look(arrays)
    keys = ["rewards", "masks", "actions", "observations", "actions", "terminals", "terminals"]
    assert of(findings, "wrong") == keys
    assert "first in row 7 (range -0.896 to 3)" in findings[4].message


def test_other_arrays_are_looked_at_when_some_are_missing(look):
    arrays = compact()
    del arrays["actions"], arrays["terminals"]
    arrays["rewards"][3] = np.inf
    findings = look(arrays)
    assert of(findings, "wrong") == ["file", "rewards"]
    assert "no actions and no terminals in it" in findings[0].message


def test_a_missing_number_is_no_following_observation_that_does_not_follow(look):
    arrays = spelled_out()
    arrays["next_observations"][4] = np.nan
    assert of(look(arrays), "wrong") == ["next_observations"]


@pytest.mark.parametrize("content", [b"", b"nonsense", np.zeros(1).tobytes()])
def test_a_file_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    (finding,) = report(path).findings
    assert finding[:2] == ("wrong", "file")
    assert finding.message.startswith("not a readable .npz file")


def test_a_file_that_is_not_there_and_one_of_objects(tmp_path):
    path = tmp_path / "data.npz"
    assert report(path).findings[0].message == "there is no such file"
    np.savez(path, **compact(infos=np.array([{}], object)))
    assert "infos.npy holds Python objects" in report(path).findings[0].message


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_what_is_wrong_is_what_training_refuses(look, data):
    """The first wrong finding is the error, and without one there is none."""
    arrays = spelled_out() if data.draw(st.booleans()) else compact()
    for _ in range(data.draw(st.integers(0, 2))):
        x = arrays[data.draw(st.sampled_from(sorted(arrays)))]
        flat = x.reshape(-1)
        flat[data.draw(st.integers(0, len(flat) - 1))] = data.draw(
            st.sampled_from([0, 1, 2, np.inf])
        )
    wrong = [f.message for f in look(arrays) if f.level == "wrong"]
    if wrong:
        with pytest.raises(InputError, match=re.escape(wrong[0])):
            files.check(arrays, NOWHERE)
    else:
        files.check(arrays, NOWHERE)
        files.to_transitions(arrays, NOWHERE)


def test_a_number_too_large_for_float32_is_wrong_without_a_warning(look):
    actions = compact()["actions"].astype(np.float64)
    actions[4, 1] = 1e39
    assert of(look(compact(actions=actions)), "wrong") == ["actions"]


# What is odd


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(["observations", "actions"]), st.integers(0, 1), st.floats(-1, 1, width=32))
@example("actions", 0, 0.99999)
def test_a_constant_column_anywhere(look, name, column, value):
    """One at the edge of the box is told to be there, too."""
    arrays = compact()
    arrays[name][:, column] = value
    width = arrays[name].shape[1]
    inside = np.abs(arrays[name][0, column]) < files.CLIP
    message = said(look(arrays), "odd", name) if inside else look(arrays)[0].message
    assert f"{name} never changes in 1 of {width} columns ({column})" in message


def test_many_constant_columns_are_counted(look):
    obs = np.append(np.zeros((N, 10)), compact()["observations"], axis=1).astype(np.float32)
    message = said(look(compact(observations=obs)), "odd", "observations")
    assert message.endswith("in 10 of 13 columns (0, 1, 2, 3, 4, 5, 6, 7, ...)")


def test_actions_at_the_edge(look):
    arrays = compact()
    arrays["actions"][[0, 1, 2, 4], 1] = 1
    assert look(arrays) == []  # 4 of 9 transitions
    arrays["actions"][5, 1] = -1
    message = said(look(arrays), "odd", "actions")
    assert "in most transitions in dimension 1 (56%)" in message


def test_rewards_that_never_change(look):
    assert "are 1 in all" in said(look(compact(rewards=np.ones(N, bool))), "odd", "rewards")
    message = said(look(compact(rewards=np.full(N, -1, np.float32))), "odd", "rewards")
    assert "rewards are -1 in all 9 transitions" in message
    assert "normal" in message
    sparse = np.where(np.arange(N) == ENDS[0] - 1, 0, -1).astype(np.float32)
    assert look(compact(rewards=sparse)) == []


def test_tasks_that_never_end(look):
    message = said(look(compact(masks=np.ones(N, np.float32))), "odd", "masks")
    assert "masks are 1 in all 9 transitions" in message


@pytest.mark.parametrize(("name", "usual"), [("rewards", 0), ("masks", 1)])
def test_what_the_last_step_gave_in_a_row_in_which_nothing_is_done(look, name, usual):
    """As one would write it who thinks that the last row is a step."""
    other = np.where(np.isin(np.arange(N), ENDS), 1 - usual, usual).astype(np.float32)
    message = said(look(compact(**{name: other})), "odd", name)
    assert f"{name} are {usual} in all 9 transitions" in message
    assert f"Others stand in {len(ENDS)} last rows of episodes" in message
    assert "normal" not in message


@settings(deadline=None, max_examples=30)
@given(ROWS, ROWS)
def test_a_row_that_comes_again_anywhere(look, a, b):
    arrays = compact()
    a, b = sorted((a, b))
    for name in ("observations", "actions"):
        arrays[name][b] = arrays[name][a]
    findings = look(arrays)
    if a == b:
        assert findings == []
    else:
        message = said(findings, "odd", "observations")
        assert message.startswith(f"1 of {N} rows repeat")
        assert message.endswith(f"first row {b} that of row {a}")


def test_the_same_observation_with_another_action_is_no_repetition(look):
    arrays = compact()
    arrays["observations"][7] = arrays["observations"][2]
    assert look(arrays) == []


def test_an_episode_that_comes_again(look):
    arrays = compact()
    twice = {name: np.concatenate([x, x[4:9]]) for name, x in arrays.items()}
    message = said(look(twice), "odd", "file")
    assert message.startswith("1 of 4 episodes repeat an earlier one: the one from row 12 on is")
    assert "from row 4 on" in message


def test_episodes_of_one_row(look):
    terminals = spelled_out()["terminals"]
    terminals[3] = True  # the first of the second episode, whose next observation may be any
    findings = look(spelled_out() | {"terminals": terminals})
    assert of(findings, "wrong") == []
    message = said(findings, "odd", "terminals")
    assert message.startswith("1 of 4 episodes have one row, the first is row 3.")


@pytest.mark.parametrize("kind", ["float64", "float16"])
def test_another_precision(look, kind):
    obs = compact()["observations"].astype(kind)
    assert f"stored in {kind}" in said(look(compact(observations=obs)), "odd", "observations")


def test_one_line_names_all_that_is_stored_in_float64(look):
    wide = {name: compact()[name].astype(np.float64) for name in ("actions", "observations")}
    (finding,) = look(compact(**wide))
    assert finding.message.endswith(": actions, observations")


def test_a_name_that_means_nothing_here(look):
    assert "speed is not used." in said(look(compact(speed=np.arange(N))), "odd", "speed")
    assert look(compact(qvel=np.zeros((N, 2)))) == [], "it is in OGBench's files"
    message = said(look(compact(timeouts=np.zeros(N))), "odd", "timeouts")
    assert "masks = 1 - terminals" in message


def test_an_image_that_is_none(look):
    arrays = compact(observations=np.random.default_rng(0).random((N, 4, 5, 3), np.float32))
    assert "and so no image, but 60 numbers" in said(look(arrays), "odd", "observations")


def test_images_are_not_asked_for_constant_pixels(look):
    arrays = compact() | {"observations/joints": compact()["observations"]}
    del arrays["observations"]
    assert look(arrays | {"observations/camera": np.zeros((N, 4, 4, 3), np.uint8)}) == []


# Text


def test_pictures_with_their_channels_first(look):
    image = np.random.default_rng(0).integers(0, 256, (N, 3, 8, 8), np.uint8)
    arrays = compact() | {"observations": image}
    message = said(look(arrays), "odd", "observations")
    assert message.startswith("observations has 8 channels and a height of 3.")
    assert "np.moveaxis(x, 1, -1)" in message
    assert look(arrays | {"observations": np.moveaxis(image, 1, -1)}) == []


def test_a_part_beside_the_whole_would_be_left_out(look):
    image = np.random.default_rng(0).integers(0, 256, (N, 8, 8, 3), np.uint8)
    arrays = compact() | {"observations/camera": image}
    message = said(look(arrays), "wrong", "observations")
    assert "stands beside observations/camera, of which one alone would be used" in message


def test_no_rewards_and_nothing_to_make_them_from(look):
    arrays = compact()
    del arrays["rewards"], arrays["qpos"]
    assert "without which --data is refused" in said(look(arrays), "odd", "rewards")
    assert "rewards" not in of(look(arrays | {"qpos": np.zeros((N, 2))}), "odd")


@pytest.mark.parametrize("make", [compact, spelled_out])
def test_a_task_that_ended_where_the_episode_goes_on(look, make):
    """As `masks = terminals` has it, which is the wrong way round."""
    arrays = make()
    assert "masks" not in of(look(arrays), "odd")
    arrays["masks"] = arrays["terminals"].astype(np.float32)
    message = said(look(arrays), "odd", "masks")
    assert "after which the episode goes on, first in row 0" in message
    assert message.startswith("masks are 0 in 6 of 6 transitions")
    arrays["masks"][1:] = 1
    assert "masks" not in of(look(arrays), "odd")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"rewards": np.zeros((N, 1))},
            r"expected \[rows\].*; rewards\[:, 0\] is one number a row",
        ),
        ({"actions": np.zeros((0, 2))}, r"actions has shape \(0, 2\).*; it is empty"),
    ],
)
def test_a_shape_is_explained(look, change, words):
    (name,) = change
    assert re.search(words, said(look(compact() | change), "wrong", name))


def test_the_summary_counts_and_lists(tmp_path):
    path = tmp_path / "data.npz"
    arrays = compact(rewards=np.arange(N, dtype=np.float32), note=np.array("by hand"))
    arrays["actions"][6, 1] = 2
    np.savez(path, **arrays)
    text = report(path).text
    lines = text.splitlines()
    assert lines[0] == str(path)
    assert "3 episodes, 9 transitions; lengths 2, 3, 4 (least, median, most)" in text
    assert "returns 3, 19, 22 (least, median, most); the task itself ended in 1 transitions" in text
    assert "rewards       12        float32  0 to 11" in lines
    assert "terminals     12        bool     0 to 1" in lines
    assert any(line.startswith("wrong  actions leave") for line in lines)
    assert lines[-1] == "1 wrong, nothing odd"


def test_the_summary_of_files_that_are_hardly_one(tmp_path):
    path = tmp_path / "data.npz"
    assert "wrong  there is no such file\n1 wrong" in report(path).text
    np.savez(path, rewards=np.array([np.nan, 1, 3], np.float32), empty=np.zeros(0))
    assert "rewards  3      float32  1 to 3" in report(path).text
    assert "2 wrong, nothing odd" in report(path).text
    np.savez(path, **compact(labelled=False))
    assert "no rewards: an OGBench task gives them (--task)" in report(path).text


def test_episodes_without_an_end_still_count(look):
    arrays = compact()
    arrays["terminals"][-1] = False
    assert starts(arrays).tolist() == [0, 4, 9, 12]
    assert episode_sums(arrays, np.ones(N)).tolist() == [3, 4, 3]
    assert episode_sums(spelled_out(), np.ones(9)).tolist() == [3, 4, 2]
