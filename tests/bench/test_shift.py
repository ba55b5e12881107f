"""A shift of the queue: what fits into some minutes of a machine, when, and the doing of it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from vinerl import cli, disk
from vinerl.bench.commands import training
from vinerl.bench.numbers import publishing, report, results
from vinerl.bench.plans import crew, entries, estimate, leash, queue, shift
from vinerl.bench.plans.entries import Dataset, Entry
from vinerl.bench.plans.shift import Place
from vinerl.bench.run import jobs, manifests, provenance
from vinerl.bench.studies import table1
from vinerl.data import files
from vinerl.errors import InputError
from vinerl.types import Spec

ANT = "antmaze-large-navigate-singletask-task2-v0"
SCENE = "scene-play-singletask-task4-v0"
CUBE = "cube-double-play-singletask-task1-v0"
POINT = "pointmaze-medium-navigate-singletask-task1-v0"


@pytest.fixture(autouse=True)
def step(monkeypatch):
    """Milliseconds that plans are made with here, whatever was measured last."""
    monkeypatch.setattr(estimate, "STEP", 0.85)
    monkeypatch.setattr(estimate, "MEMBER", 0.34)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine of sixteen cores with no data on it."""
    monkeypatch.setattr(provenance, "cores", lambda: 16)
    return lambda **given: Place(tmp_path / "data", tmp_path / "runs", **given)


def entry(task=ANT, steps=100_000, **fields):
    """Two members: 120 s, and 1.683 ms a step."""
    common = {"precision": "bfloat16", "batch_size": 512}
    return Entry("group", task, "vine", (0, 1), steps, {}, common, fields)


def with_data(place, *tasks):
    place.data.mkdir(exist_ok=True)
    for task in tasks:
        (place.data / f"{entry(task).dataset.name}.npz").write_bytes(b"")
    return place


def told(turns):
    return [
        (shift.name_of(what).replace("-navigate-task2-vine", ""), round(t)) for what, t in turns
    ]


def test_a_run_takes_what_its_parts_do():
    assert entry().cost().seconds == pytest.approx(60 + 168.3 + 60)
    assert entry().cost(done=50_000).seconds == pytest.approx(60 + 84.15 + 60)


def test_its_data_are_made_first(place):
    """1,100 episodes of 1,001 rows at 2,000 a second on each core, and twice that long."""
    turns = shift.plan([entry()], 3600, place())
    making = 2 * 1100 * 1001 / 2000 / 16
    assert turns[0].what == Dataset("antmaze-large-navigate-v0")
    assert [t for _, t in turns] == pytest.approx([making, making + 288.3])


def test_data_that_are_there_cost_nothing(place):
    (turn,) = shift.plan([entry()], 3600, with_data(place(), ANT))
    assert turn.over == pytest.approx(288.3)


def test_data_that_cannot_be_made_are_not_planned(place):
    """There is no controller of a humanoid; the run itself then says how its data are had."""
    (turn,) = shift.plan([entry("humanoidmaze-large-navigate-singletask-task1-v0")], 3600, place())
    assert isinstance(turn.what, Entry)


def test_as_much_as_fits_one_after_the_other(place):
    left = [entry(flow_steps=k) for k in (1, 2, 3)]
    there = with_data(place(), ANT)
    ends = lambda seconds: [round(t) for _, t in shift.plan(left, seconds, there)]
    assert ends(866) == [288, 577, 865]
    assert ends(864) == [288, 577]
    assert ends(10) == [288], "something is always begun"
    assert shift.plan(left, 10, there, first=False) == []


def test_only_what_can_end(place):
    left = [entry(flow_steps=1), entry(steps=1000, flow_steps=2)]
    there = with_data(place(whole=True), ANT)
    assert told(shift.plan(left, 287, there)) == [("antmaze-large-flow-steps-2-1k", 122)]
    assert shift.plan(left, 100, there) == []


def test_two_at_once_share_the_device(place):
    """Each trains at 7/12 of its speed; the third alone, while the others evaluate and after."""
    left = [entry(flow_steps=k) for k in (1, 2, 3)]
    ends = [t for _, t in shift.plan(left, 3600, with_data(place(jobs=2), ANT))]
    assert ends == pytest.approx([408.5, 408.5, 408.5 + 288.3], abs=0.1)


