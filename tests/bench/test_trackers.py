"""What is written besides metrics.jsonl, and when it is closed."""

import sys

import numpy as np
import pytest

from vinerl.bench.run import jobs, trackers
from vinerl.errors import InputError

METRICS = {
    "critic/q": np.float32([1.5, np.nan]),
    "grad_norm/step": np.float32([[0.25, 0.5], [1.0, np.inf]]),
    "rows": np.array([3, 4]),
}
FLAT = {"critic/q/0": 1.5, "rows/0": 3.0, "rows/1": 4.0}
FLAT |= {"grad_norm/step/0/0": 0.25, "grad_norm/step/0/1": 0.5, "grad_norm/step/1/0": 1.0}

STAND_IN = """
calls = []

class Run:
    def define_metric(self, name, **options):
        calls.append(("define_metric", name, options))

    def log(self, found):
        calls.append(("log", found))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        calls.append(("exit", kind))

def init(**options):
    calls.append(("init", options))
    return Run()
"""


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    """A module that answers for wandb and writes down what it is asked."""
    (tmp_path / "wandb.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    trackers.check(("wandb",))
    import wandb

    yield wandb
    del sys.modules["wandb"]


def test_every_finite_number_has_a_name_of_its_own():
    assert trackers.scalars(METRICS) == FLAT


def test_wandb_is_told_of_every_number_and_of_the_end(wandb, tmp_path):
    folder, manifest = tmp_path / "one", {"schema": 1}
    with trackers.opened(("wandb",), folder, manifest) as (track,):
        track(20, METRICS)
        track(10, {"eval/success": [0.5]})
    (_, how), *rest = wandb.calls
    assert how == {
        "project": "vinerl",
        "dir": folder,
        "name": "one",
        "config": manifest,
        "mode": "offline",
        "reinit": "create_new",
    }
    assert rest == [
        ("define_metric", "*", {"step_metric": "step"}),
        ("log", {"step": 20} | FLAT),
        ("log", {"step": 10, "eval/success/0": 0.5}),
        ("exit", None),
    ]


def test_wandb_sends_where_it_is_asked_to_and_learns_of_a_failure(wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(MemoryError), trackers.opened(("wandb",), tmp_path, {}):
        raise MemoryError
    assert wandb.calls[0][1]["mode"] == "online"
    assert wandb.calls[-1] == ("exit", MemoryError)


def test_tensorboard_has_every_number(tmp_path):
    with trackers.opened(("tensorboard",), tmp_path, {}) as (track,):
        track(20, METRICS)
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert all(name.encode() in file.read_bytes() for name in FLAT)


@pytest.mark.parametrize("there", [None, "a folder"])
def test_a_tracker_that_is_not_installed_is_refused_at_once(there, tmp_path, monkeypatch):
    """A folder called wandb, as wandb itself makes them, is no package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if there:
        (tmp_path / "wandb").mkdir()
    with pytest.raises(InputError, match=r"--log wandb needs .* pip install 'vinerl\[wandb\]'"):
        jobs.resolve(jobs.request("vine", {"data": "x.npz", "log": "wandb"}))
