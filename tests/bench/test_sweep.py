"""Sweeps: what a file means, what is refused, what is run, gone on with and left, and the table."""

import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from vinerl import cli, disk, owner
from vinerl.bench.commands import sweeps as sweep_commands
from vinerl.bench.commands.training import parse
from vinerl.bench.plans import crew, entries, sweep
from vinerl.bench.run import jobs, manifests
from vinerl.collect import make, recipes
from vinerl.errors import InputError
from vinerl.owner import Owner
from vinerl.train import stack

POINT = "pointmaze-medium-navigate-singletask-task1-v0"
CROSSED = f"""
task = "{POINT}"
seeds = [0, 1]
steps = 2000
[run]
eval_every = 500
make_data = true
stop_on_bad = false
[common]
actor_hidden = [8, 9]
lr = 1e-3
[grid]
sampler = ["vine", "euler"]
flow_steps = [5, 10]
alpha = [1, 3.0, 10.0]
"""
LISTED = f"""
tasks = ["{POINT}", "scene-play-singletask-task4-v0"]
seeds = [3]
steps = 500
grid = [
  {{ sampler = "euler", alpha = [1.0, 2.0] }},
  {{ agent = "fql", alpha = 10.0 }},
]
"""


@pytest.fixture
def spec(tmp_path):
    def write(text):
        path = tmp_path / "spec.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def own(tmp_path):
    """A spec of three cells on a file of one's own."""
    rows = 40
    draw = np.random.default_rng(0)
    np.savez(
        tmp_path / "mine.npz",
        observations=draw.normal(size=(rows, 3)).astype(np.float32),
        actions=draw.uniform(-1, 1, (rows, 2)).astype(np.float32),
        rewards=draw.normal(size=rows).astype(np.float32),
        terminals=np.arange(rows) % 10 == 9,
    )
    path = tmp_path / "own.toml"
    path.write_text(
        f"data = '{tmp_path / 'mine.npz'}'\nseeds = [0, 1]\nsteps = 40\n"
        "[grid]\nflow_steps = [2, 3, 4]\n"
    )
    return path


def pretend(cell, folder, ended=True, **last):
    """A run of a cell as if it had been there, with its last numbers."""
    job = jobs.resolve(cell.request)
    members = stack.members(job.config, job.seeds)
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "schema": manifests.SCHEMA,
        "agent": {
            "name": job.agent,
            "config": {k: manifests.freeze(v) for k, v in vars(job.config).items()},
        },
        "task": job.task and job.task.name,
        "run": {name: manifests.freeze(getattr(job, name)) for name in manifests.KEPT},
        "members": [
            manifests.member_of(members, i) | {"status": "learning"} for i in range(job.members)
        ],
        "data": {"origin": "official", "card": {}, "path": str(job.data)},
        "versions": {"mujoco": "3.2.7"},
        "ended": "noon" if ended else None,
    }
    disk.write_sealed(folder / "manifest.json", manifest)
    last = {name.replace("__", "/"): values for name, values in last.items()}
    step = cell.steps if ended else cell.steps // 4
    (folder / "metrics.jsonl").write_text(json.dumps({"step": step} | last) + "\n")


def test_a_table_of_lists_is_crossed_and_floats_are_stacked(spec):
    cells = sweep.read(spec(CROSSED))
    assert [cell.name for cell in cells] == [
        "pointmaze-medium-navigate-task1-vine-vine-flow-steps-5-2k",
        "pointmaze-medium-navigate-task1-vine-vine-flow-steps-10-2k",
        "pointmaze-medium-navigate-task1-vine-euler-flow-steps-5-2k",
        "pointmaze-medium-navigate-task1-vine-euler-flow-steps-10-2k",
    ]
    assert [cell.members for cell in cells] == [6] * 4
    config = jobs.resolve(cells[3].request).config
    assert (config.sampler, config.flow_steps, config.alpha) == ("euler", 10, (1, 3.0, 10.0))
    assert (config.actor_hidden, config.lr) == ((8, 9), 1e-3)