def test_nothing_is_begun_that_makes_another_late(place):
    """Alone the first takes 288 s, beside a short one a little more."""
    left = [entry(flow_steps=1), entry(steps=20_000, flow_steps=2)]
    there = with_data(place(jobs=2), ANT)
    slowed = 288.3 + 33.66 * (12 / 7 - 1) * 7 / 12 * 12 / 7
    assert len(shift.plan(left, slowed + 5, there)) == 2
    assert len(shift.plan(left, 290, there)) == 1
    assert len(shift.plan(left, 250, there)) == 2, "the first is late anyway, and goes on later"
    running = {left[0].name: 0.0}
    assert shift.plan(left, 250, replace(there, whole=True), running) == []


def test_what_has_been_begun_counts_for_what_is_left(place):
    there = with_data(place(whole=True), ANT)
    folder = there.runs / entry().name
    folder.mkdir(parents=True)
    lines = [json.dumps({"step": step}) + "\n" for step in (10_000, 90_000)]
    (folder / "metrics.jsonl").write_text("".join(lines))
    (turn,) = shift.plan([entry()], 140, there)
    assert turn.over == pytest.approx(120 + 16.83)
    assert shift.plan([entry()], 136, there) == []


def test_what_runs_has_its_place_and_is_not_planned_again(place):
    """It has been at it for 50 s, so 10 of its start are left."""
    left, there = [entry(flow_steps=1), entry(flow_steps=2)], with_data(place(), ANT)
    turns = shift.plan(left, 3600, there, {left[0].name: 50.0})
    assert told(turns) == [("antmaze-large-flow-steps-2-100k", round(288.3 - 50 + 288.3))]


def test_the_next_data_are_made_beside_the_training(place):
    """Scene's are there after 69 + 344 s; until then the ant has the device."""
    left = [entry(), entry(SCENE), entry(flow_steps=2)]
    turns = shift.plan(left, 3600, place())
    assert told(turns) == [
        ("antmaze-large-navigate-v0", 69),
        ("antmaze-large-100k", 357),
        ("antmaze-large-flow-steps-2-100k", 645),
        ("scene-play-v0", 413),
        ("scene-play-task4-vine-100k", 934),
    ]
    assert len(shift.plan(left, 900, place())) == 3, "no data are made for nothing"
    being_made = shift.plan(left[1:2], 3600, place(), {"scene-play-v0": 300.0})
    assert told(being_made) == [("scene-play-task4-vine-100k", round(344.1 - 300 + 288.3))]


def test_a_run_that_waits_for_its_data_keeps_its_place(place):
    """Cube's data are made after scene's; what is there of the ant is not begun before."""
    there = with_data(place(jobs=2), ANT)
    turns = shift.plan([entry(SCENE), entry(CUBE), entry()], 3600, there)
    assert [shift.name_of(what) for what, _ in turns] == [
        "scene-play-v0",
        "scene-play-task4-vine-100k",
        "cube-double-play-v0",
        "cube-double-play-task1-vine-100k",
        "antmaze-large-navigate-task2-vine-100k",
    ]
    assert turns[2].over == pytest.approx(turns[0].over + 2 * 1100 * 1001 / 450 / 16)


def test_a_dry_run_tells_all_of_it(place, tmp_path, capsys):
    place()
    (tmp_path / "queue.toml").write_text(
        f'[a]\ntasks = ["{ANT}", "{SCENE}"]\nseeds = [0, 1]\nsteps = 100_000\n'
        'common = { precision = "bfloat16" }\n'
    )
    words = ["queue", "next", "--folder", str(tmp_path), "--dir", str(tmp_path / "data")]
    cli.main([*words, "--minutes", "30", "--dry-run"])
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert said[1:5] == [
        ["make", "antmaze-large-navigate-v0", "1:09", "1:09"],
        ["antmaze-large-navigate-task2-vine-100k", "2", "4:48", "5:57"],
        ["make", "scene-play-v0", "5:44", "6:53"],
        ["scene-play-task4-vine-100k", "2", "4:48", "11:41"],
    ]
    cli.main([*words, "--minutes", "1", "--only-whole"])
    assert "nothing that is missing can end in time" in capsys.readouterr().out
    assert not (tmp_path / "data").exists()
    with pytest.raises(SystemExit):
        cli.main([*words, "--jobs", "0"])
    assert "--jobs 0: expected a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("again", [False, True])
