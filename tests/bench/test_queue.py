"""The queue: what it holds, and what is missing of it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from vinerl.bench.numbers import results
from vinerl.bench.plans import entries, queue
from vinerl.errors import InputError

HERE = Path(__file__).parents[2] / "results"
ANT = "antmaze-large-navigate-singletask-task2-v0"

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
                "data": {"recipe": {"seed": entry.data_seed}},
                "protocol": {"normalise": "none"},
                "agent": {
                    "name": "vine",
                    "config": config | {k: v for k, v in m.items() if k != "seed"},
                },
            },
            m["seed"],
            {"final": {"success": 0.5}},
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
        (f"{TWO}data_seed = -1\n", r"\[second\] data_seed = -1: expected 0, 1, 2"),
        (f"{TWO}data_seed = true\n", r"\[second\]: data_seed = True: expected 0, 1, 2"),
        (f'{TWO}data_seed = "1"\n', r"\[second\]: data_seed = '1': expected 0, 1, 2"),
        (f"steps = 5\n{TWO}", "steps = 5 stands in no section"),
        (TWO.replace("seeds = [0]", "seeds = 3"), r"\[second\]: seeds = 3: expected a list of w"),
        (TWO.replace("seeds = [0]", 'seeds = ["0"]'), r"\[second\]: seeds = \['0'\]: expected a"),
        (TWO.replace("seeds = [0]", "seeds = [true]"), r"\[second\]: seeds = \[True\]: expected"),
        (
            TWO.replace("steps = 2000", "steps = 2000.0"),
            r"\[second\]: steps = 2000.0: expected a w",
        ),
        (f"{TWO}agent = 3\n", r"\[second\]: agent = 3: expected a name"),
        (f"{TWO}alpha = 3.0\n", r"\[second\]: unknown key 'alpha'; there are agent, tasks, "),
        (f"{TWO}common = 3\n", r"\[second\]: common = 3: expected a table"),
        (TWO.replace("run = {", "run = [1]#"), r"\[second\]: run = \[1\]: expected a table"),
        (f"{TWO}grid = [{{ agent = 3 }}]\n", r"agent = 3: expected a name"),
        (f'{TWO}grid = ["vine"]\n', r"\[second\]: grid = \['vine'\]: expected a list of tables"),
        (f"{TWO}grid = {{ sampler = 1 }}\n", r"\[second\]: grid = .*: expected a list"),
        (TWO.replace("grid =", "gird ="), r"\[first\]: unknown key 'gird'"),
        (TWO.replace("[0, 1]", "[0, 0]"), r"\[first\] --seeds 0,0: a seed is given twice"),
        (TWO + TWO.replace("first", "third").replace("second", "fourth"), "stands there twice"),
        (
            f'{TWO}[third]\ntasks = ["{ANT}"]\nseeds = [1]\nsteps = 2000\n',
            "two entries would share the folder antmaze-large-navigate-task2-vine-2k",
        ),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_section(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_only_what_is_missing_is_measured(tmp_path):
    first, *_, last = read(tmp_path, TWO)
    of = lambda *seeds: [{"seed": seed, "alpha": a} for seed in seeds for a in (3.0, 10.0)]
    (rest,) = queue.left([first], published(first, of(0)))
    assert (rest.seeds, rest.members) == ((1,), 2)
    assert rest.name == first.name + "-seeds-1"
    assert rest.cost().seconds < first.cost().seconds
    assert queue.left([first], published(first, of(0, 1))) == []
    assert queue.left([first, last], []) == [first, last]
    corner = published(first, of(0)[:1])
    assert queue.left([first], corner) == [first]  # three members of four are no stack
    (rest,) = queue.left([first], published(first, of(0) + of(1)[:1]))
    assert (rest.seeds, rest.fields["alpha"], rest.members) == ((1,), 10.0, 1)
    (rest,) = queue.left([first], published(first, [of(0)[0], of(1)[0]]))
    assert (rest.seeds, rest.fields["alpha"], rest.members) == ((0, 1), 10.0, 2)
    assert rest.name == first.name + "-alpha-10.0"
    assert queue.missing(rest, []) == [{"seed": 0}, {"seed": 1}]


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
    for other in ({"pretrain": 100}, {"protocol": {"normalise": "standard"}}):
        changed = seed._replace(recipe=seed.recipe | other)
        assert queue.missing(last, [changed]) == [{"seed": 0}]
    cut_off = seed._replace(facts={"final": None})
    assert queue.missing(last, [cut_off]) == [{"seed": 0}]
    assert queue.missing(replace(last, run={"final_episodes": 0}), [cut_off]) == []


def test_the_same_agent_under_both_protocols_has_two_folders(tmp_path):
    text = f'[a]\ntasks = ["{ANT}"]\nagent = "fql"\nseeds = [0]\nsteps = 9\n'
    other = text.replace("[a]", "[b]") + 'run = { protocol = "vine" }\n'
    both = read(tmp_path, text + other)
    assert [e.name.rpartition("task2-")[2] for e in both] == ["fql-9", "fql-protocol-vine-9"]
    assert [e.job.config.batch_size for e in both] == [256, 512]


def test_another_set_of_data_is_another_entry(tmp_path):
    """With a folder of its own; neither answers the other. Official data count as the usual."""
    *_, last = read(tmp_path, TWO)
    text = TWO + TWO[TWO.index("[second]") :].replace("second", "third") + "data_seed = 1\n"
    *_, again, other = read(tmp_path, text)
    assert again == last
    assert other.name == f"{last.name}-data-1"
    assert other.dataset == ("antmaze-large-navigate-v0", 1)
    assert other.dataset.folder(tmp_path) == tmp_path / "seed-1"
    assert last.dataset.folder(tmp_path) == tmp_path
    (seed,) = published(last, [{"seed": 0}])
    (apart,) = published(other, [{"seed": 0}])
    official = seed._replace(recipe=seed.recipe | {"data": {"origin": "official", "sha256": "0"}})
    assert queue.left([last, other], [apart]) == [last]
    assert queue.left([last, other], [seed]) == [other]
    assert queue.left([last, other], [official]) == [other]


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


ONE = f'[NAME]\ntasks = ["{ANT}"]\nseeds = [0]\nsteps = STEPS\nrun = {{ RUN }}\n'


def sections(*several):
    """One entry each, of so many steps and with this option."""
    words = [{"NAME": f"a{i}", "STEPS": str(n), "RUN": run} for i, (n, run) in enumerate(several)]
    return "".join(re.sub("|".join(of), lambda found, of=of: of[found[0]], ONE) for of in words)


def test_entries_that_differ_in_what_comes_before_or_after_are_two(tmp_path):
    online = "online_steps = 500"
    text = sections(
        (2000, ""),
        (2000, "pretrain = 100"),
        (2000, online),
        (2000, f"{online}, utd = '4'"),
        (2000, f"{online}, balanced = true"),
        (2000, "normalise = 'standard'"),
    )
    found = read(tmp_path, text)
    short = [entry.name.removeprefix("antmaze-large-navigate-task2-vine-") for entry in found]
    assert short == [
        "2k",
        "pretrain-100-2k",
        "online-steps-500-2k",
        "online-steps-500-utd-4-2k",
        "online-steps-500-balanced-True-2k",
        "normalise-standard-2k",
    ]
    trained = [entry.cost().training for entry in found]
    assert trained[1] == pytest.approx(trained[0] * 2100 / 2000)
    assert trained[2] == pytest.approx(trained[0] * 2500 / 2000)
    assert trained[3] == pytest.approx(trained[0] * 4000 / 2000)
    assert found[0].cost(done=9000).training == 0
    with pytest.raises(InputError, match="stands there twice"):
        read(tmp_path, sections((2000, ""), (2000, "eval_every = 0")))


def test_lengths_that_share_their_thousands_have_folders_of_their_own(tmp_path):
    found = read(tmp_path, sections((2000, ""), (2500, "")))
    assert [entry.name.rpartition("-")[2] for entry in found] == ["2k", "2.5k"]
