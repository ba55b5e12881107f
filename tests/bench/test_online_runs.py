"""Runs that go on online: what is asked for, and what a kill in the middle leaves."""

import signal
import time
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
from test_resume import start

from vinerl import disk
from vinerl.bench.commands import training as commands
from vinerl.bench.pictures import plots
from vinerl.bench.run import jobs, manifests, material, tasks
from vinerl.bench.run import online as phase
from vinerl.bench.run.runs import Run, Subject
from vinerl.bench.run.saver import Saver, restore
from vinerl.errors import InputError
from vinerl.train import metrics, stack
from vinerl.train.loop import Moment
from vinerl.types import Spec

OFFLINE, ONLINE = 40, 60
# Two seeds x two alphas, chunks of three, which an end or a round of ten cuts.
JOB = f"fql --seeds 0,1 --agent.alpha 1,3 --steps {OFFLINE} --online-steps {ONLINE} --utd 1/2"
JOB += " --eval-every 0 --block 10 --log-every 10 --final-episodes 0"
JOB += " --agent.horizon 3 --agent.chunk True --agent.flow-steps 2 --agent.batch-size 16"
JOB += " --agent.actor-hidden 8 8 --agent.critic-hidden 8 8"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def resolve(**options):
    return jobs.resolve(jobs.request("vine", options))


def test_a_run_is_offline_unless_asked():
    job = resolve()
    assert (job.online_steps, job.online_every, job.total) == (0, 0, job.steps)
    assert job.updates(500) == 500


def test_the_words_of_the_command_arrive():
    job = jobs.resolve(commands.parse(["--balanced", *JOB.split()]))
    assert (job.agent, job.online_steps, job.utd, job.balanced) == ("fql", ONLINE, "1/2", True)
    assert (job.total, job.online_every) == (100, 10)


@pytest.mark.parametrize(
    ("options", "every"),
    [
        ({"steps": 20_000, "online_steps": 20_000, "eval_every": 4000}, 100),
        ({"steps": 6000, "online_steps": 30}, 10),  # log_every 100
        ({"steps": 6000, "online_steps": 600, "utd": "1/25"}, 100),
        ({"steps": 6000, "online_steps": 600, "log_every": 60, "eval_every": 600}, 60),
        ({"steps": 6000, "online_steps": 600, "log_every": 60, "eval_every": 600, "utd": 0.25}, 60),
    ],
)
def test_a_round_divides_all_intervals_and_has_whole_updates(options, every):
    assert resolve(**options).online_every == every


def test_steps_are_updates_offline_and_environment_steps_online():
    job = resolve(steps=6000, online_steps=600, utd="1/4")
    assert [job.updates(step) for step in (0, 6000, 6100, 6600)] == [0, 6000, 6025, 6150]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"balanced": True}, "--balanced is for the online phase"),
        ({"utd": "2"}, "--utd 2 is for the online phase"),
        ({"online_steps": 100, "utd": "0"}, "--utd 0: expected more than 0"),
        ({"online_steps": 100, "utd": "often"}, "--utd often: expected a number"),
        ({"online_steps": 100, "utd": "1/7"}, "share 100, and no part of it up to 100 is a mult"),
        ({"online_steps": -1}, "--online-steps -1: expected a whole number, 0 or more"),
        ({"online_steps": 100, "data": "own.npz"}, "--online-steps needs an environment"),
    ],
)
def test_what_cannot_be_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        resolve(**options)


def test_a_folder_of_files_is_refused(tmp_path, monkeypatch):
    source = tasks.Source(tmp_path, "unknown", {})
    monkeypatch.setattr(tasks, "find", lambda task, folder: source)
    with pytest.raises(InputError, match=f"goes on from one file; {tmp_path} is a folder"):
        material.data_of(resolve(online_steps=100))


def begun(online_steps):
    """The manifest of a run of 6000 steps, as far as resuming it looks, and its folder."""
    job = resolve(steps=6000, online_steps=online_steps, eval_every=600, log_every=60)
    run = {name: manifests.freeze(getattr(job, name)) for name in manifests.KEPT}
    config = {name: manifests.freeze(value) for name, value in vars(job.config).items()}
    facts = {"task": job.task.name, "data": {"path": "x.npz"}, "from": {}, "block": 60}
    return {"agent": {"name": "vine", "config": config}, "run": run} | facts, job.out


def test_the_online_phase_of_a_run_can_grow():
    job = manifests.again(*begun(600), None, online_steps=1200)
    assert (job.steps, job.online_steps, job.total) == (6000, 1200, 7200)


@pytest.mark.parametrize(
    ("before", "asked", "said"),
    [
        (600, {"steps": 12_000}, "went online after 6000 gradient steps.*--online-steps N length"),
        (600, {"steps": None, "online_steps": 540}, "--online-steps 540: this run has 600"),
        (600, {"steps": None, "online_steps": 610}, "--online-steps 610: .* in blocks of 60"),
        (0, {"steps": None, "online_steps": 600}, "--online-steps 600: this run has no online ph"),
    ],
)
def test_a_run_grows_at_its_end_only(before, asked, said):
    with pytest.raises(InputError, match=said):
        manifests.again(*begun(before), **asked)


def test_a_checkpoint_of_the_online_phase_has_its_steps_and_no_other_has_any():
    job = resolve(steps=6000, online_steps=600, horizon=5, chunk=True)
    spec = Spec(np.zeros(3, np.float32), action_dim=10)
    assert phase.replay_like(job, spec, 6000) is None
    like = phase.replay_like(job, spec, 6100)
    assert like["steps"]["obs"].shape == (3, 200, 3)
    assert like["steps"]["action"].shape == (3, 100, 2)
    assert like["chunk"].shape == (3, 5, 2)