def test_then_the_page_and_the_table_are_made_or_named(tmp_path, monkeypatch, capsys, again):
    (tmp_path / "queue.toml").write_text(f'[a]\ntasks = ["{ANT}"]\nseeds = [0]\nsteps = 9\n')
    done = shift.Done([tmp_path / "seed-0.json"], {"b": "b: it did not want to"})
    monkeypatch.setattr(shift, "work", lambda *_: done)
    monkeypatch.setattr(report, "write", lambda folder, out: out)
    monkeypatch.setattr(table1, "reproduce", lambda folder, out: [out / "table1.md"])
    words = ["queue", "next", "--folder", str(tmp_path), *["--report"] * again]
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 1
    said = capsys.readouterr().out
    assert "seed-0.json" in said
    assert "1 failed; the same command tries again:\n  b: it did not want to" in said
    assert (f"report.html\n{tmp_path}/table1/table1.md" in said) == again
    assert ("vinerl report and vinerl reproduce table1" in said) != again


@pytest.fixture
def faked(monkeypatch):
    """Processes and publishing: what was begun and ended, in order, and how many at once."""
    said, now, most, lock = [], [], [0], threading.Lock()

    def hold(words, log, over, low=False):
        name = log.parent.name if words[0] == "train" else words[2]
        with lock:
            said.append(f"begin {name}")
            now.extend([name] if not low else [])
            most[0] = max(most[0], len(now))
        limit = time.monotonic() + 5
        while name == "scene-play-v0" and not any("task2" in x for x in said):
            assert time.monotonic() < limit, "nothing is trained meanwhile"
            time.sleep(0.01)
        time.sleep(0.1)
        with lock:
            said.append(f"end {name}")
            now.remove(name) if not low else None
        if low:
            folder = Path(words[-1])
            folder.mkdir(exist_ok=True)
            (folder / f"{name}.npz").write_bytes(b"")
        if "flow-steps-3" in name:
            raise InputError("it did not want to")
        (log.parent / "ended").touch()

    def publish(run, at, rest):
        said.append(f"publish {run.path.name}")
        if "flow-steps-5" in run.path.name:
            raise InputError("another run is there")
        return [at / run.path.name]

    monkeypatch.setattr(leash, "hold", hold)
    monkeypatch.setattr(publishing, "publish", publish)
    for module in (entries, shift):
        monkeypatch.setattr(module, "ended", lambda out: (out / "ended").exists())
    return said, most


def test_what_fails_stops_nothing_else_and_is_told(place, tmp_path, faked):
    left = [entry(flow_steps=k) for k in (2, 3, 4, 5)]
    done = shift.work(left, tmp_path, 60, with_data(place(jobs=2), ANT))
    names = [e.name for e in left]
    assert [path.name for path in done.written] == [names[0], names[2]]
    assert done.failed == {
        names[1]: f"{names[1]}: it did not want to",
        names[3]: "another run is there",
    }
    assert faked[1] == [2]


def test_a_run_with_a_damaged_log_fails_alone(place, tmp_path, faked):
    left, there = [entry(flow_steps=k) for k in (2, 4)], with_data(place(), ANT)
    (folder := there.runs / left[0].name).mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("{damaged\n")
    assert entries.reached(left[0], folder) == 0
    assert [name for name, _ in told(shift.plan(left, 3600, there))] == [
        shift.name_of(one).replace("-navigate-task2-vine", "") for one in left
    ]
    done = shift.work(left, tmp_path, 60, there)
    assert left[1].name in [path.name for path in done.written]


@pytest.mark.parametrize("minutes", ["0", "-5", "nan", "inf"])
def test_minutes_are_a_number_above_0(tmp_path, minutes, capsys):
    with pytest.raises(SystemExit):
        cli.main(["queue", "next", "--minutes", minutes, "--folder", str(tmp_path)])
    assert "expected a number above 0" in capsys.readouterr().err


