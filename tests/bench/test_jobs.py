"""A flag beats the task's row, which beats the default; what cannot be is refused."""

import shutil
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from vinerl import disk
from vinerl.agents import AGENTS
from vinerl.bench.commands import training as commands
from vinerl.bench.run import configs, jobs, running, tasks, tuned
from vinerl.envs import ogbench
from vinerl.errors import InputError
from vinerl.train import loop

ANT = "antmaze-large-navigate-singletask-task1-v0"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder without runs; a module of one test is not another's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("my_agent", None)


def resolve(agent="vine", **options):
    return jobs.resolve(jobs.request(agent, options))


def test_a_flag_beats_the_row_which_beats_the_default():
    job = resolve(alpha=7.0, steps=500)
    assert (job.config.alpha, job.origin["alpha"]) == (7.0, "flag")
    assert (job.config.lr, job.origin["lr"]) == (1e-3, "row: us, for the default job")
    assert (job.config.tau, job.origin["tau"]) == (0.005, "default")
    assert (job.steps, job.origin["steps"]) == (500, "flag")
    assert (job.seeds, job.origin["seeds"]) == ((0, 1, 2), "row")
    assert set(job.origin) >= {f.name for f in fields(job.config)}


def test_without_arguments_it_is_the_default_job():
    job = resolve()
    assert job.task.name == tasks.DEFAULT
    assert job.episodes == 400, "whose data the program makes itself"
    assert (job.normalise, job.steps, job.config.alpha, job.config.horizon) == (
        "standard",
        6000,
        1.0,
        10,
    )
    assert (job.config.flow_steps, job.config.sampler) == (10, "vine")
    assert job.eval_episodes == 10
    assert job.final_episodes == 50


def test_antmaze_takes_the_papers_row():
    job = resolve(task=ANT)
    config = job.config
    assert (config.alpha, config.discount, config.batch_size) == (10.0, 0.995, 512)
    assert (config.critic_hidden, config.critic_blocks, config.critics) == ((512,) * 4, 2, 2)
    assert job.origin["alpha"] == "row: the VINE paper's table"
    assert (job.steps, job.eval_every, job.normalise) == (1_000_000, 20_000, "none")
    assert job.episodes is None


@pytest.mark.parametrize(
    ("task", "alpha", "hidden"),
    [
        ("antmaze-giant-navigate-singletask-task3-v0", 10, 4),
        ("humanoidmaze-medium-navigate-singletask-task1-v0", 30, 2),
        ("humanoidmaze-large-navigate-singletask-task1-v0", 20, 2),
        ("scene-play-singletask-task2-v0", 300, 4),
        ("puzzle-3x3-play-singletask-task4-v0", 1000, 4),
        ("cube-double-play-singletask-task2-v0", 300, 2),
        ("cube-triple-play-singletask-task5-v0", 300, 2),
    ],
)
def test_every_domain_of_the_paper_has_its_row(task, alpha, hidden):
    config = resolve(task=task).config
    assert (config.alpha, config.critic_hidden) == (alpha, (512,) * hidden)


def test_other_tasks_of_a_domain_without_a_row_keep_the_defaults():
    job = resolve(task="pointmaze-giant-navigate-singletask-task1-v0")
    assert job.config == AGENTS["vine"][0]
    assert set(job.origin.values()) == {"default"}


def test_scene_and_puzzle_are_sparse_and_others_are_not():
    sparse = {name for name in ogbench.TASKS if tasks.named(name).sparse}
    assert sparse == {name for name in ogbench.TASKS if name.startswith(("scene", "puzzle"))}
    assert all(tasks.named(name).domain.endswith("-sparse") for name in sparse)


def test_numbers_of_numpy_are_numbers():
    """A manifest is JSON, and JSON knows none of them."""
    seeds, alpha = np.arange(2), np.linspace(1, 3, 2)
    job = resolve(seeds=seeds, alpha=alpha, steps=np.int64(20), discount=np.float32(0.5))
    assert (job.seeds, job.steps) == ((0, 1), 20)
    assert (job.config.alpha, job.config.discount) == ((1.0, 3.0), 0.5)
    assert {type(x) for x in (*job.seeds, job.steps)} == {int}


