"""vinerl train [AGENT] [--task NAME | --data FILE] [--seeds 0,1,2] [--agent.FIELD VALUE ...]"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import vinerl
from vinerl import cli
from vinerl.bench.commands import training as commands
from vinerl.bench.run import jobs
from vinerl.bench.run.jobs import Request
from vinerl.data import files
from vinerl.train import evaluate, offline

SOURCE = Path(vinerl.__file__).parents[1]


def parse(line):
    return commands.parse(line.split())


def test_without_arguments_nothing_is_asked_for():
    assert parse("") == Request(agent="vine")


@pytest.mark.parametrize(
    "line",
    [
        "vine --task x --seeds 0,1 --agent.alpha 3",
        "--task x vine --agent.alpha 3 --seeds 0,1",
        "--seeds 0,1 --task x --agent.alpha 3 vine",
        "--agent.alpha=3 vine --task=x --seeds=0,1",
        "--task x --seeds 0,1 --agent.alpha 3",
    ],
)
def test_options_and_agent_come_in_any_order(line):
    expected = Request(agent="vine", task="x", seeds=(0, 1), fields={"alpha": 3.0})
    assert parse(line) == expected


@pytest.mark.parametrize(
    ("words", "agent"),
    [
        ("fql --task x", "fql"),
        ("--task x fql", "fql"),
        ("--task=x fql", "fql"),
        ("--stop-on-bad fql", "fql"),
        ("--stop_on_bad fql", "fql"),
        ("--no-stop-on-bad fql --task x", "fql"),
        ("--help fql", "fql"),
        ("--agent.actor-hidden 8 8 fql", "fql"),
        ("--agent.actor-hidden 8 8", "vine"),
        ("--agent.actor_hidden 8 8 --task x", "vine"),
        ("--agent.chunk False", "vine"),
        ("--agent.chunk False my.py:MINE", "my.py:MINE"),
        ("--data fql", "vine"),
    ],
)
def test_the_agent_is_the_word_that_is_no_options_value(words, agent):
    name, rest = commands.agent_name(words.split())
    assert name == agent
    expected = words.split()
    if agent in expected:
        expected.remove(agent)
    assert rest == expected


@pytest.mark.parametrize("switch", ["--brisk-walk", "--no-brisk-walk", "--brisk_walk"])
def test_the_word_after_a_switch_of_another_name_may_be_the_agent(switch, monkeypatch):
    """One that comes to the options is known by its type."""

    @dataclass(frozen=True)
    class More(commands.Train):
        brisk_walk: bool = False
        pace: float = 1.0

    monkeypatch.setattr(commands, "Train", More)
    assert commands.agent_name([switch, "fql"]) == ("fql", [switch])
    assert commands.agent_name(["--balanced", "fql"]) == ("fql", ["--balanced"])
    assert commands.agent_name(["--pace", "fql"]) == ("vine", ["--pace", "fql"])


def test_several_values_of_a_float_field_stack_it():
    job = jobs.resolve(parse("--agent.alpha 1,3,10 --agent.lr 1e-3 --seeds 0,1"))
    assert job.config.alpha == (1.0, 3.0, 10.0)
    assert job.config.lr == 1e-3
    assert job.members == 6


def test_values_of_every_kind_reach_their_field():
    line = "--agent.chunk False --agent.actor-hidden 8 9 --agent.sampler euler --agent.stop-at 3"
    asked = parse(f"{line} --agent.flow_steps=5 --agent.max-grad-norm inf --agent.critic_hidden 7")
    assert asked.fields == {
        "chunk": False,
        "actor_hidden": (8, 9),
        "sampler": "euler",
        "stop_at": 3,
        "flow_steps": 5,
        "max_grad_norm": float("inf"),
        "critic_hidden": (7,),
    }


def test_dashes_and_underscores_are_the_same():
    dashed = parse("--eval-every 7 --final-episodes 2 --agent.batch-size 8 --stop-on-bad")
    assert dashed == parse("--eval_every 7 --final_episodes 2 --agent.batch_size 8 --stop_on_bad")
    assert (dashed.eval_every, dashed.final_episodes, dashed.stop_on_bad) == (7, 2, True)


def test_every_option_of_a_run_can_be_given():
    line = "--task x --data d.npz --seeds 3 --steps 5 --eval-every 0 --eval-episodes 2 --block 5"
    line += " --final-episodes 3 --log-every 5 --normalise none --workers 2 --dir a --out b"
    line += " --log tensorboard,wandb --stop-on-bad --deterministic --make-data --protocol qam"
    online = "--online-steps 10 --utd 2 --balanced --pretrain 7 --stack 2"
    asked = parse(f"{line} --shard-every 9 --drop-bad-rows --rescale-actions {online}")
    untouched = Request()
    for name in set(vars(untouched)) - {"agent", "fields"}:
        assert getattr(asked, name) != getattr(untouched, name), name
    assert (asked.seeds, asked.log) == ((3,), ("tensorboard", "wandb"))


def test_a_flag_that_repeats_the_default_still_beats_the_row():
    job = jobs.resolve(parse("--agent.alpha 10.0"))
    assert (job.config.alpha, job.origin["alpha"]) == (10.0, "flag")


@pytest.mark.parametrize(
    "line",
    [
        "--agent.alpha x",
        "--agent.alfa 3",
        "--agent.sampler heun",
        "--agent.flow-steps 2.5",
        "--seeds 0,x",
        "--normalise some",
        "--bogus",
        "vine vine",
    ],
)
def test_what_cannot_be_parsed_exits_with_two(line, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(line)
    assert stop.value.code == 2
    assert capsys.readouterr().err


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """The message of a command that exits with 2 before anything compiles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VINERL_DATA", str(tmp_path))
    monkeypatch.setattr(files, "OFFICIAL", tmp_path / "nothing")
    for module, name in [(offline, "start"), (offline, "train_block"), (evaluate, "policies")]:
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("it went on"))

    def run(*args):
        with pytest.raises(SystemExit) as stop:
            cli.main(args)
        assert stop.value.code == 2
        error = capsys.readouterr().err
        assert error.startswith("vinerl: ")
        assert "Traceback" not in error
        return error.removeprefix("vinerl: ").strip()

    return run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fly", "unknown command 'fly'; there are train, resume, evaluate"),
        ("train vin", "unknown agent 'vin'; there are vine, rebrac, fql"),
        ("train --task antmaze-lrge-navigate-singletask-task1-v0", "antmaze-large-navigate-single"),
        ("train --task antmaze-large-navigate-singletask-task1-v0", "no data for antmaze-large"),
        ("train --data nothing.npz", "nothing.npz: there is no such file"),
        ("train nothing:X", "cannot import nothing"),
        ("train --seeds 1,1", "a seed is given twice"),
        ("train --steps 0", "--steps 0"),
        ("train --steps 100 --block 33", "--block 33 must divide"),
        ("train --task x --data y", "exclude each other"),
        ("train --agent.actor-hidden 0", "--agent.actor_hidden (0,): expected a list of whole"),
        ("train --agent.critic-blocks 0", "--agent.critic_blocks 0: expected a whole number, 1"),
        ("evaluate nothing", "nothing holds no run"),
        ("plot nothing", "nothing holds no run"),
        ("compare nothing nothing", "nothing holds no run"),
        ("list nothing", "no runs below nothing"),
    ],
)
def test_what_the_user_can_put_right_is_said_before_anything_compiles(refused, line, message):
    assert message in refused(*line.split())