@pytest.fixture
def measured(monkeypatch):
    """Runs that end at once, each member with another success every time."""
    scores = count()

    def hold(words, log, over, low=False):
        job = jobs.resolve(training.parse(words[1:]))
        card = {"recipe": {"seed": 0}, "versions": {"mujoco": "3.2.7"}}
        data = {"path": "x.npz", "origin": "regenerated", "sha256": "0" * 64, "card": card}
        manifest = manifests.begin(job, Spec({}, 8), data) | {"ended": "noon"}
        manifest["started"] = str(next(scores))
        last = {"step": job.steps, "eval/success": [next(scores) / 100 for _ in range(job.members)]}
        (job.out / "metrics.jsonl").write_text(json.dumps(last) + "\n")
        disk.write_sealed(job.out / "manifest.json", manifest)

    monkeypatch.setattr(leash, "hold", hold)


@pytest.mark.parametrize(
    ("seeds", "alphas", "stay"),
    [("[0, 1]", [3.0, 10.0, 30.0], None), ("[0, 1, 2]", [3.0, 10.0, 30.0], 4)],
    ids=["a value", "a value and a seed"],
)
def test_what_is_missing_is_published_and_what_is_there_stays(
    place, tmp_path, measured, capsys, seeds, alphas, stay
):
    """Values that are missing alone are measured alone; five of nine members are no stack, so all
    nine are measured again, on a machine that has nothing of the runs before."""

    def work(seeds, alphas, runs):
        text = f'[a]\ntasks = ["{ANT}"]\nseeds = {seeds}\nsteps = 1000\n'
        (tmp_path / "queue.toml").write_text(f"{text}alpha = {{ antmaze-large = {alphas} }}\n")
        there = replace(with_data(place(), ANT), runs=tmp_path / runs)
        left = lambda: queue.left(queue.read(tmp_path / "queue.toml"), results.read(tmp_path))
        done = shift.work(left(), tmp_path, 60, there)
        assert (left(), done.failed) == ([], {})
        return {seed.path: seed.facts for seed in results.read(tmp_path)}

    first = work("[0, 1]", [3.0, 10.0], "one")
    assert "published already" not in capsys.readouterr().out
    every = work(seeds, alphas, "two")
    said = f"{stay} of 9 members are published already and stay"
    assert (said in capsys.readouterr().out) == (stay is not None)
    assert (len(first), len(every)) == (4, 9 if stay else 6)
    assert {path: every[path] for path in first} == first


def test_each_is_published_before_the_next_has_ended(place, tmp_path, faked):
    left = [entry(flow_steps=k) for k in (1, 2)]
    shift.work(left, tmp_path, 60, with_data(place(), ANT))
    one, two = (e.name for e in left)
    assert faked[0] == [f"{x} {name}" for name in (one, two) for x in ("begin", "end", "publish")]


def test_data_are_made_before_and_beside(place, tmp_path, faked):
    left = [entry(), entry(flow_steps=2), entry(SCENE)]
    shift.work(left, tmp_path, 60, place())
    said = faked[0]
    ant, scene = "antmaze-large-navigate-v0", "scene-play-v0"
    assert said[:2] == [f"begin {ant}", f"end {ant}"]
    order = [x for x in said if x.startswith("begin") and "task" in x]
    assert order == [f"begin {e.name}" for e in left]
    assert said.index(f"end {scene}") < said.index(f"begin {left[2].name}")
    assert said.index(f"begin {left[0].name}") < said.index(f"end {scene}")


def test_a_second_set_of_data_is_made_with_its_seed_and_trained_on(place, tmp_path, monkeypatch):
    """The first is there, which is not enough; what was begun has the second's folder."""
    began = []

    def hold(words, log, over, low=False):
        began.append((words, log.name))
        if not low:
            raise InputError("enough is seen")
        (Path(words[-1]) / f"{words[2]}.npz").write_bytes(b"")

    monkeypatch.setattr(leash, "hold", hold)
    there, second = with_data(place(), ANT), replace(entry(), data_seed=1)
    shift.work([second], tmp_path, 60, there)
    (make, made_log), (train, _) = began
    name, folder = "antmaze-large-navigate-v0", str(there.data / "seed-1")
    assert make == ["data", "make", name, "--seed", "1", "--dir", folder]
    assert made_log == f"{name}-seed-1.log"
    assert train[train.index("--dir") + 1] == folder
    assert train[train.index("--out") + 1] == str(there.runs / second.name)


