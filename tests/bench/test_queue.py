"""The queue: what it holds, what is missing of it, what fits into some minutes, and doing it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from vinerl.bench.numbers import results
from vinerl.bench.plans import entries, queue
from vinerl.bench.plans.entries import Entry
from vinerl.bench.run.runs import Run
from vinerl.collect import make, recipes
from vinerl.errors import InputError
from vinerl.train import metrics

HERE = Path(__file__).parents[2] / "results"
ANT = "antmaze-large-navigate-singletask-task2-v0"
POINT = "pointmaze-medium-navigate-singletask-task1-v0"

TWO = f"""
[first]
tasks = ["{ANT}", "scene-play-singletask-task4-v0"]
seeds = [0, 1]
steps = 1000
grid = [{{ sampler = "vine" }}, {{ sampler = "euler", actor_layer_norm = true }}]
[first.alpha]
antmaze-large = [3.0, 10.0]
scene-sparse = [300.0]

[second]
tasks = ["{ANT}"]
seeds = [0]
steps = 2000
run = {{ eval_every = 500, final_episodes = 7 }}
"""


def read(tmp_path, text):
    path = tmp_path / "queue.toml"
    path.write_text(text)
    return queue.read(path)


def published(entry, members):
    """Seeds as if these members of an entry had been measured."""
    from vinerl.bench.run import jobs, manifests

    job = jobs.resolve(entry.request)
    config = {k: manifests.freeze(v) for k, v in vars(job.config).items() if k not in results.HOW}
    return [
        results.Seed(
            Path(),
            {
                "task": entry.task,
                "steps": entry.steps,
                "agent": {
                    "name": "vine",
                    "config": config | {k: v for k, v in m.items() if k != "seed"},
                },
            },
            m["seed"],
            {},
        )
        for m in members
    ]


def test_a_cell_may_name_its_agent(tmp_path):
    text = f'[a]\ntasks = ["{ANT}"]\nseeds = [0]\nsteps = 9\ngrid = [{{agent = "fql"}}, {{}}]'
    found = read(tmp_path, text)
    assert [(e.agent, e.own) for e in found] == [("fql", {}), ("vine", {})]
    assert found[0].request.fields == {}


def test_a_section_is_its_tasks_by_its_grid(tmp_path):
    entries = read(tmp_path, TWO)
    assert [e.name for e in entries] == [
        "antmaze-large-navigate-task2-vine-vine-1k",
        "antmaze-large-navigate-task2-vine-euler-actor-layer-norm-true-1k",
        "scene-play-task4-vine-vine-1k",
        "scene-play-task4-vine-euler-actor-layer-norm-true-1k",
        "antmaze-large-navigate-task2-vine-2k",
    ]
    assert [e.members for e in entries] == [4, 4, 2, 2, 1]
    assert entries[1].request.fields == {
        "sampler": "euler",
        "actor_layer_norm": True,
        "alpha": (3.0, 10.0),
    }
    assert entries[4].request.final_episodes == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a\n", "cannot be read"),
        ("[a]\nseeds = [0]\n", r"\[a\] has no steps, tasks"),
        ('[a]\ntasks = ["ant-7"]\nseeds = [0]\nsteps = 10\n', "unknown task 'ant-7'"),
        (TWO.replace('"euler"', '"heun"'), r"\[first\] --agent.sampler heun"),
        (
            TWO.replace("actor_layer_norm", "actor_norm"),
            r"\[first\] vine has no field 'actor_norm'",
        ),
        (TWO.replace("scene-sparse", "scene"), r"\[first.alpha\] has no values for scene-sparse"),
        (TWO.replace("eval_every", "evals"), r"\[second\] run has evals; there are"),
        (TWO.replace("[0, 1]", "[0, 0]"), r"\[first\] --seeds 0,0: a seed is given twice"),
        (TWO + TWO.replace("first", "third").replace("second", "fourth"), "stands there twice"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_section(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_what_is_missing_is_what_nobody_published(tmp_path):
    first, _, _, _, last = read(tmp_path, TWO)
    all_four = [{"seed": s, "alpha": a} for a in (3.0, 10.0) for s in (0, 1)]
    assert sorted(map(str, queue.missing(first, []))) == sorted(map(str, all_four))
    some = published(first, all_four[:3])
    assert queue.missing(first, some) == [{"seed": 1, "alpha": 10.0}]
    assert queue.missing(first, published(first, all_four)) == []
    assert queue.missing(replace(first, steps=3000), some + published(last, [{"seed": 0}])) != []
    (seed,) = published(last, [{"seed": 0}])
    assert queue.missing(last, [seed]) == []
    cloned_first = seed._replace(recipe=seed.recipe | {"pretrain": 100})
    assert queue.missing(last, [cloned_first]) == [{"seed": 0}]


def test_one_dataset_at_a_time_as_much_as_fits(tmp_path):
    entries = read(tmp_path, TWO)
    seconds = [e.seconds for e in entries]
    making = queue.data_seconds(ANT, tmp_path)
    assert making > 0
    names = lambda minutes, seeds=(): [
        e.name for e, _ in queue.plan(entries, seeds, minutes, tmp_path)
    ]
    antmaze = [entries[i].name for i in (0, 1, 4)]
    assert names(1e6) == antmaze
    assert names((making + seconds[0] + seconds[1]) / 60) == antmaze[:2]
    assert names(0.1) == antmaze[:1], "something is always done"
    every = [{"seed": s, "alpha": a} for a in (3.0, 10.0) for s in (0, 1)]
    done = published(entries[0], every) + published(entries[1], every)
    done += published(entries[4], [{"seed": 0}])
    assert names(1e6, done) == [entries[2].name, entries[3].name]


def test_data_that_are_there_cost_nothing(tmp_path):
    (tmp_path / "antmaze-large-navigate-v0.npz").write_bytes(b"")
    assert queue.data_seconds(ANT, tmp_path) == 0


def test_the_cost_grows_with_steps_and_members(tmp_path):
    """Compilation, steps at 1.75 ms and 0.25 ms a member, the evaluation at the end."""
    entry = read(tmp_path, TWO)[0]
    assert entry.seconds == pytest.approx(60 + 1000 * (0.8 + 4 * 0.35) / 1000 + 60)


def test_the_projects_own_queue_can_be_read():
    entries = queue.read(HERE / "queue.toml")
    assert {e.group for e in entries} >= {"ablation-sampler"}
    assert all(queue.status(entries, results.read(HERE)))


def test_flags_say_the_same_as_the_entry(tmp_path):
    from vinerl.bench.commands.training import parse
    from vinerl.bench.run import jobs

    for entry in read(tmp_path, TWO):
        given, meant = (jobs.resolve(r) for r in (parse(entries.flags(entry)), entry.request))
        for name in ("config", "seeds", "steps", "eval_every", "final_episodes", "task"):
            assert getattr(given, name) == getattr(meant, name), name


TINY = f"""
[tiny]
tasks = ["{POINT}"]
seeds = [0, 1]
steps = 40
run = {{ eval_every = 20, eval_episodes = 1, final_episodes = 1, block = 2 }}
common = {{ actor_hidden = [8, 8], critic_hidden = [8, 8], batch_size = 16 }}
grid = [{{ sampler = "vine" }}, {{ sampler = "euler" }}]
"""


@pytest.mark.slow
def test_it_is_worked_off_in_pieces_and_comes_out_the_same(tmp_path, monkeypatch):
    """Stopped by the clock in the middle of a run, asked again: the same table as undisturbed."""
    data = tmp_path / "data"
    recipe = replace(recipes.official("pointmaze-medium-navigate-v0"), episodes=3, rows=101)
    make.make(recipe, data, processes=2)
    tiny = read(tmp_path, TINY)
    alone = queue.work(tiny, tmp_path / "alone", 60, data, tmp_path / "runs-alone")
    assert len(alone) == 4

    stopped = []

    def impatient(entry, out, folder, over):
        """The clock strikes as soon as a first checkpoint is there."""
        saved = lambda: over() or any(out.glob("checkpoints/state-*.json"))
        done = entries.run(entry, out, folder, over if stopped else saved)
        stopped.extend([] if done else [out])
        return done

    monkeypatch.setattr(queue, "run", impatient)
    at, pieces = tmp_path / "pieces", 0
    while len(results.read(at)) < 4:
        queue.work(tiny, at, 60, data, tmp_path / "runs")
        pieces += 1
        assert pieces < 5
    assert stopped
    for one, other in zip(results.read(tmp_path / "alone"), results.read(at), strict=True):
        assert one.recipe == other.recipe
        for part in ("curve", "final", "metrics"):
            assert one.facts[part] == other.facts[part]
    assert not queue.plan(tiny, results.read(at), 60, data)
    run = Run(next((tmp_path / "runs").iterdir()))
    assert metrics.curve(run.metrics, "eval/success")[0].tolist() == [20, 40]
    assert json.loads((run.path / "manifest.json").read_text())["ended"]


def test_a_run_that_fails_is_said(tmp_path, monkeypatch):
    entry = Entry("x", POINT, "vine", (0,), 10)
    monkeypatch.setattr(entries, "flags", lambda _: ["--bogus"])
    with pytest.raises(InputError, match="ended with exit code 2; see above"):
        entries.run(entry, tmp_path / "run", tmp_path, lambda: False)
