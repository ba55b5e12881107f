"""Published seeds: what may be averaged, what is refused, and what is told with a number."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

import cells
from vinerl import disk
from vinerl.agents import AGENTS
from vinerl.bench.numbers import publishing, results, summary
from vinerl.bench.run import manifests
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError

PUBLISHED = Path(__file__).parents[2] / "results" / "antmaze-large-navigate-task1" / "vine"


def write(folder, evaluated, **changes):
    """The published run with other evaluations, cut off where these end."""
    folder.mkdir()
    manifest = json.loads((PUBLISHED / "manifest.json").read_text())
    disk.write_sealed(folder / "manifest.json", manifest | changes)
    lines = [json.loads(line) for line in (PUBLISHED / "metrics.jsonl").read_text().splitlines()]
    lines = [x for x in lines if "eval/success" not in x and x["step"] <= evaluated[-1]["step"]]
    lines = sorted(lines + evaluated, key=lambda line: line["step"])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(folder)


def every_10k(until):
    """Every 10k steps; the third seed has successes of its own."""
    third = {60_000: 0.9, 70_000: 0.7}
    line = lambda step: {"step": step, "eval/success": [1.0, 1.0, third.get(step, 1.0), 1.0]}
    return [line(step) for step in range(10_000, until + 1, 10_000)]


@pytest.fixture
def run(tmp_path):
    """A run that has ended."""
    end = {"step": 150000, "eval/success": [0.9, 0.8, 1.0, 0.7]}
    end |= {"eval/success_noise0": [0.5, 0.6, 0.7, 0.8]}
    return write(tmp_path / "run", [*every_10k(140_000), end])


def changed(run, folder, **changes):
    """The same run under another manifest."""
    manifest = copy.deepcopy(run.manifest)
    for name, value in changes.items():
        at = manifest
        *above, last = name.split("__")
        for part in above:
            at = at[part]
        at[last] = value
    folder.mkdir()
    disk.write_sealed(folder / "manifest.json", manifest)
    (folder / "metrics.jsonl").write_bytes((run.path / "metrics.jsonl").read_bytes())
    return Run(folder)


def test_every_seed_gets_a_file_with_its_own_numbers(run, tmp_path):
    paths = publishing.publish(run, tmp_path / "results")
    assert [p.name for p in paths] == [*(f"seed-{i}.json" for i in range(4)), "run"]
    seeds = results.read(tmp_path / "results")
    assert [seed.score for seed in seeds] == [0.9, 0.8, 1.0, 0.7]
    third = seeds[2].facts
    assert third["final"] == {"step": 150000, "success": 1.0, "success_noise0": 0.7}
    assert third["curve"]["step"] == list(range(10_000, 140_001, 10_000))
    assert third["curve"]["success"][5:8] == [0.9, 0.7, 1.0]
    assert len(third["metrics"]["grad_norm/step"]) == 11
    assert third["provenance"]["commit"] == run.manifest["commit"]
    assert max(p.stat().st_size for p in paths) < 60_000


def test_a_cell_is_the_seeds_of_one_recipe(run, tmp_path):
    publishing.publish(run, tmp_path / "results")
    (cell,) = results.cells(results.read(tmp_path / "results"))
    mean, low, high = cell.mean()
    assert mean == pytest.approx(0.85)
    assert 0.7 <= low < mean < high <= 1.0
    assert cell.differing() == {}
    assert cell.recipe["steps"] == 150000
    assert cell.recipe["data"]["recipe"]["dataset"] == "antmaze-large-navigate-v0"
    assert cell.recipe["data"]["mujoco"] == "3.2.7"


def test_an_online_phase_is_part_of_the_recipe(run, tmp_path):
    kept = {"online_steps": 20_000, "utd": "1", "balanced": True, "online_every": 100}
    longer = changed(run, tmp_path / "online", **{f"run__{k}": v for k, v in kept.items()})
    for each in (run, longer):
        publishing.publish(each, tmp_path / "results")
    offline, online = results.cells(results.read(tmp_path / "results"))
    assert (offline.recipe["steps"], online.recipe["steps"]) == (150_000, 170_000)
    assert "online" not in offline.recipe
    assert online.recipe["online"] == kept


def test_a_field_that_came_later_parts_no_seeds(run, tmp_path):
    """A run from before `stop_at` there was, and one after, which has its default."""
    folder, before = tmp_path / "results", tmp_path / "before"
    config = {k: v for k, v in run.manifest["agent"]["config"].items() if k != "stop_at"}
    member = [m | {"seed": m["seed"] + 4} for m in run.manifest["members"]]
    older = changed(run, before, agent__config=config, members=member)
    for each in (run, older):
        publishing.publish(each, folder)
    assert len(list((folder / "seeds").glob("*/*"))) == 2
    (cell,) = results.cells(results.read(folder))
    assert sorted(seed.seed for seed in cell.seeds) == list(range(8))

    again = changed(run, tmp_path / "same", agent__config=config, started="later")
    with pytest.raises(InputError, match="this seed of this recipe is published"):
        publishing.publish(again, folder)
    assert not (folder / "antmaze-large-navigate-task1" / "same").exists()
    (first, *_) = results.read(folder)
    facts = disk.read_sealed(first.path, results.SCHEMA)
    del facts["recipe"]["agent"]["config"]["stop_at"]
    other = folder / "seeds" / results.where(facts["recipe"]) / first.path.name
    other.parent.mkdir(exist_ok=True)
    disk.write_sealed(other, facts)
    with pytest.raises(InputError, match="are the same seed of the same recipe"):
        results.read(folder)


def test_values_of_a_stack_are_cells_of_their_own(run, tmp_path):
    members = [{"seed": s, "alpha": a, "status": "learning"} for a in (3.0, 10.0) for s in (0, 1)]
    stacked = changed(run, tmp_path / "two", members=members, agent__config__alpha=[3.0, 10.0])
    publishing.publish(stacked, tmp_path / "results")
    found = {
        c.recipe["agent"]["config"]["alpha"]: c
        for c in results.cells(results.read(tmp_path / "results"))
    }
    assert {alpha: cell.scores.tolist() for alpha, cell in found.items()} == {
        3.0: [0.9, 0.8],
        10.0: [1.0, 0.7],
    }


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"run__steps": 300000}, "steps"),
        ({"run__final_episodes": 10}, "protocol.final_episodes"),
        ({"agent__config__alpha": 3.0}, "agent.config.alpha"),
        ({"agent__config__sampler": "euler"}, "agent.config.sampler"),
        ({"versions__mujoco": "3.3.1"}, "simulator.mujoco"),
        ({"data__card__recipe__episodes": 500}, "data.recipe.episodes"),
        ({"data__card__recipe__controller": "0" * 64}, "data.recipe.controller"),
        ({"data__card__versions__mujoco": "3.3.1"}, "data.mujoco"),
    ],
)
def test_seeds_of_two_recipes_are_never_averaged(run, tmp_path, change, what):
    other = changed(run, tmp_path / "other", **change)
    for one in (run, other):
        publishing.publish(one, tmp_path / "results")
    seeds = results.read(tmp_path / "results")
    assert len(results.cells(seeds)) == 2
    with pytest.raises(InputError, match=rf"are not averaged, their recipes differ: .*{what} \("):
        results.together([seeds[0], seeds[-1]])


def test_what_may_differ_is_told_with_the_number(run, tmp_path):
    more = [{"seed": s, "status": "learning"} for s in (4, 5, 6, 7)]
    other = changed(run, tmp_path / "other", members=more, commit="f" * 40, data__sha256="e" * 64)
    for one in (run, other):
        publishing.publish(one, tmp_path / "results")
    (cell,) = results.cells(results.read(tmp_path / "results"))
    assert len(cell.seeds) == 8
    assert cell.differing() == {
        "commit": sorted({run.manifest["commit"][:7], "fffffff"}),
        "data": sorted({run.manifest["data"]["sha256"][:12], "e" * 12}),
    }
    row = results.table(cell.seeds)[1]
    assert row[:4] == ("antmaze-large-navigate-task1", "vine", "150k", "8")
    assert "commit" in row[5]
    assert "eeeeeeeeeeee" in row[5]


def test_how_a_program_is_compiled_is_no_part_of_a_recipe(run, tmp_path):
    more = [{"seed": 9, "status": "learning"}] * 1
    other = changed(run, tmp_path / "other", members=more, agent__config__unroll=True)
    for one in (run, other):
        publishing.publish(one, tmp_path / "results")
    assert len(results.cells(results.read(tmp_path / "results"))) == 1


def test_a_seed_is_not_published_twice_and_then_nothing_is_written(run, tmp_path):
    publishing.publish(run, tmp_path / "results")
    more = [{"seed": s, "status": "learning"} for s in (8, 0)]
    other = changed(run, tmp_path / "other", members=more)
    with pytest.raises(InputError, match=r"seed-0\.json is there already"):
        publishing.publish(other, tmp_path / "results")
    assert len(results.read(tmp_path / "results")) == 4


def test_an_agent_without_noise_has_a_final_evaluation_too(tmp_path):
    end = {"step": 150000, "eval/success": [0.9, 0.8, 1.0, 0.7]}
    publishing.publish(write(tmp_path / "run", [*every_10k(140_000), end]), tmp_path / "results")
    seeds = results.read(tmp_path / "results")
    assert seeds[1].facts["final"] == {"step": 150000, "success": 0.8}
    assert seeds[1].facts["curve"]["step"][-1] == 140_000


def test_a_run_whose_members_are_all_frozen_has_a_final_evaluation_too(tmp_path):
    """It comes where the last of them was frozen, and these policies are those of the end."""
    end = {"step": 141_000, "eval/success": [0.9, 0.8, 1.0, 0.7]}
    end |= {"eval/success_noise0": [0.5, 0.6, 0.7, 0.8]}
    publishing.publish(write(tmp_path / "run", [*every_10k(140_000), end]), tmp_path / "results")
    seeds = results.read(tmp_path / "results")
    assert seeds[1].facts["final"] == {"step": 150_000, "success": 0.8, "success_noise0": 0.6}
    assert seeds[1].facts["curve"]["step"][-1] == 140_000
    assert results.table(seeds)[1][5] == ""


def test_an_unfinished_run_is_published_only_when_asked(tmp_path):
    cut = write(tmp_path / "cut", every_10k(140_000), ended=None)
    with pytest.raises(InputError, match="has not ended; --unfinished"):
        publishing.publish(cut, tmp_path / "results")
    publishing.publish(cut, tmp_path / "results", unfinished=True)
    seeds = results.read(tmp_path / "results")
    assert {seed.recipe["steps"] for seed in seeds} == {140_000}
    assert [seed.facts["final"] for seed in seeds] == [None] * 4
    assert [seed.score for seed in seeds] == [1.0] * 4
    assert results.table(seeds)[1][5] == "no final evaluation"


def test_a_copied_moved_or_damaged_file_is_refused_by_name(run, tmp_path):
    folder = tmp_path / "results"
    first, second, *_ = publishing.publish(run, folder)
    good = first.read_bytes()

    (first.parent / "copy.json").write_bytes(good)
    with pytest.raises(InputError, match=r"(copy|seed-0)\.json.*(belongs at|same seed)"):
        results.read(folder)
    (first.parent / "copy.json").unlink()

    first.write_bytes(good.replace(b'"seed": 0', b'"seed": 7'))
    with pytest.raises(InputError, match=r"seed-0\.json: damaged or edited"):
        results.read(folder)
    first.write_bytes(b"{}")
    with pytest.raises(InputError, match=r"seed-0\.json: not a file of vinerl's"):
        results.read(folder)
    first.write_bytes(good)

    facts = json.loads(second.read_text())
    facts["recipe"]["task"] = "antmaze-tiny-navigate-singletask-task1-v0"
    disk.write_sealed(second, facts)
    with pytest.raises(InputError, match="unknown task 'antmaze-tiny"):
        results.read(folder)


def test_numbers_that_json_has_not_are_left_out(run, tmp_path):
    line = {"step": 151000, "actor/bc": [float("inf"), 1.0, 1.0, 1.0]}
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    path = publishing.publish(run, tmp_path / "results")[0]
    assert results.read(tmp_path / "results")[0].facts["metrics"]["actor/bc"]["value"][-1] is None
    assert "Infinity" not in path.read_text()


def test_labels_name_what_is_not_as_usual(run):
    member = {"seed": 0}
    recipe = results.recipe_of(run.manifest, member | {"alpha": 0.30000001192092896}, 150000)
    assert results.label(recipe) == "vine alpha=0.3", "as float32 has it, and as it was asked for"
    recipe = results.recipe_of(run.manifest, member, 150000)
    assert results.label(recipe) == "vine"
    recipe["agent"]["config"] |= {"sampler": "euler", "alpha": 3.0}
    assert results.label(recipe) == "vine alpha=3.0 sampler=euler"
    assert results.name(recipe) == "vine alpha=3.0 sampler=euler"
    recipe["data"]["recipe"]["seed"] = 1
    assert results.name(recipe) == "vine alpha=3.0 sampler=euler, data seed 1"


def test_the_same_agent_on_two_sets_is_two_rows(run, tmp_path):
    """Both can stand beside what others published, and are told apart by their data."""
    other = changed(run, tmp_path / "other", data__card__recipe__seed=1)
    for each in (run, other):
        publishing.publish(each, tmp_path / "results")
    seeds = results.read(tmp_path / "results")
    rows = summary.rows(seeds)
    assert [row.name for row in rows] == ["vine", "vine, data seed 1"]
    assert all(summary.as_published(row.cell.recipe) for row in rows)
    assert sorted(row[1] for row in results.table(seeds)[1:]) == [row.name for row in rows]


def test_the_mean_is_that_of_the_scores():
    facts = [{"final": {"success": x}, "curve": {"success": [0.0]}} for x in (0.2, 0.4, 0.9)]
    cell = results.Cell({}, [results.Seed(Path(), {}, i, f) for i, f in enumerate(facts)])
    assert cell.mean()[0] == pytest.approx(np.mean([0.2, 0.4, 0.9]))


def test_runs_of_other_seeds_do_not_share_a_folder(run, tmp_path):
    """Even where they were begun in the same second."""
    folder = tmp_path / "results"
    publishing.publish(run, folder, name="both")
    members = [m | {"seed": m["seed"] + 4} for m in run.manifest["members"]]
    other = changed(run, tmp_path / "other", members=members, run__seeds=[4, 5, 6, 7])
    with pytest.raises(InputError, match="holds another run"):
        publishing.publish(other, folder, name="both")
    publishing.publish(other, folder, name="both", rest=True)
    assert (folder / "antmaze-large-navigate-task1" / "both-2" / "manifest.json").exists()


def test_agents_of_ones_own_from_other_files_are_other_agents(run, tmp_path):
    folder = tmp_path / "results"
    for first, sha in ((0, "a" * 64), (4, "b" * 64), (8, "b" * 64)):
        members = [m | {"seed": m["seed"] + first} for m in run.manifest["members"]]
        own = {"agent__name": "my_agent.py:MINE", "agent_sha256": sha, "members": members}
        publishing.publish(changed(run, tmp_path / f"own-{first}", **own), folder)
    assert sorted(len(cell.seeds) for cell in results.cells(results.read(folder))) == [4, 8]
    assert len(set(results.names(results.cells(results.read(folder))))) == 2


def test_a_variant_where_it_was_tuned_away_is_named_by_its_own_part(run, tmp_path):
    """On scene the tuned qam-edit is qam: whoever trains it there chooses its edit_scale."""
    task, (default, _) = "scene-play-singletask-task4-v0", AGENTS["qam-edit"]
    config = {k: manifests.freeze(v) for k, v in vars(default).items()} | {"edit_scale": 0.1}
    one = changed(run, tmp_path / "edit", task=task, agent={"name": "qam-edit", "config": config})
    publishing.publish(one, tmp_path / "results")
    (row,) = summary.rows(results.read(tmp_path / "results"))
    assert "edit_scale=0.1" in row.name
    assert row.published is None


def test_a_normalised_run_is_not_as_published_and_says_so(run, tmp_path):
    one = changed(run, tmp_path / "one", run__normalise="standard")
    publishing.publish(one, tmp_path / "results")
    (row,) = summary.rows(results.read(tmp_path / "results"))
    assert row.name == "vine, normalise standard"
    assert row.published is None


def test_on_the_default_job_it_is_not_to_normalise_that_is_said(tmp_path):
    task = "pointmaze-medium-navigate-singletask-task1-v0"
    how = {"eval_episodes": 10, "final_episodes": 50}
    for steps, normalise in ((6000, "standard"), (7000, "none")):
        cells.publish(
            tmp_path, "vine", task, steps, {0: 1.0}, protocol=how | {"normalise": normalise}
        )
    names = results.names(results.cells(results.read(tmp_path)))
    assert sorted(names) == ["vine", "vine, normalise none"]


def test_cells_that_differ_in_episodes_alone_have_names_of_their_own(run, tmp_path):
    folder = tmp_path / "results"
    for name, episodes in (("few", 5), ("many", 10)):
        publishing.publish(
            changed(run, tmp_path / name, run__eval_episodes=episodes, started=name), folder
        )
    names = results.names(results.cells(results.read(folder)))
    assert len(set(names)) == 2
    assert all(name.startswith("vine (") for name in names)
    assert len({row[:2] for row in results.table(results.read(folder))}) == 3


def test_a_field_that_is_no_longer_there_is_named(run, tmp_path):
    config = run.manifest["agent"]["config"] | {"gone": 1.0}
    publishing.publish(changed(run, tmp_path / "old", agent__config=config), tmp_path / "results")
    (row,) = summary.rows(results.read(tmp_path / "results"))
    assert row.name == "vine gone=1.0"


def test_a_task_that_is_not_known_is_not_published(run, tmp_path):
    odd = changed(run, tmp_path / "odd", task="antmaze-large-navigate-singletask-task9-v0")
    with pytest.raises(InputError, match="task9"):
        publishing.publish(odd, tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["..", ".", "a/b", "/tmp/x", ""])
def test_a_name_is_that_of_one_folder(run, tmp_path, name):
    with pytest.raises(InputError, match="--name"):
        publishing.publish(run, tmp_path / "results", name=name)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(("steps", "said"), [(200, "0.2k"), (150_500, "150.5k"), (10**6, "1M")])
def test_lengths_in_words(steps, said):
    assert results.length(steps) == said
