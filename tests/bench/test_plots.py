"""Pictures of runs written by hand."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from vinerl import disk
from vinerl.bench.pictures import plots
from vinerl.bench.run import runs
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError
from vinerl.train import metrics

MANIFEST = {
    "schema": 1,
    "agent": {"name": "vine", "config": {"alpha": 10.0}},
    "task": "pointmaze-medium-navigate-singletask-task1-v0",
    "run": {"steps": 20},
    "members": [
        {"seed": 0, "status": "learning"},
        {"seed": 1, "status": "no gradient", "frozen_at": 10},
    ],
    "data": {"path": "x.npz", "origin": "regenerated", "sha256": "a" * 64, "card": {}},
    "versions": {"mujoco": "3.2.7"},
    "commit": "c0ffee1234567",
    "ended": None,
}
MAZE = {"map": [[1, 1, 1], [1, 0, 1], [1, 1, 1]], "unit": 4.0, "offset": [4.0, 4.0]}
MAZE |= {"goal": [0.5, 0.5], "tolerance": 0.5}
FACTS = "regenerated data, MuJoCo 3.2.7, 20 steps, seeds 0 1, commit c0ffee1, frozen: seed 1 at 10"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setitem(plots.STYLE, "figure.dpi", 50)
    path = tmp_path / "one"
    path.mkdir()
    disk.write_sealed(path / "manifest.json", MANIFEST)
    for step, success in ((10, [0.0, 0.5]), (20, [0.5, 1.0])):
        metrics.write(path / "metrics.jsonl", step, {"eval/success": success})
    episode = {"success": 1.0, "path": [[0.0, 0.0], [0.5, 0.5]], "rewards": []}
    final = {"environment": {"maze": MAZE}, "episodes": {"eval/success": [[episode], [episode]]}}
    (path / "final.json").write_text(json.dumps(final))
    return Run(path)


@pytest.fixture
def figures(monkeypatch):
    """Every figure that is saved, its words as they stand in it."""
    found, close = [], plt.close

    def keep(figure):
        figure.draw_without_rendering()
        found.append(figure)
        close(figure)

    monkeypatch.setattr(plots.plt, "close", keep)
    return found


def recorded(path):
    with Image.open(path) as image:
        image.load()
        return json.loads(image.info["Description"])


def boxes(figure):
    """The foot line, and everything else, in pixels."""
    *words, foot = figure.texts
    rest = [text.get_window_extent() for text in words]
    return foot.get_window_extent(), rest + [a.get_tightbbox() for a in figure.axes if a.axison]


def test_every_picture_has_its_origin_at_its_foot_and_in_the_file(run, figures, tmp_path):
    seal = json.loads((run.path / "manifest.json").read_text())["seal"]
    name = f"{tmp_path.name}/one"
    made = [*runs.draw(run), plots.compare([run, run], tmp_path / "both.png")]
    assert [path.name for path in made] == ["curve.png", "paths.png", "both.png"]
    for path, figure, count in zip(made, figures, (1, 1, 2), strict=True):
        said = figure.texts[-1].get_text().replace("\n", " ")
        assert said.startswith(f"{name}: {FACTS}")
        record = recorded(path)
        assert record == [{"run": name, "manifest": seal, "data": "a" * 64}] * count
        foot, rest = boxes(figure)
        assert foot.x0 >= 0
        assert foot.x1 <= figure.bbox.width
        assert foot.y0 >= 0
        assert all(foot.y1 <= box.y0 for box in rest), "nothing is drawn over it"


def test_a_picture_at_the_end_of_a_run_has_the_seal_its_manifest_is_going_to_have(run):
    ended = run.manifest | {"ended": "now"}
    curve, *_ = runs.draw(run, ended)
    disk.write_sealed(run.path / "manifest.json", ended)
    seal = json.loads((run.path / "manifest.json").read_text())["seal"]
    assert recorded(curve)[0]["manifest"] == seal


def test_a_line_of_a_comparison_names_its_run_and_counts_frozen_members(run, figures, tmp_path):
    other = tmp_path / "two"
    other.mkdir()
    members = [{"seed": s, "status": "learning"} for s in (0, 1)]
    disk.write_sealed(other / "manifest.json", MANIFEST | {"members": members})
    (other / "metrics.jsonl").write_bytes((run.path / "metrics.jsonl").read_bytes())
    plots.compare([run, Run(other)], tmp_path / "both.png")
    labels = [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()]
    assert labels == ["one (1 of 2 frozen)", "two"]


def test_what_lies_far_out_makes_a_scale_logarithmic(run, figures):
    """Q is negative and its last value the largest: it keeps a linear scale."""
    told = {"actor/bc": [[0.1, 0.1], [0.1, 1e8]], "actor/spread": [[0.1, 0.1], [0.2, 0.9]]}
    told["critic/q"] = [[-1.0, -1.0], [-1.0, -1e8]]
    for i, step in enumerate((30, 40)):
        metrics.write(run.path / "metrics.jsonl", step, {n: v[i] for n, v in told.items()})
    plots.draw(run, run.manifest)
    scales = {a.get_title(loc="left"): a.get_yscale() for a in figures[0].axes if a.axison}
    assert scales["squared distance to the data's action"] == "log"
    assert {scales[name] for name in ("spread of actions in one state", "mean Q")} == {"linear"}


def test_what_is_no_number_throughout_leaves_a_scale_linear(run, figures):
    """With the line that says where a run went on online, which a log scale alone cannot draw."""
    nothing = [[float("nan")] * 2, [float("nan")] * 2]
    told = {"grad_norm/actor_max": nothing, "actor/bc": [[0.1, 0.1], [0.1, 1e8]]}
    for i, step in enumerate((30, 40)):
        metrics.write(run.path / "metrics.jsonl", step, {n: v[i] for n, v in told.items()})
    online = run.manifest | {"run": {"steps": 20, "online_steps": 20}}
    disk.write_sealed(run.path / "manifest.json", online)
    plots.draw(run, run.manifest)
    scales = {a.get_title(loc="left"): a.get_yscale() for a in figures[0].axes if a.axison}
    assert scales["largest actor gradient norm since the last log"] == "linear"
    assert scales["squared distance to the data's action"] == "log"


def test_a_path_that_ends_in_no_number_is_drawn_up_to_there(run, figures):
    final = json.loads((run.path / "final.json").read_text())
    final["episodes"]["eval/success"][0][0]["path"].append([None, None])
    (run.path / "final.json").write_text(json.dumps(final))
    plots.draw(run, run.manifest)
    path = figures[-1].axes[0].lines[0]
    np.testing.assert_array_equal(path.get_xdata(), [0, 0.5, np.nan])


@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_other_formats_carry_the_seal_too(run, tmp_path, suffix):
    path = plots.compare([run, run], tmp_path / f"both.{suffix}")
    assert path is not None
    assert runs.seal(run.manifest)[:20].encode() in path.read_bytes()


def test_a_heading_of_several_tasks_stays_inside_and_above_the_plots(run, figures, tmp_path):
    tasks = [f"humanoidmaze-medium-navigate-singletask-task{n}-v0" for n in (1, 2, 3)]
    several = []
    for task in tasks:
        (folder := tmp_path / task).mkdir()
        disk.write_sealed(folder / "manifest.json", MANIFEST | {"task": task})
        (folder / "metrics.jsonl").write_bytes((run.path / "metrics.jsonl").read_bytes())
        several.append(Run(folder))
    plots.compare(several, tmp_path / "all.png")
    figure, head = figures[0], figures[0].texts[0]
    said = head.get_text().replace("\n", " ")
    assert said == f"{', '.join(tasks)}; mean and 95% bootstrap interval over seeds"
    box = head.get_window_extent()
    assert box.x1 <= figure.bbox.width
    assert box.y1 <= figure.bbox.height
    assert all(axes.get_tightbbox().y1 <= box.y0 for axes in figure.axes)


def test_the_names_of_many_runs_stand_below_the_plots_and_above_the_foot(run, figures, tmp_path):
    plots.compare([run] * 7, tmp_path / "all.png")
    figure = figures[0]
    legend = figure.axes[-2].get_legend()
    assert len(legend.get_texts()) == 7
    assert figure.axes[0].get_legend() is None
    box, foot = legend.get_window_extent(), figure.texts[1].get_window_extent()
    plotted = [axes for axes in figure.axes if axes.lines]
    assert box.y0 >= foot.y1 - 1
    assert all(axes.get_tightbbox().y0 >= box.y1 - 1 for axes in plotted)
    assert box.x1 <= figure.bbox.width


@pytest.mark.parametrize(
    ("count", "settings"), [(2, 3), (4, 3), (1, 12), (12, 1), (2, 9), (3, 9), (6, 6)]
)
def test_no_two_lines_look_the_same(count, settings):
    every = ((run, setting) for run in range(count) for setting in range(settings))
    looks = {str(plots.look(*which, count, settings)) for which in every}
    assert len(looks) == count * settings


def test_colours_tell_apart_what_there_is_more_of():
    colour = lambda *of: plots.look(*of)[0]
    stroke = lambda *of: plots.look(*of)[1]
    assert colour(0, 2, 4, 3) == colour(0, 0, 4, 3) != colour(1, 0, 4, 3)
    assert stroke(0, 2, 4, 3) == stroke(3, 2, 4, 3) != stroke(0, 0, 4, 3)
    assert colour(0, 2, 2, 3) == colour(1, 2, 2, 3) != colour(0, 0, 2, 3)
    assert stroke(0, 2, 2, 3) == stroke(0, 0, 2, 3) != stroke(1, 2, 2, 3)


def test_long_names_of_many_lines_stay_inside(run, figures, tmp_path):
    """Four runs of three settings; each setting has one seed."""
    members = [{"seed": 0, "alpha": a, "status": "learning"} for a in (1.0, 2.0, 1000.0)]
    several = []
    for number in range(4):
        (folder := tmp_path / f"vine-euler-endpoint-horizon-5-cut-off-{number}").mkdir()
        disk.write_sealed(folder / "manifest.json", MANIFEST | {"members": members})
        metrics.write(folder / "metrics.jsonl", 10, {"eval/success": [0.0, 0.5, 1.0]})
        several.append(Run(folder))
    plots.compare(several, tmp_path / "all.png")
    legend = figures[0].axes[-2].get_legend()
    assert len(legend.get_texts()) == 12
    assert legend.get_window_extent().x1 <= figures[0].bbox.width


def test_a_line_is_named_also_where_only_another_has_been_evaluated(run, figures, tmp_path):
    other = tmp_path / "two"
    other.mkdir()
    disk.write_sealed(other / "manifest.json", MANIFEST)
    metrics.write(other / "metrics.jsonl", 10, {"critic/q": [1.0, 2.0]})
    metrics.write(run.path / "metrics.jsonl", 30, {"critic/q": [1.0, 2.0]})
    plots.compare([run, Run(other)], tmp_path / "both.png")
    labels = [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()]
    assert [label.partition(" ")[0] for label in labels] == ["one", "two"]


@pytest.mark.parametrize("name", ["data.npz", "picture", "a.foo"])
def test_no_picture_is_written_over_what_is_none(run, tmp_path, name):
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(InputError, match="is no picture by its name: give one"):
        plots.compare([run, run], tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"mine"
