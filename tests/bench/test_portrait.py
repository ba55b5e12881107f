"""A file's picture: drawn for every kind of file, from numbers that are right."""

import json
import re

import numpy as np
import pytest

from vinerl.bench.pictures import plots, portrait
from vinerl.bench.pictures.plots import plt
from vinerl.envs import ogbench
from vinerl.errors import InputError

ROWS = 40
DRAW = np.random.default_rng(0)


def arrays(**changes):
    """Four episodes of ten rows, nine transitions each."""
    made = {
        "observations": DRAW.normal(size=(ROWS, 3)).astype(np.float32),
        "actions": DRAW.uniform(-1, 1, (ROWS, 2)).astype(np.float32),
        "terminals": np.arange(ROWS) % 10 == 9,
        "rewards": np.repeat(np.arange(4.0), 10).astype(np.float32),
    }
    return {name: x for name, x in (made | changes).items() if x is not None}


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """The texts and the axes of a picture, by the first word of their titles."""
    kept = []
    monkeypatch.setattr(plt, "close", kept.append)
    monkeypatch.setitem(plots.STYLE, "figure.dpi", 40)

    def of(name="own", **changes):
        path, out = tmp_path / f"{name}.npz", tmp_path / "picture.png"
        np.savez(path, **arrays(**changes))
        assert portrait.draw(path, out) == out
        assert out.read_bytes().startswith(b"\x89PNG")
        axes = {re.sub(r"\W.*", "", a.get_title(loc="left")): a for a in kept[-1].axes}
        return axes, kept[-1].get_supxlabel()

    yield of
    monkeypatch.undo()
    for figure in kept:
        plt.close(figure)


def heights(axes):
    """What a histogram shows, as {middle of a bin: height}."""
    bars = [(b.get_x() + b.get_width() / 2, b.get_height()) for b in axes.patches]
    return {round(float(x), 2): y for x, y in bars if y}


def test_the_facts_and_the_origin_on_the_card(drawn, tmp_path):
    _, facts = drawn()
    assert facts == "4 episodes  ·  36 transitions  ·  2 action dimensions"
    (tmp_path / "own.json").write_text(json.dumps({"origin": "regenerated"}))
    for name in ("own", "own-val"):
        assert drawn(name)[1].endswith("  ·  regenerated")


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_card_that_is_none(drawn, tmp_path, content):
    (tmp_path / "own.json").write_text(content)
    with pytest.raises(InputError, match=r"own\.json: not the card of a dataset"):
        drawn()


def test_the_returns_of_the_episodes(drawn):
    """The reward is the episode's number, and the last row of ten is no transition."""
    axes, _ = drawn()
    assert axes["episodes"].get_xlabel().startswith("return")
    bars = heights(axes["episodes"])
    assert sum(bars.values()) == 4
    assert min(bars) == pytest.approx(0, abs=5)
    assert max(bars) == pytest.approx(27, abs=5)


def test_lengths_where_there_are_no_rewards(drawn):
    axes, _ = drawn(rewards=None)
    assert axes["episodes"].get_xlabel() == "length in transitions"
    assert heights(axes["episodes"]) == {9.0: 4}


def test_rows_that_are_not_finite_are_left_out_and_counted(drawn):
    obs = arrays()["observations"]
    obs[[0, 15]] = np.nan
    _, facts = drawn(observations=obs)
    assert facts.startswith("5 episodes  ·  33 transitions")
    assert facts.endswith("rows left out as NaN or infinite: 2")


def test_actions_at_an_edge_have_their_share(drawn):
    actions = DRAW.uniform(-0.9, 0.9, (ROWS, 2))
    actions[:20, 0] = 1  # 18 of 36 transitions
    axes, _ = drawn(actions=actions)
    assert [text.get_text() for text in axes["actions"].texts] == ["50%"]
    assert axes["actions"].get_xlim()[1] > 1


def test_actions_outside_the_box_can_be_seen(drawn):
    axes, _ = drawn(actions=DRAW.uniform(-5, 3, (ROWS, 2)))
    low, high = axes["actions"].get_xlim()
    assert low < -4
    assert high > 2


def test_a_maze_lies_below_its_data(drawn):
    """Rows in the middle of free cells, by OGBench's own rule, are drawn in those cells."""
    inner = ogbench.make("pointmaze-large-v0").unwrapped
    free = np.argwhere(inner.maze_map == 0)[:ROWS]
    obs = np.resize([inner.ij_to_xy(cell) for cell in free], (ROWS, 2))
    axes, _ = drawn("pointmaze-large-navigate-v0", observations=obs)
    assert "first two numbers" in axes["coverage"].get_title(loc="left")
    (image,) = axes["coverage"].images
    counts = np.ma.filled(axes["coverage"].collections[0].get_array(), 0)
    assert counts.sum() == ROWS
    assert {tuple(cell) for cell in np.argwhere(counts) // 8} == {tuple(cell) for cell in free}
    x, y = inner.ij_to_xy((0, 0))
    rows, columns = inner.maze_map.shape
    assert image.get_extent() == [x - 2, x - 2 + 4 * columns, y - 2, y - 2 + 4 * rows]
    np.testing.assert_array_equal(image.get_array(), inner.maze_map)


def test_a_maze_has_its_map_and_nothing_else_has_one(tmp_path):
    maze = portrait.maze_of(tmp_path / "antmaze-large-explore-v0-val.npz")
    assert maze == ogbench.describe(ogbench.make("antmaze-large-v0"))["maze"]
    for name in ("cube-single-play-v0", "antmaze-of-mine", "own"):
        assert portrait.maze_of(tmp_path / f"{name}.npz") is None


def test_other_data_are_shown_by_principal_components(drawn):
    axes, _ = drawn()
    assert "principal components" in axes["coverage"].get_title(loc="left")
    assert axes["coverage"].collections[0].get_array().sum() == ROWS


def test_components_of_a_known_ellipse():
    """Two columns that agree in all rows and a third of its own: variances 2, 1 and 0 of 3."""
    a, b = np.repeat([1.0, -1.0], 50), np.tile([1.0, -1.0], 50)
    points, shares = portrait.components(np.stack([3 * a, a + 7, b, np.ones(100)], axis=1))
    np.testing.assert_allclose(shares, [2 / 3, 1 / 3])
    np.testing.assert_allclose(np.abs(points), np.tile([2**0.5, 1], (100, 1)))
    assert abs(points[:, 0] @ a) == pytest.approx(100 * 2**0.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"observations": np.arange(ROWS, dtype=np.float32)},
        {"observations": np.ones((ROWS, 2), np.float32)},
        {"observations": DRAW.integers(0, 256, (ROWS, 8, 8, 3)).astype(np.uint8)},
        {"observations": None, "observations/a": np.eye(ROWS), "observations/b": np.ones(ROWS)},
        {"actions": np.zeros((ROWS, 30))},
        {"terminals": np.zeros(ROWS)},
    ],
    ids=["one number", "a constant", "images", "a tree", "many actions", "no end"],
)
def test_whatever_has_the_right_shapes_is_drawn(drawn, changes):
    drawn(**changes)


def test_nothing_to_draw(drawn):
    with pytest.raises(InputError, match="no transition in it is finite"):
        drawn(observations=np.full((ROWS, 3), np.nan))
    with pytest.raises(InputError, match="expected numbers"):
        drawn(actions=np.full((ROWS, 2), "x"))


def test_the_picture_is_not_written_over_the_data(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, **arrays())
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"--out .*own.npz: the picture is a PNG"):
        portrait.draw(path, path)
    assert path.read_bytes() == before
