"""Controllers: their files, and the one that comes with the package."""

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from vinerl import disk
from vinerl.collect import controllers, walking
from vinerl.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = controllers.ASSETS / "ant.safetensors"


# Files


def test_a_controller_comes_back_from_its_file(untrained, tmp_path):
    """The same bits, and metadata that say whose it is."""
    for robot, path in untrained.items():
        weights = controllers.read(path, robot)
        controllers.save(tmp_path / robot, weights, robot)
        again = controllers.read(tmp_path / robot, robot)
        assert again.keys() == weights.keys()
        assert all(np.array_equal(again[name], weights[name]) for name in weights)
        with safe_open(path, "np") as file:
            assert file.metadata() == {"format": "vinerl controller 1", "robot": robot}


def test_a_controller_computes_what_it_should(untrained):
    """Against the formula, written out for one row."""
    weights = controllers.read(untrained["ant"], "ant")
    act = controllers.load(untrained["ant"], "ant")
    obs, told = np.random.default_rng(1).normal(size=(2, 29)), np.array([[1.0, 0], [0, 1.0]])
    h = np.concatenate([obs[1, 2:], told[1]])
    for layer in "01":
        x = h @ weights[f"{layer}.w"].astype(float) + weights[f"{layer}.b"]
        h = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    expected = np.tanh(h @ weights["mean.w"] + weights["mean.b"])
    np.testing.assert_allclose(act(obs, told)[1], expected, atol=1e-5)


def test_the_point_moves_where_it_is_told():
    told = np.array([[0.6, -0.8]])
    assert np.array_equal(controllers.point(np.zeros((1, 2)), told), told)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("1.b"), "expected weights and biases of"),
        (lambda w: w.update({"1.w": w["1.w"][:, :3]}), "layer 1 is not finite float32"),
        (lambda w: w.update({"0.w": w["0.w"] * np.float32("nan")}), "layer 0 is not finite"),
        (lambda w: w.update({"mean.w": w["mean.w"].astype(float)}), "layer mean is not"),
        (lambda w: w.update({"0.b": w["0.b"].astype(float)}), "layer 0 is not"),
        (lambda w: w.update({"0.w": w["0.w"][:-1]}), "layer 0 is not"),  # sees one number less
        (lambda w: w.update({n: w[n][..., :7] for n in ("mean.w", "mean.b")}), "layer mean is not"),
    ],
)
def test_a_controller_that_cannot_be_is_refused(untrained, tmp_path, change, message):
    weights = controllers.read(untrained["ant"], "ant")
    change(weights)
    controllers.save(
        tmp_path / "bad", {n: np.ascontiguousarray(w) for n, w in weights.items()}, "ant"
    )
    with pytest.raises(InputError, match=f"bad: .*{message}"):
        controllers.read(tmp_path / "bad", "ant")


def test_a_controller_of_another_robot_is_refused(untrained):
    with pytest.raises(
        InputError, match=r"expected a controller of 'humanoid'.*\"robot\": \"ant\""
    ):
        controllers.read(untrained["ant"], "humanoid")


def tensor(kind, shape, end):
    facts = {"format": controllers.FORMAT, "robot": "ant"}
    entry = {"dtype": kind, "shape": shape, "data_offsets": [0, end]}
    return json.dumps({"__metadata__": facts, "0.w": entry}).encode()


@pytest.mark.parametrize(
    ("length", "head"),
    [
        (2**62, b"{}"),  # a header larger than memory
        (99_000_000, b"{}"),  # and one that is only not there
        (2**64 - 1, b"{}"),
        (None, b""),
        (None, b"[" * 100_000),
        (None, tensor("F32", [2**40, 2**20], 2**62)),  # more numbers than there are
        (None, tensor("F32", [2, 2], 16)),  # a little more
        (None, tensor("BF16", [2, 2], 8)),  # whole, but NumPy has no such numbers
        (None, tensor("F8_E4M3", [2, 4], 8)),
    ],
)
def test_a_file_made_to_harm_is_refused(tmp_path, length, head):
    path = tmp_path / "evil.safetensors"
    size = len(head) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + head + bytes(8))
    with pytest.raises(InputError, match=r"evil\.safetensors: "):
        controllers.read(path, "ant")


@pytest.mark.parametrize("content", [None, b"", b"walk!", b"\x80\x04N."])
def test_what_is_no_such_file_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match="file: not a readable controller"):
        controllers.read(tmp_path / "file", "ant")


# The one that is shipped


def test_the_shipped_controller_walks():
    """The ant makes its way in any direction, with the data's noise on its actions."""
    act = controllers.load(SHIPPED, "ant")
    speed, falls = walking.look(act, threads=1, ants=16, steps=120)
    assert speed >= 0.1
    assert falls <= 2
    still, _ = walking.look(lambda obs, _: np.zeros((len(obs), 8)), threads=1, ants=4, steps=40)
    assert abs(still) < 0.03


def test_the_card_is_that_of_the_file():
    card = json.loads(SHIPPED.with_suffix(".json").read_text())
    assert card["sha256"] == disk.sha256(SHIPPED)
    assert card["robot"] == "ant"
    assert card["metres_a_step"] >= 0.1
    hidden = card["lesson"]["hidden"]
    shapes = {name: w.shape for name, w in controllers.read(SHIPPED, "ant").items()}
    assert shapes["0.w"] == (29, hidden)
    assert shapes["mean.w"] == (hidden, 8)


def test_only_the_ant_has_one():
    assert controllers.shipped("ant") == SHIPPED
    assert controllers.shipped("humanoid") is None


@pytest.mark.slow
def test_the_wheel_has_it(tmp_path):
    build = (sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT))
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("vinerl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for path in (SHIPPED, SHIPPED.with_suffix(".json")):
            assert archive.read(f"vinerl/collect/assets/{path.name}") == path.read_bytes()
