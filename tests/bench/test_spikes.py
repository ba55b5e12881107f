"""What the study of spikes says of logs made by hand."""

import pytest

from cells import publish
from vinerl.bench.plans import queue
from vinerl.bench.studies import ablation, spikes
from vinerl.errors import InputError

PUZZLE = "puzzle-3x3-play-singletask-task4-v0"
QUEUE = f"""
[spikes-small]
tasks = ["{PUZZLE}"]
seeds = [0, 1]
steps = 1000
run = {{ eval_every = 0 }}
grid = [
  {{ sampler = "vine", regulariser = "endpoint" }},
  {{ sampler = "euler", regulariser = "endpoint" }},
]
"""
STEPS = [50, 100, 200, 300, 400, 500]  # the first two are the beginning


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "queue.toml").write_text(QUEUE)
    return tmp_path


def add(folder, sampler, *norms, estimates=(1.0,) * 6):
    for seed, of_seed in enumerate(norms):
        told = {
            "grad_norm/actor_max": {"step": STEPS, "value": list(of_seed)},
            "actor/estimate_max": {"step": STEPS, "value": list(estimates)},
        }
        fields = {"sampler": sampler, "regulariser": "endpoint"}
        publish(folder, "vine", PUZZLE, 1000, {seed: 0.0}, None, fields, told)


def rows(folder):
    lines = spikes.markdown(spikes.blocks(folder)).splitlines()
    return [
        [cell.strip() for cell in line.split("|")[4:-1]]
        for line in lines
        if line.startswith(("| vine", "| euler"))
    ]


def test_a_spike_is_ten_times_the_seeds_own_median_and_the_beginning_does_not_count(folder):
    """Of eight lines after the beginning one leaps: 1 / 8 of a line is 1.25 in 1,000 steps."""
    add(
        folder,
        "vine",
        [9e9, 9e9, 1, 1, 1, 11],
        [9e9, 9e9, 1, 1, 10, 1],
        estimates=[9, 9, 1, 2, 3, 4],
    )
    row, missing = rows(folder)
    assert row == ["2", "1", "1.25", "1", "11", "4", "–", "–"]
    assert missing == ["–"] * 8


def test_largest_norms_are_compared_seed_by_seed_as_ratios(folder):
    """100 to 1000 and 1 to 1000: the geometric mean of 0.1 and 0.001 is 0.01."""
    add(folder, "vine", [1.0] * 5 + [1000.0], [1.0] * 5 + [1000.0])
    add(folder, "euler", [1.0] * 5 + [100.0], [1.0] * 6)
    assert rows(folder)[1][-2:] == ["0.01 [0.001, 0.1]", "0.5"]


def test_what_was_not_finite_is_the_largest(folder):
    add(folder, "vine", [1.0] * 5 + [None], [1.0] * 6)
    assert rows(folder)[0][:2] + rows(folder)[0][4:5] == ["2", "1", "inf"]


def test_the_study_is_written_and_drawn_and_refused_where_there_is_nothing(folder):
    with pytest.raises(InputError, match="vinerl reproduce spikes-small"):
        spikes.reproduce(folder, folder / "out")
    add(folder, "vine", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert spikes.cost(folder).startswith("nothing is trained: 1 published cells")
    page, picture = spikes.reproduce(folder, folder / "out")
    assert "with a spike" in page.read_text()
    assert picture.stat().st_size > 10_000


def test_runs_that_are_not_evaluated_on_the_way_are_not_compared_by_success(folder):
    assert ablation.blocks(folder) == []
    entries = queue.read(folder / "queue.toml")
    assert [spikes.about_spikes(entry) for entry in entries] == [True, True]
    assert not any(map(ablation.about_success, entries))


def test_seeds_that_were_logged_at_different_steps_are_refused_by_name(folder):
    add(folder, "vine", [1.0] * 6)
    told = {
        name: {"step": STEPS[1:], "value": [1.0] * 5}
        for name in ("grad_norm/actor_max", "actor/estimate_max")
    }
    fields = {"sampler": "vine", "regulariser": "endpoint"}
    publish(folder, "vine", PUZZLE, 1000, {1: 0.0}, None, fields, told)
    with pytest.raises(InputError, match=r"vine-.*logged at different steps"):
        rows(folder)
