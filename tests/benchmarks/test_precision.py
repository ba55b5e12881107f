"""Errors of gradients: by hand, and of a tiny update from the command's first word to its files."""

import json
import re

import jax.numpy as jnp
import pytest

from benchmarks import precision
from vinerl.errors import InputError


def network(kernel, bias):
    layer = {"kernel": jnp.float32(kernel), "bias": jnp.float32(bias)}
    return precision.by_layer({"actor": {"params": {"Dense_0": layer}}})


def test_errors_of_a_layer_and_of_a_network():
    """A kernel of norm 5 that is 5 away, beside a bias of norm 12 that is right: 5 / 13."""
    found = precision.errors(network([[3.0, 9.0]], [12.0]), network([[3.0, 4.0]], [12.0]))
    assert {name: [round(float(x), 5) for x in pair] for name, pair in found.items()} == {
        "actor": [round(5 / 13, 5), 13.0],
        "actor/Dense_0/kernel": [1.0, 5.0],
        "actor/Dense_0/bias": [0.0, 12.0],
    }


def test_median_and_worst_are_over_batches():
    """Errors .1, .9, .2 of gradients of norm 1, 2, 4, and a layer that is worse still once."""
    whole, layer = [(0.1, 1.0), (0.9, 2.0), (0.2, 4.0)], [(0.3, 1.0), (0.3, 1.0), (1.5, 1.0)]
    assert precision.summary([{"a": x, "a/b": y} for x, y in zip(whole, layer, strict=True)]) == {
        "a": 0.2,
        "a_worst": 0.9,
        "worst_layer": "a/b",
        "layers": {
            "a": {"median": 0.2, "worst": 0.9, "size": 2.0},
            "a/b": {"median": 0.3, "worst": 1.5, "size": 1.0},
        },
    }


def test_what_is_not_finite_is_null_and_the_worst():
    seen = [{"a": (0.1, 1.0), "a/b": (x, 1.0)} for x in (0.1, float("nan"))]
    found = precision.summary(seen)
    assert found["worst_layer"] == "a/b"
    assert found["layers"]["a/b"] == {"median": None, "worst": None, "size": 1.0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fusd=true", "vine has no field 'fusd'; nearest"),
        ("precision=half", "--agent.precision half: there are float32"),
        ("critics=3", "--set critics=3: its weights are not those of the reference"),
    ],
)
def test_a_variant_that_cannot_be_compared_is_refused(words, said):
    with pytest.raises(InputError, match=re.escape(said)):
        precision.main(["--small", "--set", words])


def test_a_dataset_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent\.npz"):
        precision.main(["--small", "--data", str(tmp_path / "absent.npz")])


def test_bfloat16_rounds_every_layer_and_float32_none(tmp_path, capsys):
    """On a CPU TF32 is float32, to the bit; a bfloat16 has 8 bits: a part in 256, over layers.

    alpha weighs a part of the actor's loss, so the critic's gradient does not know of it.
    """
    out, plot = tmp_path / "lines.jsonl", tmp_path / "precision.png"
    small = ["--small", "--batches", "3", "--train-steps", "2", "--set", "alpha=20.0"]
    precision.main([*small, "--out", str(out), "--plot", str(plot)])
    first, *rows = map(json.loads, out.read_text().splitlines())
    assert first["arguments"]["batches"] == 3
    both, variants = ("fresh", "after 2 steps"), ("bfloat16", "tf32", "alpha=20.0")
    cells = [(weights, variant) for weights in both for variant in variants]
    assert [(row["weights"], row["variant"]) for row in rows] == cells
    for row in rows:
        assert len(row["layers"]) == 2 + 6 + 14, "networks; 3 layers; 4 layers, 3 with LayerNorm"
        errors = {layer: of["worst"] for layer, of in row["layers"].items()}
        if row["variant"] == "bfloat16":
            assert all(1e-4 < x < 0.1 for x in errors.values()), errors
        elif row["variant"] == "tf32":
            assert set(errors.values()) == {0.0}
        else:
            assert all(errors[x] > 0.1 for x in errors if x.startswith("actor")), errors
            assert all(errors[x] < 1e-6 for x in errors if x.startswith("critic")), errors
    fresh, later = (row["layers"]["actor"]["size"] for row in rows[::3])
    assert fresh != later
    assert plot.stat().st_size > 10_000
    assert "worst_layer" in capsys.readouterr().err