def test_the_example_is_two_runs_of_nine_members():
    cells = sweep.read(Path(__file__).parents[2] / "examples" / "sweep.toml")
    assert [(cell.own, cell.members) for cell in cells] == [
        ({"sampler": "vine"}, 9),
        ({"sampler": "euler"}, 9),
    ]


def test_a_list_of_tables_is_taken_as_it_is_for_every_task(spec):
    cells = sweep.read(spec(LISTED))
    assert [(cell.task[:5], cell.agent, cell.members) for cell in cells] == [
        ("point", "vine", 2),
        ("point", "fql", 1),
        ("scene", "vine", 2),
        ("scene", "fql", 1),
    ]
    assert cells[0].name == "pointmaze-medium-navigate-task1-vine-euler-alpha-1.0-2.0-500"


@pytest.mark.parametrize("text", [CROSSED, LISTED, "own"])
def test_what_is_run_is_what_the_cell_says(spec, own, text):
    cells = sweep.read(own if text == "own" else spec(text))
    for cell in cells:
        given, meant = (jobs.resolve(r) for r in (parse(entries.flags(cell)), cell.request))
        assert replace(given, origin={}) == replace(meant, origin={})
        assert cell.members == meant.members


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds = [", "cannot be read"),
        (CROSSED.replace("seeds", "seed"), "unknown key 'seed'; there are agent, task"),
        (CROSSED.replace("seeds = [0, 1]", ""), "has no seeds"),
        (CROSSED.replace("[0, 1]", '["0"]'), r"seeds = \['0'\]: expected a list of whole numbers"),
        (CROSSED.replace("[0, 1]", "[]"), "seeds is empty"),
        (CROSSED.replace("[0, 1]", "[0, 0]"), "a seed is given twice"),
        (CROSSED.replace("2000", '"many"'), "steps = 'many': expected a whole number"),
        (f"data = 'x.npz'\n{CROSSED}", "give one of task, tasks and data"),
        (CROSSED.replace("medium", "vast"), "unknown task 'pointmaze-vast"),
        (f'agent = "vin"\n{CROSSED}', "grid: unknown agent 'vin'"),
        (LISTED.replace("fql", "fq"), "cell 1 .*: unknown agent 'fq'"),
        (CROSSED.replace("eval_every", "evals"), "run has evals; there are balanced|block"),
        (CROSSED.replace('"euler"', '"heun"'), "sampler': 'heun'.*--agent.sampler heun"),
        (CROSSED.replace("sampler", "samplers"), "vine has no field 'samplers'"),
        (CROSSED.replace("[8, 9]", "8"), "--agent.actor_hidden 8: expected a list of whole"),
        (CROSSED.replace("[5, 10]", "5"), "grid: flow_steps = 5: expected a list of values"),
        (CROSSED.replace("[5, 10]", "[]"), r"grid: flow_steps = \[\]: expected a list"),
        (LISTED[: LISTED.index("grid")] + "grid = []", "grid is empty"),
        (LISTED[: LISTED.index("grid")] + "[grid]", "grid is empty"),
        (CROSSED.replace("[5, 10]", "[5, 5]"), "vine-flow-steps-5-2k stands there twice"),
        (LISTED.replace("{ agent", '{ sampler = "vine" }, {},\n { agent'), "stands there twice"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_by_name_and_key(spec, text, message):
    with pytest.raises(InputError, match=rf"spec.toml: .*({message})|spec.toml: {message}"):
        sweep.read(spec(text))


def test_a_word_of_an_agent_of_ones_own_stays_a_word(spec, tmp_path):
    (tmp_path / "my.py").write_text(
        "from dataclasses import dataclass\n"
        "from vinerl.agents.vine import VineConfig, make_vine\n\n"
        "@dataclass(frozen=True)\n"
        "class Config(VineConfig):\n    words: str = 'none'\n\n"
        "MINE = (Config(), make_vine)\n"
    )
    head = f'task = "{POINT}"\nagent = "{tmp_path}/my.py:MINE"\nseeds = [0]\nsteps = 9\n'
    cells = sweep.read(spec(f'{head}grid = [{{ words = "some" }}]'))
    assert cells[0].request.fields == {"words": "some"}
    with pytest.raises(InputError, match="words = 3 is of another kind than the usual 'none'"):
        sweep.read(spec(f"{head}grid = [{{ words = 3 }}]"))


def test_a_dry_run_tells_members_and_cost_and_leaves_nothing(spec, tmp_path, capsys, monkeypatch):
    """120 s to begin and to end. A step of 6 members takes 2.66 ms with evaluations beside it, with
    half the batch and in float32 0.8 of that; two at once make a sixth more steps than one.
    """
    monkeypatch.chdir(tmp_path)
    cli.main(["sweep", str(spec(CROSSED)), "--dry-run", "--jobs", "2"])
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["run", "members", "steps", "done", "about"]
    assert [line.split()[1:] for line in said[1:5]] == [["6", "2000", "0", "2:04"]] * 4
    assert said[5].startswith("in all about 4:15 ")  # 2 x (120 + 2 x 4.26 x 6 / 7)
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_tells_what_is_done(spec, tmp_path, capsys):
    path = spec(CROSSED)
    cells = sweep.read(path)
    pretend(cells[0], tmp_path / cells[0].name)
    pretend(cells[1], tmp_path / cells[1].name, ended=False)
    cli.main(["sweep", str(path), "--dry-run", "--out", str(tmp_path)])
    said = [line.split()[3:] for line in capsys.readouterr().out.splitlines()[1:4]]
    assert said == [["2000", "-"], ["500", "2:03"], ["0", "2:04"]]


def test_the_table_has_a_row_for_members_that_differ_in_their_seed_alone(spec, tmp_path):
    path = spec(CROSSED.replace("[1, 3.0, 10.0]", "[1, 3.0]"))
    cells = sweep.read(path)
    whole = {"eval__success": [0.0, 0.25, 1.0, 0.75], "critic__loss": [9.0] * 4}
    pretend(cells[0], tmp_path / cells[0].name, **whole)  # members: seed 0 twice, then seed 1
    pretend(cells[1], tmp_path / cells[1].name, actor__loss=[5.0] * 4, critic__loss=[2, 3, 4, 5])
    pretend(cells[2], tmp_path / cells[2].name, ended=False)
    rows = sweep_commands.table(cells, tmp_path)
    assert [(row.differs, row.members, row.metric) for row in rows] == [
        ("sampler vine, flow_steps 5, alpha 1", 2, "eval/success"),
        ("sampler vine, flow_steps 5, alpha 3", 2, "eval/success"),
        ("sampler vine, flow_steps 10, alpha 1", 2, "critic/loss"),
        ("sampler vine, flow_steps 10, alpha 3", 2, "critic/loss"),
        ("sampler euler, flow_steps 5, alpha 1", 2, ""),
        ("sampler euler, flow_steps 5, alpha 3", 2, ""),
        ("sampler euler, flow_steps 10", 4, ""),
    ]
    assert [row[5:8] for row in rows[:4]] == [(0.5, 0, 1), (0.5, 0.25, 0.75), (3, 2, 4), (4, 3, 5)]
    assert [row.remarks for row in rows[3:]] == ["", "not finished", "not finished", "not begun"]
    text = sweep_commands.as_csv(rows).splitlines()
    assert text[0] == "task,agent,differs,members,metric,mean,low,high,remarks,run"
    assert text[2] == (
        f'{POINT},vine,"sampler vine, flow_steps 5, alpha 3",2,eval/success,0.5,0.25,0.75,,'
        f"{cells[0].name}"
    )
    assert "0.500 [0.250, 0.750]" in sweep_commands.as_text(rows)


@pytest.fixture
def faked(monkeypatch):
    """Runs that end at once; which were started, and how many at most side by side."""
    begun, now, most, lock = [], [], [0], threading.Lock()

    def run(cell, out, folder, over):
        with lock:
            begun.append(cell.own["flow_steps"])
            now.append(cell)
            most[0] = max(most[0], len(now))
        time.sleep(0.2)
        with lock:
            now.remove(cell)
        if cell.own["flow_steps"] == 3 and begun.count(3) == 1:
            raise InputError(f"{out}: it did not want to")
        pretend(cell, out, critic__loss=[1.0, 2.0])
        return True

    monkeypatch.setattr(entries, "run", run)
    return begun, most


def test_a_failing_cell_is_told_and_only_it_is_tried_again(own, tmp_path, faked, capsys):
    begun, _ = faked
    args = ["sweep", str(own), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        cli.main(args)
    assert stop.value.code == 1
    said = capsys.readouterr().out
    assert "1 of 3 cells failed" in said
    assert "mine-vine-flow-steps-3-40: it did not want to" in said
    assert "not begun" in (tmp_path / "out" / "table.csv").read_text()
    assert begun == [2, 3, 4]

    cli.main(args)
    assert begun == [2, 3, 4, 3]
    said = capsys.readouterr().out
    assert "steps 120/120" in said
    assert "3 of 3 cells" in said
    once = (tmp_path / "out" / "table.csv").read_text()
    assert once.count(",critic/loss,1.5,1,2,") == 3

    cli.main(args)
    assert begun == [2, 3, 4, 3], "nothing is left to run"
    assert (tmp_path / "out" / "table.csv").read_text() == once


@pytest.mark.parametrize("count", [1, 2])
def test_as_many_run_at_once_as_were_asked_for(own, tmp_path, faked, count):
    _, most = faked
    with crew.here(count) as submit:
        sweep.work(sweep.read(own), tmp_path / "out", tmp_path, submit)
    assert most == [count]


def test_interrupted_it_asks_running_cells_to_stop_and_begins_no_more(
    own, tmp_path, monkeypatch, capsys
):
    begun, stopped = [], []

    def run(cell, out, folder, over):
        begun.append(cell)
        limit = time.monotonic() + 10
        while not over() and time.monotonic() < limit:
            time.sleep(0.01)
        stopped.extend([cell] if over() else [])

    def interrupt(*_, **__):
        while len(begun) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(entries, "run", run)
    monkeypatch.setattr(crew.futures, "wait", interrupt)
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", str(own), "--jobs", "2", "--out", str(tmp_path / "out")])
    assert stop.value.code == 130
    assert len(begun) == len(stopped) == 2
    assert "runs are being saved" in capsys.readouterr().out


@pytest.mark.parametrize("host", ["another-host", platform.node()])
def test_a_cell_that_a_lost_process_still_has_is_waited_for(
    own, tmp_path, faked, monkeypatch, host
):
    """On another host until its lock is stale; on this one until it has gone, and no longer."""
    alive = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)"])
    monkeypatch.setattr(owner, "STALE", 1.5 if host == "another-host" else 60.0)
    cell, folder = sweep.read(own)[0], tmp_path / "cell"
    folder.mkdir()
    holder = {"host": host, "process": alive.pid, "since": "noon"}
    (folder / "lock.json").write_text(json.dumps(holder))
    threading.Thread(target=alive.wait).start()  # or it would stay a zombie
    begin = time.monotonic()
    assert crew.finish(cell, folder, tmp_path) == ""
    assert 1.0 < time.monotonic() - begin < 10.0
    assert entries.ended(folder)


def test_another_run_in_the_folder_of_a_cell_is_refused(own, tmp_path):
    cells = sweep.read(own)
    pretend(replace(cells[1], steps=80, seeds=(0,)), tmp_path / cells[1].name)
    pretend(cells[0], tmp_path / cells[0].name)
    others = cells[0].run | {"workers": 3}  # processes are the machine's, not the run's
    entries.check_folder([cells[0], replace(cells[0], run=others)], tmp_path)
    with pytest.raises(InputError, match=r"holds another run: .*run.seeds .*run.steps \(40 and 80"):
        entries.check_folder(cells, tmp_path)


def test_two_sweeps_do_not_share_a_folder(own, tmp_path, faked, capsys):
    with Owner(tmp_path / "out"), pytest.raises(SystemExit) as stop:
        cli.main(["sweep", str(own), "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    assert faked[0] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ray"], "--ray needs an extra package: pip install 'vinerl[cluster]'"),
        (["--ray", "--jobs", "2"], "--jobs is for this machine alone"),
        (["--jobs", "0"], "--jobs 0: expected a whole number"),
    ],
)
def test_what_cannot_be_done_is_said(own, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", str(own), "--out", str(tmp_path / "out"), *words])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


class RayError(Exception):
    """As Ray's own errors are: none of Python's."""


class RayTaskError(RayError):
    """What a cell itself raised."""


def pretend_ray(error, at_once=False):
    """Ray, as far as it is used here: it fails when it begins, or in every cell."""
    future = Future()
    future.set_exception(error)
    task = SimpleNamespace(remote=lambda *cell: SimpleNamespace(future=lambda: future))

    def init(**how):
        if at_once:
            raise error

    return SimpleNamespace(
        init=init,
        shutdown=lambda: None,
        cluster_resources=dict,
        remote=lambda **how: lambda finish: task,
        exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError),
    )


