"""Runs in words, from manifests written by hand."""

import copy
import json
import re

import pytest

from vinerl import disk
from vinerl.bench.pictures import show
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError
from vinerl.train import metrics

MANIFEST = {
    "schema": 1,
    "agent": {"name": "vine", "config": {"alpha": 10.0, "actor_hidden": [512] * 4}},
    "task": "antmaze-large-navigate-singletask-task1-v0",
    "run": {"steps": 20},
    "members": [{"seed": 0, "status": "learning"}, {"seed": 1, "status": "learning"}],
    "data": {"path": "x.npz", "origin": "official", "sha256": "a" * 64, "card": {}},
    "versions": {"mujoco": "3.2.7"},
    "commit": "c0ffee1234567-dirty",
    "hardware": {"platform": "here"},
    "started": "2026-01-01T00:00:00+00:00",
    "ended": "2026-01-01T01:00:00+00:00",
}


@pytest.fixture
def write(tmp_path):
    """A run with some entries of the manifest changed, and its successes."""

    def one(name, success=(), **changes):
        manifest = copy.deepcopy(MANIFEST)
        for path, value in changes.items():
            *parents, last = path.split("__")
            inner = manifest
            for parent in parents:
                inner = inner[parent]
            inner[last] = value
        (tmp_path / name).mkdir(parents=True)
        disk.write_sealed(tmp_path / name / "manifest.json", manifest)
        for step, values in enumerate(success):
            metrics.write(tmp_path / name / "metrics.jsonl", 10 * (step + 1), values)
        return Run(tmp_path / name)

    return one


def scores(*values):
    return [{"eval/success": value} for value in values]


def test_a_list_has_a_line_a_run_with_its_last_success(write, tmp_path):
    write("a", scores([0.0, 0.0], [0.5, 1.0]))
    write("b", agent__name="/home/me/my_agent.py:MINE")
    head, a, b = show.listing(tmp_path).splitlines()
    assert head.split() == ["run", "agent", "members", "step", "success", "remarks"]
    assert a.split()[:4] == [str(tmp_path / "a"), "vine", "2", "20"]
    assert a.endswith("0.750 [0.500, 1.000] at 20")
    assert b.split() == [str(tmp_path / "b"), "my_agent.py:MINE", "2", "0", "-"]


def test_a_folder_without_runs_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no runs below"):
        show.listing(tmp_path)


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({}, ""),
        ({"ended": None}, "not finished"),
        ({"data__origin": "regenerated"}, "regenerated data"),
        ({"members": [{"seed": 0, "status": "not finite", "frozen_at": 3}]}, "1 frozen"),
        (
            {"data__card": {"versions": {"mujoco": "3.6.0"}}},
            "data of MuJoCo 3.6.0, run under 3.2.7",
        ),
        (
            {
                "data__card": {"versions": {"mujoco": "3.2.7"}},
                "resumed": [{"at": "later"}, {"at": "then", "versions": {"mujoco": "3.3.0"}}],
            },
            "data of MuJoCo 3.2.7, run under 3.2.7 and 3.3.0",
        ),
        (
            {
                "agent_sha256": "a",
                "resumed": [{"at": "later"}, {"at": "then", "agent_sha256": "b"}],
            },
            "its agent's file was changed on the way",
        ),
    ],
)
def test_remarks_say_what_a_reader_of_the_number_must_know(write, changes, remark):
    assert show.remarks(write("a", **changes)) == remark


def test_a_comparison_shows_scores_and_only_what_differs(write):
    seen = [{"eval/success": [0.0, 0.5]}]
    seen += [{"eval/success": [0.5, 1.0], "eval/success_noise0": [1.0, 0.0]}]
    changes = {"agent__config__alpha": 3.0, "data__sha256": "b" * 64, "ended": "later"}
    runs = [write("a", seen), write("b", **changes)]
    lines = show.comparison(runs).splitlines()
    seals = [json.loads((r.path / "manifest.json").read_text())["seal"] for r in runs]
    head, *rows = (re.split(r"\s{2,}", line) for line in lines)
    assert head == ["", "a", "b"]
    assert {name: cells for name, *cells in rows} == {
        "success": ["0.750 [0.500, 1.000] at 20", "-"],
        "remarks": [],
        "without noise": ["0.500 [0.000, 1.000] at 20", "-"],
        "area under the curve": ["0.500 [0.250, 0.750] to 20", "-"],
        "data": ["aaaaaaaaaaaa official", "bbbbbbbbbbbb official"],
        "MuJoCo": ["3.2.7", "3.2.7"],
        "commit": ["c0ffee1-dirty", "c0ffee1-dirty"],
        "manifest": [seal[:12] for seal in seals],
        "agent.config.alpha": ["10.0", "3.0"],
        "data.sha256": ["aaaaaaaaaaaa..aaaaaaaaaaaa", "bbbbbbbbbbbb..bbbbbbbbbbbb"],
    }


