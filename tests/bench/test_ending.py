"""The end of a run, in words."""

import pytest

from vinerl import disk
from vinerl.bench.run import ending
from vinerl.bench.run.runs import Run
from vinerl.train import metrics


@pytest.fixture
def told(tmp_path, capsys):
    """What is said of a run of two seeds that took an hour."""

    def tell(task, seen, status="learning", resumed=()):
        members = [{"seed": 0, "status": "learning"}, {"seed": 1, "status": status}]
        members[1] |= {} if status == "learning" else {"frozen_at": 7}
        times = {"started": "2026-01-01T00:00:00+00:00", "ended": "2026-01-01T01:00:00+00:00"}
        run = {"final_episodes": 50, "eval_episodes": 10}
        manifest = {"schema": 1, "task": task, "members": members, "run": run} | times
        manifest["resumed"] = [{"at": at} for at in resumed]
        disk.write_sealed(tmp_path / "manifest.json", manifest)
        metrics.write(tmp_path / "metrics.jsonl", 20, seen)
        ending.tell(Run(tmp_path))
        return capsys.readouterr().out.replace(str(tmp_path), "RUN").strip().splitlines()

    return tell


def test_a_run_with_a_task_ends_with_every_members_success(told):
    assert told("t", {"eval/success": [0.5, 1.0], "eval/success_noise0": [0.0, 1.0]}) == [
        "done in 1:00:00",
        "  seed 0                   success 0.50 (without noise 0.00)",
        "  seed 1                   success 1.00 (without noise 1.00)",
        "  mean success 0.750 at step 20, 2 x 50 episodes",
        "",
        "look at RUN/manifest.json",
        "or run  vinerl evaluate RUN --video",
    ]


def test_a_run_on_a_file_ends_with_the_policy_and_names_only_who_was_frozen(told):
    assert told(None, {"critic/loss": [1.0, 2.0]}, status="no gradient") == [
        "done in 1:00:00",
        "  seed 1                   frozen at step 7: no gradient",
        "",
        "look at RUN/manifest.json",
        'or call vinerl.load("RUN"): from observations to actions, in NumPy',
    ]


def test_of_a_resumed_run_only_what_came_since_is_told(told):
    """Not the night in which nobody worked on it."""
    resumed = ("2026-01-01T00:10:00+00:00", "2026-01-01T00:58:30+00:00")
    first, *_ = told(None, {"critic/loss": [1.0, 2.0]}, resumed=resumed)
    assert first == "done in 1:30 since it was resumed"
