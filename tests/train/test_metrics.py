"""metrics.jsonl: strict JSON, one entry a member."""

import json

import jax.numpy as jnp
import numpy as np

from vinerl.train import metrics


def refuse(word):
    raise AssertionError(f"{word} is not JSON")


def test_lines_are_strict_json_with_null_for_what_is_not_finite(tmp_path):
    path = tmp_path / "metrics.jsonl"
    metrics.write(path, 10, {"a": jnp.array([1.5, jnp.nan]), "b": [[np.inf, 2.0], [-np.inf, 3.0]]})
    metrics.write(path, 20, {"a": np.float32([2.5, 3.5])})
    lines = path.read_text().splitlines()
    assert [json.loads(line, parse_constant=refuse) for line in lines] == [
        {"step": 10, "a": [1.5, None], "b": [[None, 2.0], [None, 3.0]]},
        {"step": 20, "a": [2.5, 3.5]},
    ]


def test_lines_of_one_step_are_joined_and_steps_are_in_order(tmp_path):
    """An evaluation beside the training is written after later steps."""
    path = tmp_path / "metrics.jsonl"
    for step, found in [(10, {"loss": [1.0]}), (20, {"loss": [2.0]}), (10, {"success": [0.5]})]:
        metrics.write(path, step, found)
    assert metrics.read(path) == [
        {"step": 10, "loss": [1.0], "success": [0.5]},
        {"step": 20, "loss": [2.0]},
    ]


def test_a_curve_has_the_steps_of_its_metric_alone():
    lines = [{"step": 1, "a": [1.0, None]}, {"step": 2}, {"step": 3, "a": [2.0, 4.0]}]
    steps, values = metrics.curve(lines, "a")
    assert steps.tolist() == [1, 3]
    np.testing.assert_array_equal(values, [[1, np.nan], [2, 4]])


def test_a_metric_that_is_not_there_has_an_empty_curve():
    steps, values = metrics.curve([{"step": 1, "a": [1.0]}], "b")
    assert len(steps) == len(values) == 0