def test_a_list_for_a_float_field_is_several_members():
    job = resolve(alpha=(1.0, 3.0, 10.0), seeds=[0, 1])
    assert job.members == 6


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"agent": "vinne"}, r"unknown agent 'vinne'; there are vine, rebrac, fql"),
        ({"task": "antmaze-large-navigate"}, r"(?s)unknown task .*antmaze-large-navigate-single"),
        ({"alfa": 3.0}, r"vine has no field 'alfa'; nearest: alpha"),
        ({"block": 7, "steps": 100, "eval_every": 50}, r"--block 7 must divide 5"),
        ({"seeds": (0, 1, 0)}, r"--seeds 0,1,0: a seed is given twice"),
        ({"seeds": (-1,)}, r"--seeds -1"),
        ({"seeds": (2**32,)}, r"--seeds 4294967296"),
        ({"seeds": ()}, r"--seeds "),
        ({"task": ANT, "data": "x.npz"}, r"--task and --data exclude each other"),
        ({"steps": 0}, r"--steps 0"),
        ({"eval_every": -5}, r"--eval-every -5"),
        ({"log_every": -3}, r"--log-every -3"),
        ({"block": -2}, r"--block -2"),
        ({"workers": 0}, r"--workers 0"),
        ({"eval_episodes": 0}, r"--eval-episodes 0"),
        ({"shard_every": 0}, r"--shard-every 0: expected a whole number, 1 or more"),
        ({"stack": -1}, r"--stack -1: expected a whole number, 0 or more"),
        ({"rescale_actions": True}, r"--rescale-actions is for --data: the actions of pointmaze"),
        ({"task": ANT, "rescale_actions": True}, r"--rescale-actions is for --data"),
        ({"log": ("paper",)}, r"--log paper: there are tensorboard, wandb"),
        ({"alpha": float("nan")}, r"--agent.alpha nan: expected a number"),
        ({"alpha": (1.0, "x")}, r"--agent.alpha .*: expected a number"),
        ({"alpha": (1.0, 3.0, 1.0)}, r"--agent.alpha \(1.0, 3.0, 1.0\): a value is given twice"),
        ({"batch_size": 0}, r"--agent.batch_size 0"),
        ({"flow_steps": 0}, r"--agent.flow_steps 0"),
        ({"best_of": 0}, r"--agent.best_of 0: expected a whole number, 1 or more"),
        ({"horizon": 2.5}, r"--agent.horizon 2.5"),
        ({"critic_blocks": 0}, r"--agent.critic_blocks 0: expected a whole number, 1 or more"),
        (
            {"actor_hidden": (8, 0)},
            r"--agent.actor_hidden \(8, 0\): expected a list of whole numbers, 1 or more",
        ),
        ({"critic_hidden": (-8,)}, r"--agent.critic_hidden \(-8,\): expected a list of whole"),
        ({"lr": -1}, r"--agent.lr -1: expected a number above 0, or several"),
        ({"lr": (1e-3, 0.0)}, r"--agent.lr \(0.001, 0.0\): expected a number above 0"),
        ({"lr_end": -0.1}, r"--agent.lr_end -0.1: expected a number, 0 or more"),
        ({"tau": 5}, r"--agent.tau 5: expected a number above 0, 1 at most"),
        ({"tau": (0.005, 0.0)}, r"--agent.tau \(0.005, 0.0\): expected a number above 0"),
        ({"discount": (0.99, 1.01)}, r"--agent.discount \(0.99, 1.01\): .* a number from 0 to 1"),
        ({"max_grad_norm": 0}, r"--agent.max_grad_norm 0: expected a number above 0"),
    ],
)
def test_what_cannot_be_is_refused(options, match):
    with pytest.raises(InputError, match=match):
        resolve(**options)


def test_a_folder_that_holds_a_run_is_refused(tmp_path):
    assert resolve(out=tmp_path).out == tmp_path, "one that exists is fine"
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="already holds a run; choose another --out"):
        resolve(out=tmp_path)


