"""`python -m benchmarks roofline`."""

import json

import pytest

from benchmarks import roofline
from vinerl.errors import InputError

FIRST = {"subject": "update", "hardware": {"device": "a GPU"}}
PRODUCTS = [
    {"case": "product", "precision": "bfloat16", "tflops": 700.0},
    {"case": "product", "precision": "float32", "tflops": 300.0},
]
COPY = {"case": "copy", "gb_s": 4000.0}
PEERS = {"case": "peers", "grow": None, "members": 1, "precision": "float32", "tflops": 9.0}


def stack(members, tflops, precision="bfloat16", grow=None):
    facts = {"members": members, "precision": precision, "grow": grow, "intensity": 100.0}
    return {"case": "project", "tflops": tflops} | facts


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_read_by_precision_in_the_order_of_sizes(tmp_path):
    failed = {"case": "project", "grow": None, "members": 8, "error": "no memory"}
    rows = [stack(4, 90.0), stack(1, 30.0), stack(2, 20.0, "float32"), stack(4, 1.0, grow="batch")]
    path = written(tmp_path / "after.jsonl", FIRST, *PRODUCTS, COPY, PEERS, *rows, failed)
    half, full = roofline.read(path)
    assert (half.file, half.precision, half.device) == ("after", "bfloat16", "a GPU")
    assert [row["members"] for row in half.stacks] == [1, 4]
    assert [row["tflops"] for row in full.stacks] == [20.0]
    assert (half.product, full.product, half.bandwidth) == (700.0, 300.0, 4000.0)
    assert half.peers == [PEERS]


def test_what_was_compiled_with_an_option_is_left_out(tmp_path):
    rows = [stack(4, 90.0) | {"option": None}, stack(4, 95.0) | {"option": "xla_gpu_a=1"}]
    (found,) = roofline.read(written(tmp_path / "a.jsonl", *rows))
    assert [row["tflops"] for row in found.stacks] == [90.0]


def test_roofs_are_the_best_product_and_intensity_times_bandwidth(tmp_path):
    slow = [{**row, "tflops": row["tflops"] / 2} for row in PRODUCTS]
    files = [
        written(tmp_path / "a.jsonl", *PRODUCTS, COPY, stack(1, 30.0)),
        written(tmp_path / "b.jsonl", *slow, stack(1, 30.0)),
    ]
    found = roofline.roofs([one for path in files for one in roofline.read(path)])
    assert sorted(roof.tflops for roof in found) == [400.0, 700.0]


def test_the_picture_is_drawn(tmp_path, capsys):
    before = written(tmp_path / "before.jsonl", FIRST, *PRODUCTS, COPY, stack(1, 5.0, "float32"))
    after = written(tmp_path / "after.jsonl", FIRST, *PRODUCTS, COPY, PEERS, stack(4, 90.0))
    out = tmp_path / "roofline.png"
    roofline.main([str(before), str(after), "--out", str(out)])
    assert out.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{out}\n"


def test_what_is_wrong_with_a_file_is_said(tmp_path):
    with pytest.raises(InputError, match=r"none.jsonl: there is no such file"):
        roofline.read(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match=r"empty.jsonl: no stack was timed"):
        roofline.read(written(tmp_path / "empty.jsonl", FIRST, COPY, PEERS))
    torn = tmp_path / "torn.jsonl"
    torn.write_text('{"case": "copy"}\n{"case":')
    with pytest.raises(InputError, match=r"torn.jsonl: line 2"):
        roofline.read(torn)