def test_data_of_another_seed_are_not_taken_for_those_asked_for(place, tmp_path, monkeypatch):
    there, second = with_data(place(), ANT), replace(entry(), data_seed=1)
    card = there.data / "antmaze-large-navigate-v0.json"
    card.write_text(json.dumps({"origin": "regenerated", "recipe": {"seed": 5}}))
    with pytest.raises(InputError, match=r"v0\.npz was made with --seed 5, and 0 is asked for"):
        shift.plan([entry()], 3600, there)
    card.unlink()
    monkeypatch.setattr(files, "OFFICIAL", there.data)
    assert len(shift.plan([entry()], 3600, there)) == 1
    with pytest.raises(InputError, match=r"is official, .* data_seed = 1 asks for others"):
        shift.plan([second], 3600, there)


def test_sections_are_taken_in_the_order_in_which_they_are_asked_for(tmp_path, capsys):
    section = lambda k: f'[{k}]\ntasks = ["{ANT}"]\nseeds = [0]\nsteps = {{}}\n'
    text = "".join(section(k).format(n) for k, n in (("a", 1000), ("b", 2000), ("c", 3000)))
    (tmp_path / "queue.toml").write_text(text)
    words = ["queue", "next", "--folder", str(tmp_path), "--minutes", "600", "--dry-run"]
    cli.main([*words, "--dir", str(tmp_path / "data"), "--group", "c, a,c"])
    said = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert said[2:5] == [*(f"antmaze-large-navigate-task2-vine-{k}k" for k in (3, 1)), "in"]
    with pytest.raises(SystemExit):
        cli.main([*words, "--group", "c,d"])
    assert "there is no 'd'; there are a, b, c" in capsys.readouterr().err


def test_only_tasks_that_are_asked_for_are_taken_and_their_data_made(tmp_path, capsys):
    text = f'[a]\ntasks = ["{ANT}", "{SCENE}"]\nseeds = [0]\nsteps = 1000\n'
    (tmp_path / "queue.toml").write_text(text)
    words = ["queue", "next", "--folder", str(tmp_path), "--minutes", "600", "--dry-run"]
    cli.main([*words, "--dir", str(tmp_path / "data"), "--task", "scene"])
    said = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert said[1:3] == ["make scene-play-v0", "scene-play-task4-vine-1k"]
    assert said[3].startswith("in all")
    with pytest.raises(SystemExit):
        cli.main([*words, "--task", "humanoid"])
    assert f"--task humanoid: no task has it in its name: {ANT}" in capsys.readouterr().err


def test_data_that_cannot_be_made_are_told_once(place, tmp_path, monkeypatch):
    def hold(words, log, over, low=False):
        raise InputError("no controller")

    monkeypatch.setattr(leash, "hold", hold)
    done = shift.work([entry(), entry(flow_steps=2)], tmp_path, 60, place())
    assert done == ([], {"antmaze-large-navigate-v0": "antmaze-large-navigate-v0: no controller"})


def test_when_time_is_up_all_are_asked_to_stop(place, tmp_path, monkeypatch, capsys):
    stopped = []

    def hold(words, log, over, low=False):
        limit = time.monotonic() + 10
        while not over() and time.monotonic() < limit:
            time.sleep(0.01)
        stopped.extend([log] if over() else [])

    monkeypatch.setattr(leash, "hold", hold)
    there, left = with_data(place(jobs=2), ANT), [entry(flow_steps=k) for k in (1, 2)]
    every = lambda todo, _, __, ages, ___: [shift.Turn(e, 0) for e in todo if e.name not in ages]
    monkeypatch.setattr(shift, "plan", every)
    begin = time.monotonic()
    assert shift.work(left, tmp_path, 1 / 60, there) == ([], {})
    assert 1 < time.monotonic() - begin < 5
    assert len(stopped) == 2
    assert capsys.readouterr().out.count("goes on when asked again") == 2


def test_a_run_that_fails_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "flags", lambda _: ["--bogus"])
    log = tmp_path / "run" / entries.LOG
    with pytest.raises(InputError, match=f"vinerl train ended with exit code 2; see {log}"):
        entries.run(entry(POINT), tmp_path / "run", tmp_path, lambda: False)
    assert "vinerl train --bogus" in log.read_text()