def test_a_comparison_names_frozen_members_and_folders_of_one_name(write):
    members = [{"seed": 0, "status": "learning"}]
    members += [{"seed": 1, "status": "no gradient", "frozen_at": 300}]
    table = show.comparison([write("x/vine", members=members), write("y/vine")])
    head, *rows = (re.split(r"\s{2,}", line) for line in table.splitlines())
    assert head == ["", "x/vine", "y/vine"]
    assert ["frozen", "seed 1 at 300: no gradient", "-"] in rows


def test_the_foot_of_a_picture_says_which_runs_it_shows_and_what_they_are_made_of(write, tmp_path):
    members = [{"seed": 7, "status": "not finite", "frozen_at": 10}]
    changes = {"members": members, "data__origin": "regenerated"}
    changes |= {"data__card": {"versions": {"mujoco": "3.6.0"}}, "commit": "unknown"}
    runs = [write("a", scores([0, 0], [0, 0])), write("b", scores([1, 1], [1, 1]))]
    runs.append(write("c", scores([1]), **changes))
    here = tmp_path.name
    assert show.footnotes(runs) == [
        f"{here}/a, {here}/b: official data, MuJoCo 3.2.7, 20 steps, seeds 0 1, "
        "commit c0ffee1-dirty",
        f"{here}/c: regenerated data, MuJoCo 3.2.7 (data 3.6.0), 10 of 20 steps, seeds 7, "
        "commit unknown, frozen: seed 7 at 10: not finite",
    ]


def test_settings_of_a_stack_are_not_averaged(write):
    members = [{"seed": s, "alpha": a, "status": "learning"} for s in (0, 1) for a in (1.0, 10.0)]
    run = write("a", scores([0.0, 0.5, 1.0, 0.5]), members=members)
    assert show.score(run) == "alpha 1 0.500 [0.000, 1.000]; alpha 10 0.500 [0.500, 0.500] at 10"


def test_one_damaged_run_does_not_hide_the_others(write, tmp_path):
    write("good", scores([1.0, 1.0]))
    with (write("torn", scores([0.0, 0.0])).path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2')
    (write("bad").path / "manifest.json").write_text("{")
    said = show.listing(tmp_path)
    assert re.search(r"good +vine +2 +10 +1.000", said)
    assert re.search(r"torn +vine +2 +10 +0.000", said), "a line that is being written is no damage"
    assert "manifest.json: cannot be read" in said


def test_an_entry_that_one_run_lacks_is_shown(write):
    changes = {"agent__config__warmth": 1.0}
    table = show.comparison([write("a"), write("b", **changes)])
    assert ["agent.config.warmth", "-", "1.0"] in [line.split() for line in table.splitlines()]


def test_columns_stand_below_each_other():
    assert show.table([("a", "bb"), ("ccc", "d")]) == "a    bb\nccc  d"


def test_runs_without_an_environment_are_compared_by_what_was_logged(write):
    lines = [{"critic/q": [-3.0, -1.0], "actor/bc": [0.25, 0.75]}]
    text = show.comparison([write("a", lines), write("b", [{"critic/q": [5.0, 5.0]}])])
    assert re.search(r"mean Q +-2.000 \[-3.000, -1.000\] at 10 +5.000 \[5.000, 5.000\] at 10", text)
    assert re.search(r"distance to the data +0.500 \[0.250, 0.750\] at 10 +-\n", text)
    assert "without noise" not in text
    assert "area under" not in text
    evaluated = show.comparison([write("c", scores([0.5, 1.0])), write("d", scores([0.5, 1.0]))])
    assert "mean Q" not in evaluated