def test_a_state_is_as_good_as_its_replay_and_both_go_together(tmp_path, capsys):
    (tmp_path / "checkpoints").mkdir()
    saver, empty = Saver(tmp_path), {"x": np.zeros(1, np.float32)}
    for step in (10, 20, 30, 40):
        saver.save(Moment(step, empty, None, []), empty, {"row": np.full(step, 7)})
    saver.close()
    kept = {path.stem for path in tmp_path.glob("checkpoints/replay-*")}
    assert kept == {"replay-000000030", "replay-000000040"}
    like = lambda step: {"row": np.zeros(step, int)}
    assert restore(Run(tmp_path), empty, like).replay["row"].tolist() == [7] * 40
    file = tmp_path / "checkpoints/replay-000000040.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    found = restore(Run(tmp_path), empty, like)
    assert (found.step, len(found.replay["row"])) == (30, 30)
    assert f"passed over a checkpoint: {file}: damaged" in capsys.readouterr().out


def test_environments_are_closed_where_there_is_no_phase_for_them(monkeypatch):
    """What an online phase keeps may be more than the device holds."""
    closed = []

    def full(*_, **__):
        raise MemoryError("RESOURCE_EXHAUSTED")

    live = SimpleNamespace(close=lambda: closed.append(True))
    monkeypatch.setattr(phase, "Live", lambda *_: live)
    monkeypatch.setattr(phase, "Online", full)
    job, spec = resolve(steps=6000, online_steps=600), Spec(np.zeros(3, np.float32), action_dim=2)
    subject = Subject(job.config, job.make, spec, stack.members(job.config, (0,)), None, None)
    with pytest.raises(MemoryError):
        phase.phase(job, subject, None)
    assert closed == [True]


def test_sparse_rewards_are_made_as_the_data_have_them():
    np.testing.assert_array_equal(phase.sparse(np.array([-3.0, -1.0, 0.0])), [-1, -1, 0])


def test_a_picture_shows_where_the_online_phase_begins(tmp_path, monkeypatch):
    lines, close = [], plots.plt.close
    read = lambda figure: [line.get_xdata() for line in figure.axes[0].lines]
    monkeypatch.setattr(plots.plt, "close", lambda fig: (lines.append(read(fig)), close(fig)))
    manifest = {
        "schema": 1,
        "agent": {"name": "vine", "config": {}},
        "task": "t",
        "run": {"steps": 20, "online_steps": 10},
        "members": [{"seed": 0, "status": "learning"}],
        "data": {"path": "x.npz", "origin": "own", "sha256": "a", "card": {}},
        "versions": {"mujoco": "3.2.7"},
        "commit": "c0ffee1234567",
        "ended": None,
    }
    disk.write_sealed(tmp_path / "manifest.json", manifest)
    for step in (10, 20, 30):
        metrics.write(tmp_path / "metrics.jsonl", step, {"eval/success": [0.5]})
    plots.draw(Run(tmp_path), manifest)
    offline = manifest | {"run": {"steps": 30}}
    disk.write_sealed(tmp_path / "manifest.json", offline)
    plots.draw(Run(tmp_path), offline)
    assert plots.online([manifest, offline, manifest]) == [20]
    assert [20, 20] in [list(x) for x in lines[0]]
    assert [20, 20] not in [list(x) for x in lines[1]]


def online_lines(folder):
    log = folder / "metrics.jsonl"
    return [x for x in metrics.read(log) if x["step"] > OFFLINE] if log.exists() else []


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    """The run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("runs") / "alone"
    assert start(data, "train", *JOB.split(), "--out", str(folder)).wait() == 0
    return folder


def assert_same(folder, alone):
    """Bit for bit: state, log and what the members did."""
    for kind in ("state", "replay"):
        file = f"checkpoints/{kind}-{OFFLINE + ONLINE:09d}.safetensors"
        ours, theirs = (safetensors.numpy.load_file(x / file) for x in (folder, alone))
        assert set(ours) == set(theirs)
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value, err_msg=name)
    assert ours["steps/count"].tolist() == [ONLINE] * 4
    logs = (metrics.read(x / "metrics.jsonl") for x in (folder, alone))
    assert next(logs) == next(logs)


@pytest.mark.slow
def test_an_online_phase_that_is_lengthened_equals_one_that_was_long_from_the_start(
    data, alone, tmp_path
):
    folder, short = tmp_path / "run", JOB.replace(f"steps {ONLINE}", "steps 40")
    assert start(data, "train", *short.split(), "--out", str(folder)).wait() == 0
    assert start(data, "resume", str(folder)).wait() == 2
    assert "has ended at step 80; --online-steps N lengthens" in (data / "said.log").read_text()
    assert start(data, "resume", str(folder), "--online-steps", str(ONLINE)).wait() == 0
    assert_same(folder, alone)


@pytest.mark.slow
def test_kills_and_a_signal_in_the_online_phase_change_nothing(data, alone, tmp_path):
    folder = tmp_path / "run"
    process = start(data, "train", *JOB.split(), "--out", str(folder))
    for number, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        before = len(online_lines(folder))
        while process.poll() is None and len(online_lines(folder)) <= before:
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait() == code, (data / "said.log").read_text()
        process = start(data, "resume", str(folder))
    assert process.wait() == 0, (data / "said.log").read_text()
    assert_same(folder, alone)
    assert start(data, "resume", str(folder)).wait() == 2
    assert "has ended at step 100" in (data / "said.log").read_text()