@pytest.mark.parametrize(
    ("at_once", "code", "message"),
    [
        (True, 2, "--ray here:1: no cluster to be had there (System error: gone)"),
        (
            False,
            1,
            "--ray here:1: the cluster failed (System error: gone)\nthe same command",
        ),
    ],
)
def test_a_cluster_that_fails_is_said_in_words(
    own, tmp_path, monkeypatch, capsys, at_once, code, message
):
    ray = pretend_ray(RayError("System error: gone"), at_once)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", str(own), "--out", str(tmp_path / "out"), "--ray", "here:1"])
    assert stop.value.code == code
    assert message in capsys.readouterr().err


def test_a_fault_in_a_cell_on_a_cluster_is_seen_whole(own, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", pretend_ray(RayTaskError("a bug")))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(RayTaskError, match="a bug"):
        cli.main(["sweep", str(own), "--out", str(tmp_path / "out"), "--ray", "here:1"])


def test_whoever_lost_its_sweep_is_asked_to_stop():
    code = "from vinerl.bench.plans import leash; import threading, time;"
    code += "threading.Thread(target=leash._watch, daemon=True).start(); print(flush=True);"
    code += "time.sleep(60)"
    command = (sys.executable, "-c", code)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(30) == -signal.SIGTERM


TINY = f"""
task = "{POINT}"
seeds = [0, 1]
steps = 120
run = {{ eval_every = 0, final_episodes = 0, block = 4, log_every = 8 }}
common = {{ actor_hidden = [8, 8], critic_hidden = [8, 8], batch_size = 16 }}
[grid]
sampler = ["vine", "euler"]
alpha = [0.4, 1.0]
"""


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_in_the_same_table(spec, tmp_path):
    """Kill -9 of the sweep alone: what it started must not run on, nor anything run twice.

    Nothing is evaluated, so the table tells losses, in which every bit of a run has its say.
    """
    recipe = replace(recipes.official("pointmaze-medium-navigate-v0"), episodes=3, rows=101)
    make.make(recipe, tmp_path / "data", processes=2)
    path, env = spec(TINY), os.environ | {"VINERL_DATA": str(tmp_path / "data")}

    def start(out):
        command = (sys.executable, "-m", "vinerl", "sweep", str(path), "--out", str(out))
        return subprocess.Popen(command, env=env | {"HOME": str(tmp_path)})

    assert start(tmp_path / "alone").wait() == 0
    chance, kills, life = random.Random(0), 0, 60.0
    while kills < 2:
        begin = time.monotonic()
        process = start(tmp_path / "killed")
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.2, 0.5) * life)
        process.kill()
        if process.wait() == -signal.SIGKILL:
            kills += 1
        else:  # it was over before, but told how long it takes
            life = time.monotonic() - begin
            shutil.rmtree(tmp_path / "killed")
            kills = 0
    assert start(tmp_path / "killed").wait() == 0
    tables = [(tmp_path / name / "table.csv").read_text() for name in ("alone", "killed")]
    assert tables[0] == tables[1]
    assert tables[0].count("critic/loss") == 4
    logs = [log.read_text() for log in (tmp_path / "killed").glob("*/log.txt")]
    assert [log.count("done in") for log in logs] == [1, 1], "what has ended is not run again"
    assert sum(log.count("vinerl train") + log.count("vinerl resume") for log in logs) > 2