def test_a_run_without_a_name_gets_one_that_is_free():
    both = [jobs.claim(job).out for job in [resolve(), resolve()]]
    name = "runs/vine-pointmaze-medium-navigate-task1"
    assert both == [Path(name), Path(f"{name}-2")], "also where two are started at once"
    assert resolve(data="here/mine.npz").out == Path("runs/vine-mine")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"regulariser": "endpont"}, "there are endpoint, estimates, flow, teacher"),
        ({"sampler": "heun"}, "there are vine, euler"),
        ({"precision": "bf16"}, "there are float32, bfloat16"),
        ({"normalise": "std"}, "there are none, standard"),
        ({"make_data": "no"}, "--make-data no: expected True or False"),
        ({"stop_on_bad": 1}, "--stop-on-bad 1: expected True or False"),
        ({"steps": 1e3}, "--steps 1000.0: expected a whole number"),
        ({"alpha": ()}, "expected a number, 0 or more, or several"),
        ({"stop_at": 0}, "expected 1 to flow_steps, which is 10"),
        ({"stop_at": 11}, "expected 1 to flow_steps, which is 10"),
        ({"stop_at": 2.5}, "--agent.stop_at 2.5: expected a whole number, or None"),
        ({"chunk": "false"}, "--agent.chunk false: expected True or False"),
        ({"chunk": 0}, "--agent.chunk 0: expected True or False"),
        ({"unroll": "yes"}, "--agent.unroll yes: expected True or False, or None"),
        ({"critics": True}, "--agent.critics True: expected a whole number, 1 or more"),
        ({"critics": (2, 10)}, "expected a whole number, 1 or more"),
        ({"actor_hidden": 256}, "--agent.actor_hidden 256: expected a list of whole numbers"),
        ({"actor_hidden": (8.0,)}, "expected a list of whole numbers"),
        ({"actor_hidden": "256"}, "--agent.actor_hidden 256: expected a list of whole numbers"),
        ({"alpha": True}, "--agent.alpha True: expected a number"),
        ({"lr": "fast"}, "--agent.lr fast: expected a number above 0"),
    ],
)
def test_values_that_cannot_be_are_refused_from_python_too(options, said):
    with pytest.raises(InputError, match=said):
        resolve(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"actor_hidden": [8, 9], "critic_hidden": ()},
        {"fused": None, "unroll": False, "stop_at": 10},
        {"tau": 1, "discount": (0, 1), "lr": np.float32(1e-3), "max_grad_norm": float("inf")},
        {"critic_blocks": np.int64(1), "lr_end": (0.0, 1.0)},
    ],
)
def test_values_at_their_bounds_are_taken(options):
    config = resolve(**options).config
    assert {name: getattr(config, name) for name in options} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in options.items()
    }


@pytest.mark.parametrize("agent", AGENTS)
def test_no_value_of_ours_is_refused(agent):
    """An agent's name is no value: it says that the row is that agent's."""
    default, _ = AGENTS[agent]
    configs.check(default)
    for task in map(tasks.named, ogbench.TASKS):
        for protocol in (None, *(tuned.RUN if task.domain in tuned.DOMAINS else ())):
            row = tuned.row(agent, task, protocol)
            values = {n: v for n, v in (row.agent if row else {}).items() if v not in AGENTS}
            configs.check(replace(default, **values))


def test_a_single_seed_is_a_seed():
    assert resolve(seeds=3).seeds == (3,)


@pytest.mark.parametrize("steps", [1, 7, 20, 1000, 6000, 1_000_000])
@pytest.mark.parametrize("eval_every", [0, 1, 10, 1000, None])
def test_a_block_always_fits_what_is_due(steps, eval_every):
    job = resolve(task=ANT, steps=steps, eval_every=eval_every)
    limit = loop.interval(job.steps, job.log_every, job.eval_every)
    assert limit >= 1
    assert job.log_every % limit == job.steps % limit == job.eval_every % limit == 0
    assert job.eval_every <= job.steps or eval_every


def test_own_data_are_standardised_unless_told_otherwise():
    job = resolve(data="x.npz")
    assert (job.normalise, job.origin["normalise"]) == ("standard", "default for own data")
    assert job.task is None
    assert resolve(data="x.npz", normalise="none").normalise == "none"


def test_files_of_a_folder_take_turns_of_a_thousand_steps_unless_told_otherwise():
    job = resolve(data="parts")
    assert (job.shard_every, job.origin["shard_every"]) == (1000, "default")
    job = resolve(data="parts", shard_every=50)
    assert (job.shard_every, job.origin["shard_every"]) == (50, "flag")


