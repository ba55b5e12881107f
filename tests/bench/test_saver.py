"""Checkpoints of a run: written beside the training, restored only when they are whole."""

import errno
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from vinerl import disk
from vinerl.bench.run import running, saver
from vinerl.bench.run.runs import Run
from vinerl.bench.run.saver import Saver
from vinerl.errors import InputError
from vinerl.train.loop import Moment


def moment(step):
    window = [{"critic/loss": jnp.array([0.1 * step, jnp.nan]), "q_max": jnp.array([-jnp.inf, 2])}]
    return Moment(step, {"x": jnp.full(3, float(step))}, None, window)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    return tmp_path


def save(folder, *steps, **facts):
    writing = Saver(folder, **facts)
    for step in steps:
        writing.save(moment(step), {"actor": np.ones(2)})
    writing.close()
    return writing


def restore(folder, **facts):
    return saver.restore(Run(folder), {"x": np.zeros(3, np.float32)}, **facts)


def test_the_newest_state_comes_back_with_its_window_to_the_last_bit(folder):
    (folder / "metrics.jsonl").write_text("12345")
    save(folder, 10, 20, job="a")
    found = restore(folder, job="a")
    assert (found.step, found.stack["x"].tolist(), found.metrics_bytes) == (20, [20.0] * 3, 5)
    for name, values in moment(20).window[0].items():
        np.testing.assert_array_equal(found.window[0][name], values)


def test_a_state_that_is_read_takes_no_memory_of_a_device(folder):
    """Whoever goes on from it spreads it out, and holds it for as long as the run lasts."""
    save(folder, 10)
    assert isinstance(restore(folder).stack["x"], np.ndarray)


def test_policies_of_evaluations_stay_and_those_in_between_go_with_their_state(folder):
    save(folder, 10, 20, 30, 40, 50, every=20)
    there = lambda kind: sorted(int(p.stem[-9:]) for p in folder.rglob(f"{kind}-*.json"))
    assert there("state") == [40, 50]
    assert there("policy") == [20, 40, 50]
    assert len(list(folder.rglob("policy-*.safetensors"))) == 3


def test_a_checkpoint_of_another_job_is_passed_over_and_named(folder, capsys):
    save(folder, 10, job="a")
    assert restore(folder, job="b") is None
    assert "state-000000010.json: of another job than the manifest's" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_what_was_cut_short_is_passed_over_for_the_one_before(folder, capsys, suffix, keep):
    save(folder, 10, 20)
    newest = folder / f"checkpoints/state-000000020.{suffix}"
    newest.write_bytes(newest.read_bytes()[: int(keep * newest.stat().st_size)])
    assert restore(folder).step == 10
    assert f"passed over a checkpoint: {newest}" in capsys.readouterr().out


def test_where_nothing_is_good_there_is_nothing_to_go_on_from(folder):
    save(folder, 10)
    (folder / "checkpoints/state-000000010.safetensors").unlink()
    assert restore(folder) is None


def test_a_pickle_in_a_checkpoints_place_is_refused_unread(folder):
    save(folder, 10)
    (folder / "checkpoints/state-000000010.safetensors").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert restore(folder) is None


def test_a_full_disk_costs_a_checkpoint_and_nothing_that_was_good(folder, capsys, monkeypatch):
    save(folder, 10)

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(disk, "write", full)
    writing = save(folder, 20)
    said = capsys.readouterr().out
    assert "No space left on device" in said
    assert "the run goes on; make room" in said
    assert writing.failed is not None
    monkeypatch.undo()
    assert restore(folder).step == 10
    assert save(folder, 30).failed is None


def test_the_log_is_cut_back_but_never_grown(folder):
    log = folder / "metrics.jsonl"
    log.write_text("one\ntwo\n")
    saver.cut_back(log, 4)
    assert log.read_text() == "one\n"
    saver.cut_back(log, 100)
    assert log.read_text() == "one\n"


def test_half_written_files_of_a_killed_run_are_cleared_away(folder):
    save(folder, 10)
    (folder / "checkpoints/state-000000020.safetensors.part").write_bytes(b"half")
    assert restore(folder).step == 10
    assert not list(folder.rglob("*.part"))


def test_states_that_were_passed_over_do_not_push_out_good_ones(folder):
    save(folder, 100, 200)
    for card in saver.states(folder):
        card.with_suffix(".safetensors").write_bytes(b"damaged")
    save(folder, 10, 20, 30)
    assert [card.stem for card in saver.states(folder)] == ["state-000000020", "state-000000030"]
    assert restore(folder).step == 30


def test_an_evaluation_whose_policy_is_gone_does_not_keep_a_run_from_going_on(tmp_path, capsys):
    """A disk that was full for a while may have left a later state and no policy before it."""
    job = SimpleNamespace(agent="vine", eval_every=20, total=100, eval_episodes=1)
    under_way: Any = SimpleNamespace(job=job, folder=tmp_path, evaluator=SimpleNamespace())
    running._Running._evaluate_again(under_way, 30)
    assert f"no evaluation at step 20: {tmp_path} holds no run" in capsys.readouterr().out


def test_nothing_is_written_into_a_folder_that_is_anothers(folder):
    """By a process that was suspended, and goes on."""

    def refuse():
        raise InputError("taken over by process 7")

    wrong = lambda *_: pytest.fail("written all the same")
    under_way: Any = SimpleNamespace(
        job=SimpleNamespace(total=10, save_every=5),
        owner=SimpleNamespace(check=refuse),
        _begin=lambda *_: moment(0),
        _moments=lambda *_: iter([moment(5)._replace(metrics={})]),
        **dict.fromkeys(("_log", "_mark", "_save"), wrong),
    )
    with pytest.raises(InputError, match="taken over by process 7"):
        running._Running._train(under_way, None, [])
