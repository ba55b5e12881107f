"""`python -m benchmarks evaluate`, in an environment whose episodes have known lengths."""

import json

import pytest

from benchmarks import evaluate
from vinerl.train.evaluate import start_seeds


def test_episodes_and_steps_are_those_of_the_environment(capsys):
    """Two members in three starts each; an episode has three steps and its seed modulo three."""
    args = ["--task", "toy_envs:Echo", "--small", "--agent", "rebrac", "--seconds", "0.05"]
    args += ["--members", "2", "--episodes", "3", "--workers", "2"]
    evaluate.main([*args, "--steps", "100", "--step-ms", "20"])
    _, bare, found = map(json.loads, capsys.readouterr().out.splitlines())
    steps = 2 * sum(3 + seed % 3 for seed in start_seeds(0, 3))
    assert (found["members"], found["workers"], found["episodes"]) == (2, 2, 6)
    assert found["episodes_per_s"] * found["seconds"] == pytest.approx(6)
    assert found["steps_per_s"] * found["seconds"] == pytest.approx(steps)
    assert found["of_interval"] == pytest.approx(found["seconds"] / 2)
    assert found["of_bare"] == pytest.approx(found["steps_per_s"] / bare["steps_per_s"])


class Counted:
    """Ends after every fourth step; time passes in steps and nowhere else."""

    def __init__(self):
        self.now, self.steps, self.starts = 0.0, 0, []
        self.action_space = self

    def seed(self, seed):
        self.starts.append(seed)

    def sample(self):
        return 0

    def reset(self, *, seed):
        return 0, {}

    def step(self, action):
        self.now, self.steps = self.now + 0.01, self.steps + 1
        return 0, 0.0, False, self.steps % 4 == 0, {}


def test_the_bare_simulator_starts_again_at_the_end_of_an_episode(monkeypatch):
    env = Counted()
    monkeypatch.setattr(evaluate.time, "perf_counter", lambda: env.now)
    found = evaluate.bare(env, seconds=0.095)
    assert found["steps_per_s"] == pytest.approx(100)
    assert env.starts == [0, 4, 8]