def test_what_is_put_right_is_asked_for():
    job = resolve(data="x.npz")
    assert (job.drop_bad_rows, job.rescale_actions) == (False, False)
    job = resolve(data="x.npz", drop_bad_rows=True, rescale_actions=True)
    assert (job.drop_bad_rows, job.rescale_actions) == (True, True)


def test_what_belongs_to_the_machine_arrives(monkeypatch):
    assert resolve().stack == 0
    assert jobs.resolve(commands.parse(["--stack", "3"])).stack == 3
    asked = []
    monkeypatch.setattr(running, "resume", lambda *words: asked.append(words))
    commands.resume(["there", "--stack", "2", "--workers", "3"])
    assert asked == [(Path("there"), None, 2, None, 3, None, None)]


@pytest.mark.parametrize("switch", ["--drop-bad-rows", "--rescale-actions", "--drop_bad_rows"])
def test_the_word_after_a_switch_may_be_the_agent(switch):
    line = [switch, "--data", "x.npz", "--shard-every", "20"]
    assert commands.agent_name([switch, "fast", *line[1:]]) == ("fast", line)
    asked = commands.parse(line)
    assert (asked.agent, asked.shard_every) == ("vine", 20)
    assert asked.drop_bad_rows != asked.rescale_actions


def test_the_folder_of_datasets_is_given_or_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("VINERL_DATA", str(tmp_path / "a"))
    assert resolve().folder == tmp_path / "a"
    assert resolve(dir=tmp_path / "b").folder == tmp_path / "b"


MINE = """
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
from vinerl.agents.vine import VineConfig, make_vine

@dataclass(frozen=True)
class Config(VineConfig):
    warmth: float = 2.0
    words: str = "none"
    places: Path | None = None
    table: dict[str, int] | None = None
    warmup: int = 1e3  # of another type than it says
    least: int = None
    critics: int = 0
    levels: tuple[float, ...] = (0.5, 1.5)

MINE = (Config(), make_vine)
WRONG = make_vine
"""


@pytest.mark.parametrize("name", ["my_agent:MINE", "my_agent.py:MINE", "{}/my_agent.py:MINE"])
def test_an_agent_of_ones_own_is_found_by_module_or_file(tmp_path, name):
    (tmp_path / "my_agent.py").write_text(MINE)
    job = resolve(name.format(tmp_path), warmth=(1.0, 3.0), seeds=(0,))
    assert type(job.config).__name__ == "Config"
    assert job.members == 2, "and its float fields stack"
    assert job.out.name == "MINE-pointmaze-medium-navigate-task1"
    assert job.config.alpha == 10.0, "no other agent's row"
    assert (job.steps, job.episodes) == (6000, 400), "but the default job's run"
    assert jobs.agent(job.agent)[0].warmth == 2.0, "and it is found again under the name kept"
    assert job.agent_sha256 == disk.sha256(tmp_path / "my_agent.py")


def test_fields_of_an_agent_of_ones_own_are_held_to_what_their_types_say(tmp_path):
    """Values that are given, that is: what the class itself says need not."""
    (tmp_path / "my_agent.py").write_text(MINE)
    given = {"words": "some", "places": Path("x"), "table": {"a": 1}, "levels": (1, 2.5)}
    given["least"] = 0
    config = resolve("my_agent:MINE", **given).config
    assert {name: getattr(config, name) for name in given} == given
    assert (config.warmup, config.critics) == (1e3, 0)
    for name, value in {"warmup": 2.5, "least": "x", "critics": -1, "warmth": "hot"}.items():
        with pytest.raises(InputError, match=f"--agent.{name} {value}: expected a"):
            resolve("my_agent:MINE", **{name: value})


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("nowhere:MINE", "cannot import nowhere"),
        ("nowhere.py:MINE", "cannot import nowhere.py"),
        ("my_agent:WRONG", "expected WRONG = "),
        ("my_agent:NOTHING", "expected NOTHING = "),
    ],
)
def test_an_agent_that_is_none_is_refused(tmp_path, name, match):
    (tmp_path / "my_agent.py").write_text(MINE)
    with pytest.raises(InputError, match=match):
        resolve(name)


