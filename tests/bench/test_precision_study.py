"""Published cells that differ in their precision alone: which these are, and what is told."""

import json
from pathlib import Path

import pytest

from vinerl import disk
from vinerl.bench.numbers import publishing, results
from vinerl.bench.plans import queue
from vinerl.bench.run.runs import Run
from vinerl.bench.studies import precision
from vinerl.errors import InputError

HERE = Path(__file__).parents[2] / "results"
RUN = HERE / "antmaze-large-navigate-task1" / "vine"
STEPS = (100, 200, 400)


def publish(folder, how, seeds, success, norms=(1.0, 2.0, 3.0), steps=STEPS, **config):
    """A run whose every seed has these numbers; of success, a list for each seed."""
    run = folder / f"run-{how}-{len(list(folder.glob('run-*')))}"
    run.mkdir(parents=True)
    manifest = json.loads((RUN / "manifest.json").read_text())
    manifest["agent"]["config"] |= {"precision": how} | config
    manifest["run"] |= {"steps": steps[-1], "seeds": list(seeds)}
    manifest["members"] = [{"seed": seed, "status": "learning"} for seed in seeds]
    disk.write_sealed(run / "manifest.json", manifest | {"ended": "2026-01-01T00:00:00+00:00"})
    every = lambda value: [value] * len(seeds)
    lines = [
        {"step": step, "eval/success": [of_seed[i] for of_seed in success]}
        | {"grad_norm/actor_max": every(norms[i]), "actor/estimate_max": every(0.5)}
        for i, step in enumerate(steps)
    ]
    lines[-1]["eval/success_noise0"] = every(0.0)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    publishing.publish(Run(run), folder)


def told(folder, name):
    """The cells of a row of the table."""
    rows = precision.markdown(precision.compared(folder)).splitlines()
    (row,) = (row for row in rows if row.startswith(f"| {name} |"))
    return [cell.strip() for cell in row.split("|")[2:-1]]


def test_areas_are_compared_over_the_seeds_that_both_have(tmp_path):
    """A curve of 0, .5, 1 at 100, 200, 400 has 25 + 150 below it over 300 steps: .583.

    On seeds 1 and 2, bfloat16 is .1 lower throughout, whatever seeds 0 and 3 did.
    """
    rising, lower = [0.0, 0.5, 1.0], [-0.1, 0.4, 0.9]
    publish(tmp_path, "full-float32", (0, 1, 2), [[1.0] * 3, rising, [0.3] * 3])
    publish(tmp_path, "bfloat16", (1, 2, 3), [lower, [0.2] * 3, [0.9] * 3])
    assert told(tmp_path, "full-float32")[0] == told(tmp_path, "bfloat16")[0] == "2"
    assert told(tmp_path, "full-float32")[3] == f"{(7 / 12 + 0.3) / 2:.3f} [0.300, 0.583]"
    assert told(tmp_path, "full-float32")[4] == "–"
    assert told(tmp_path, "bfloat16")[4] == "-0.100 [-0.100, -0.100]"


def test_only_steps_that_all_were_evaluated_at_are_compared(tmp_path):
    """At 100 and 400 both have 0 and 1; what one of them had in between does not count."""
    publish(tmp_path, "float32", (0,), [[0.0, 1.0, 1.0]])
    publish(tmp_path, "bfloat16", (0,), [[0.0, 0.0, 1.0]], steps=(100, 300, 400))
    assert told(tmp_path, "bfloat16")[3:] == ["0.500 [0.500, 0.500]", "+0.000 [+0.000, +0.000]"]


def test_the_largest_of_all_steps_is_told_and_what_was_not_finite(tmp_path):
    publish(tmp_path, "float32", (0, 1), [[0.0] * 3] * 2, norms=(1.0, 12345.0, 3.0))
    publish(tmp_path, "bfloat16", (0, 1), [[0.0] * 3] * 2, norms=(1.0, None, 3.0))
    assert told(tmp_path, "float32")[:3] == ["2", "1.23e+04", "0.5"]
    assert told(tmp_path, "bfloat16")[:3] == ["2", "not finite", "0.5"]


def test_what_differs_in_more_than_its_precision_is_not_compared(tmp_path):
    publish(tmp_path, "float32", (0,), [[0.0] * 3])
    publish(tmp_path, "bfloat16", (0,), [[0.0] * 3], alpha=3.0)
    assert precision.compared(tmp_path) == []
    with pytest.raises(InputError, match="nothing in more than one precision; vinerl reproduce"):
        precision.reproduce(tmp_path, tmp_path / "out")


def test_seeds_without_a_step_in_common_are_passed_over(tmp_path):
    publish(tmp_path, "float32", (0, 1), [[0.0] * 3] * 2)
    publish(tmp_path, "bfloat16", (0, 1), [[0.0] * 3] * 2)
    for seed in results.read(tmp_path):
        facts = disk.read_sealed(seed.path, results.SCHEMA)
        facts |= {"final": None, "curve": {"step": [100 + seed.seed], "success": [0.0]}}
        disk.write_sealed(seed.path, facts)
    assert precision.compared(tmp_path) == []


def test_the_study_is_written_and_drawn(tmp_path):
    for how in ("bfloat16", "full-float32", "float32"):
        publish(tmp_path, how, (0, 1), [[0.0, 0.5, 1.0]] * 2)
    assert [*precision.compared(tmp_path)[0].rows] == ["full-float32", "float32", "bfloat16"]
    assert precision.cost(tmp_path).startswith("nothing is trained: 3 published cells")
    table, picture = precision.reproduce(tmp_path, tmp_path / "out")
    assert table.read_text().count("-float32 |") == 1
    assert picture.stat().st_size > 10_000


def test_the_queue_has_runs_that_differ_in_their_precision_alone():
    entries = [e for e in queue.read(HERE / "queue.toml") if e.group.startswith("precision-")]
    found = {(e.group, e.own["precision"], e.steps, e.seeds) for e in entries}
    assert found == {
        ("precision-spikes", "full-float32", 40_000, (0, 1)),
        ("precision-spikes", "bfloat16", 40_000, (0, 1)),
        ("precision-curves", "float32", 150_000, tuple(range(2, 10))),
        ("precision-curves", "bfloat16", 150_000, tuple(range(2, 10))),
    }
    assert all(set(e.own) == {"precision"} and not e.common for e in entries)