def episodes(rows=20):
    draw = np.random.default_rng(0)
    return {
        "observations": draw.normal(size=(rows, 3)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": np.zeros(rows, np.float32),
        "terminals": np.arange(rows) % 10 == 9,
    }


def spoiled(name, row=None, value=None):
    arrays = episodes()
    if row is None:
        arrays[name] = value
    else:
        arrays[name][row] = value
    return {k: v for k, v in arrays.items() if v is not None}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (spoiled("observations", 7, np.nan), "observations is NaN or infinite in 1 of 20 rows"),
        (spoiled("rewards", 3, np.inf), "infinite in 1 of 20 rows, first in row 3"),
        (spoiled("actions", slice(4, 6), 1.5), "actions leave [-1, 1] in 2 of 20 rows"),
        (spoiled("actions", value=np.zeros(20)), "actions has shape (20,), expected [rows, A]"),
        (spoiled("rewards", value=np.zeros(19)), "rewards has shape (19,), expected [rows]"),
        (spoiled("terminals"), "no terminals in it; it has actions, observations, rewards"),
        (spoiled("rewards"), "no rewards in it"),
        (spoiled("terminals", 19, False), "terminals must be 1 in row 19"),
    ],
)
def test_bad_data_are_refused_by_file_key_row_and_count(refused, arrays, message):
    np.savez("bad.npz", **arrays)
    error = refused("train", "--data", "bad.npz")
    assert error.startswith("bad.npz: ")
    assert message in error
    assert len(error.splitlines()) == 1
    assert not Path("runs").exists()