@pytest.mark.parametrize(
    ("eval_every", "log_every", "save_every"),
    [
        (500, None, 500),
        (10_000, None, 10_000),
        (20_000, None, 10_000),
        (30_000, None, 6000),
        (50_000, None, 10_000),
        (50_000, 20_000, 10_000),
        (50_000, 25_000, 25_000),
    ],
)
def test_a_checkpoint_is_never_far_behind(eval_every, log_every, save_every):
    """It divides the evaluations' interval, and shares no less with the log's than they did."""
    job = jobs.resolve(jobs.Request(steps=100_000, eval_every=eval_every, log_every=log_every))
    assert job.save_every == save_every
    assert job.eval_every % job.save_every == 0
    assert loop.interval(job.eval_every, job.log_every, job.save_every) == loop.interval(
        job.eval_every, job.log_every
    )


@pytest.mark.parametrize(
    ("options", "save_every"),
    [
        ({"steps": 1_000_000}, 10_000),
        ({"steps": 300_000}, 6_000),  # logged every 3,000; ten parts of 30,000
        ({"steps": 40, "log_every": 10}, 10),
        ({"steps": 20_000}, 2_000),
    ],
)
def test_nor_is_it_without_evaluations(options, save_every):
    request = jobs.request("vine", {"data": "x.npz", "eval_every": 0} | options)
    assert jobs.resolve(request).save_every == save_every


@pytest.mark.parametrize("alpha", [300, 300.0, [300.0], (300,), np.float32(300)])
def test_a_float_field_is_a_float_however_it_is_written(alpha):
    config = jobs.resolve(jobs.request("vine", {"alpha": alpha})).config
    assert type(config.alpha) is float
    assert config.alpha == 300.0


def test_several_values_of_a_float_field_are_floats():
    config = jobs.resolve(jobs.request("vine", {"alpha": [1, 3]})).config
    assert config.alpha == (1.0, 3.0)
    assert {type(x) for x in config.alpha} == {float}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--data shards/a.npz shards/b.npz", "shards/b.npz: data are given once"),
        ("--rescale-actions True", "--rescale-actions takes no value: give --rescale-actions or"),
        ("--no-rescale-actions False", "give --rescale-actions or --no-rescale-actions"),
        ("vinne", "unknown agent 'vinne'"),
    ],
)
def test_a_stray_word_is_told_from_an_agent(line, said):
    with pytest.raises(InputError, match=said):
        jobs.resolve(commands.parse(line.split()))


@pytest.mark.parametrize("value", [-1.0, np.inf, np.nan])
@pytest.mark.parametrize("name", ["alpha", "noise"])
def test_weights_and_noise_are_numbers_from_0_on(name, value):
    with pytest.raises(InputError, match=f"--agent.{name} .*: expected a number, 0 or more"):
        jobs.resolve(jobs.request("vine", {name: value}))


def test_in_an_agent_of_ones_own_these_names_may_mean_something_else(tmp_path):
    text = (EXAMPLES / "my_agent.py").read_text().replace("weight", "alpha")
    (tmp_path / "mine.py").write_text(text)
    request = jobs.request(f"{tmp_path / 'mine.py'}:MINE", {"alpha": -1.0})
    assert jobs.resolve(request).config.alpha == -1.0
    with pytest.raises(InputError, match="expected a finite number"):
        jobs.resolve(replace(request, fields={"alpha": np.inf}))
    endless = text.replace("alpha: float = 0.1", 'alpha: float = float("inf")')
    (tmp_path / "endless.py").write_text(endless)
    request = jobs.request(f"{tmp_path / 'endless.py'}:MINE", {})
    assert jobs.resolve(request).config.alpha == np.inf


def test_what_an_agents_file_imports_may_lie_beside_it(tmp_path):
    text = (EXAMPLES / "my_agent.py").read_text()
    (tmp_path / "helpers_of_mine.py").write_text(text)
    (tmp_path / "mine.py").write_text("from helpers_of_mine import MINE\n")
    assert jobs.agent(f"{tmp_path / 'mine.py'}:MINE")[0].weight == 0.1
    other = tmp_path / "other"
    shutil.copytree(tmp_path, other)
    with pytest.raises(InputError, match=r"other.mine.py: importing helpers_of_mine would give it"):
        jobs.agent(f"{other / 'mine.py'}:MINE")