TOY = f"""
[broken]
tasks = ["{POINT}"]
agent = "rebrac"
seeds = [0]
steps = 40
run = {{ pretrain = 2 }}

[whole]
tasks = ["{POINT}"]
seeds = [0, 1]
steps = 40
run = {{ eval_every = 20, eval_episodes = 1, final_episodes = 1, block = 2 }}
common = {{ actor_hidden = [8, 8], critic_hidden = [8, 8], batch_size = 16, flow_steps = 2 }}
grid = [{{ sampler = "vine" }}, {{ sampler = "euler" }}]
"""
SHORT = "pointmaze-medium-navigate-task1"
BROKEN = f"{SHORT}-rebrac-pretrain-2-40"


def start(folder, data):
    """The toy's queue, two at once, in a process of its own."""
    folder.mkdir(exist_ok=True)
    (folder / "queue.toml").write_text(TOY)
    words = ["queue", "next", "--jobs", "2", "--minutes", "60", "--folder", str(folder)]
    words += ["--runs", str(folder / "runs"), "--dir", str(data)]
    command = [sys.executable, "-m", "vinerl", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def published(folder):
    """All that must not depend on how often the work was interrupted."""
    seeds = {
        str(seed.path.relative_to(folder)): (
            seed.recipe,
            *(seed.facts[part] for part in ("curve", "final", "metrics", "status")),
        )
        for seed in results.read(folder)
    }
    raw = {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.glob(f"{SHORT}/*/metrics.jsonl")
    }
    return seeds, raw


@pytest.mark.slow
def test_killed_in_the_middle_and_started_again_it_publishes_the_same(data, tmp_path):
    """Three runs of which one fails; kill -9 of the queue alone, as soon as a state is saved."""
    whole = start(tmp_path / "whole", data)
    said, _ = whole.communicate(timeout=600)
    assert whole.returncode == 1
    assert f"{BROKEN}: vinerl train ended with exit code 2; see " in said
    assert "1 failed; the same command tries again" in said
    seeds, raw = published(tmp_path / "whole")
    assert len(seeds) == 4
    assert sorted(raw) == [f"{SHORT}/vine-{name}-40/metrics.jsonl" for name in ("euler", "vine")]

    again = tmp_path / "again"
    killed, limit = start(again, data), time.monotonic() + 600
    while not list(again.glob("runs/*/checkpoints/state-*.json")):
        assert time.monotonic() < limit
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert published(again) != (seeds, raw)
    more = start(again, data)
    more.communicate(timeout=600)
    assert more.returncode == 1
    assert published(again) == (seeds, raw)
    logs = {path.parent.name: path.read_text() for path in again.glob("runs/*/log.txt")}
    assert any("vinerl resume" in log for name, log in logs.items() if name != BROKEN)
    every = queue.read(again / "queue.toml")
    assert [e.name for e in queue.left(every, results.read(again))] == [BROKEN]


@pytest.mark.slow
def test_stopped_by_the_clock_it_saves_and_goes_on(data, tmp_path):
    (tmp_path / "queue.toml").write_text(TOY)
    one, out = queue.read(tmp_path / "queue.toml")[1], tmp_path / "run"
    entries.run(one, out, data, lambda: any(out.glob("checkpoints/state-*.json")))
    assert not entries.ended(out)
    assert 0 < entries.reached(one, out) < 40
    entries.run(one, out, data, lambda: False)
    assert entries.ended(out)
    assert entries.reached(one, out) == 40
    log = (out / entries.LOG).read_text()
    assert log.index("finishing the block and saving") < log.index(f"vinerl resume {out}")


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_without_being_asked(data, tmp_path, capsys):
    """kill -9 of its process, as soon as a state is saved: it ends as one that was left alone."""
    (tmp_path / "queue.toml").write_text(TOY)
    one, out = queue.read(tmp_path / "queue.toml")[1], tmp_path / "run"

    def kill():
        while not any(out.glob("checkpoints/state-*.json")):
            time.sleep(0.02)
        os.kill(json.loads((out / "lock.json").read_text())["process"], signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    assert crew.finish(one, out, data) == ""
    assert "ended with exit code -9" in capsys.readouterr().out
    assert crew.finish(one, tmp_path / "alone", data) == ""
    assert f"vinerl resume {out}" in (out / entries.LOG).read_text()
    lines = lambda folder: sorted((folder / "metrics.jsonl").read_text().splitlines())
    assert lines(out) == lines(tmp_path / "alone")