def test_a_file_of_another_kind_is_refused(refused):
    np.save("bad.npy", np.zeros(3))
    assert "bad.npy: not a readable .npz file" in refused("train", "--data", "bad.npy")


@pytest.mark.parametrize("kept", [0.01, 0.5, 0.999])
def test_a_truncated_file_is_refused(refused, kept):
    np.savez("bad.npz", **episodes())
    data = Path("bad.npz").read_bytes()
    Path("bad.npz").write_bytes(data[: int(kept * len(data))])
    assert "bad.npz: not a readable .npz file" in refused("train", "--data", "bad.npz")


def test_a_folder_that_holds_a_run_is_refused(refused, tmp_path):
    np.savez("good.npz", **episodes())
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "manifest.json").write_text("{}")
    error = refused("train", "--data", "good.npz", "--out", "there")
    assert "there already holds a run" in error


def python(*args, cwd, source=SOURCE, **env):
    """A Python of its own that knows the package by its sources alone."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)  # others may lie there
    paths = [str(source), *(path for path in given if path and not Path(path, "vinerl").exists())]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"} | env
    command = [sys.executable, *map(str, args)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_answers_in_a_second_and_needs_no_jax(tmp_path):
    took = []
    for _ in range(3):
        begin = time.monotonic()
        said = python("-m", "vinerl", "--help", cwd=tmp_path)
        took.append(time.monotonic() - begin)
    assert all(f"  {name}" in said for name in cli.COMMANDS)
    assert min(took) < 1
    code = "import sys; from vinerl.cli import main; main(['--help']); print(*sys.modules)"
    loaded = python("-c", code, cwd=tmp_path).splitlines()[-1].split()
    assert "vinerl.cli" in loaded
    assert not {"jax", "numpy", "tyro", "gymnasium", "vinerl.bench.commands.training"} & set(loaded)


def test_the_help_of_train_names_every_field_with_its_comment(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "--help"])
    assert stop.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    for words in ("--agent.alpha", "weight of the regulariser", "--eval-every", "--data"):
        assert words in said


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("train", "vinerl train vine [-h]"),
        ("resume", "vinerl resume [-h] [OPTIONS] RUN"),
        ("evaluate", "vinerl evaluate [-h] [OPTIONS] RUN"),
        ("compare", "vinerl compare [-h] RUN RUN ..."),
        ("sweep", "vinerl sweep [-h] [OPTIONS] SPEC"),
        ("data make", "vinerl data make [-h] [OPTIONS] DATASET"),
        ("data check", "vinerl data check [-h] FILE"),
    ],
)
def test_help_explains_every_option_in_words_and_no_default_is_none(capsys, command, usage):
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    own = said.split("agent options")[0]  # fields of an agent may mean something by None
    assert usage in said
    assert "None" not in own
    assert not re.search(r"--[a-z-]+ (INT|PATH|STR|FLOAT)(\[,\.\.\.\])? (\(default|--)", own)


def test_a_word_of_none_is_refused_where_it_means_nothing(capsys):
    with pytest.raises(SystemExit):
        parse("--steps None")
    assert "--steps" in capsys.readouterr().err
    assert parse("--agent.stop-at None").fields == {"stop_at": None}


def test_the_version_is_the_packages(capsys):
    cli.main(["--version"])
    assert capsys.readouterr().out.strip() == vinerl.__version__


def test_a_run_needs_no_installation_no_git_no_pictures_and_no_live_display(tmp_path):
    """A copy of the sources, without git, matplotlib and rich's progress bars.

    Flax itself imports other parts of rich.
    """
    ignore = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(SOURCE / "vinerl", tmp_path / "copy" / "vinerl", ignore=ignore).parent
    (copy / "sitecustomize.py").write_text(
        "import sys\n"
        "for name in ('matplotlib', 'rich.progress', 'wandb', 'tensorboardX'):\n"
        "    sys.modules[name] = None\n"
    )
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    np.savez(folder / "mine.npz", **episodes())
    tiny = "--agent.actor-hidden 8 --agent.critic-hidden 8 --agent.batch-size 16"
    tiny += " --agent.flow-steps 2 --steps 4"
    said = python(
        *["-m", "vinerl", "train", "--data", "mine.npz", *tiny.split()],
        cwd=folder,
        source=copy,
        PATH="",
        VINERL_COMMIT="abc123",
        JAX_DISABLE_MOST_OPTIMIZATIONS="1",
    )
    assert "training 4/4" in said
    assert "no pictures: matplotlib is not installed" in said
    run = folder / "runs" / "vine-mine"
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["ended"]
    assert manifest["commit"] == "abc123"
    assert not list(run.glob("*.png"))
