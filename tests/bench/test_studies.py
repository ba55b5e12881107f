"""The studies: their closed forms, what they write down, and that they go on where they were."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cells
from tiny import SPEC, dataset, tiny
from vinerl import cli, disk
from vinerl.agents import AGENTS
from vinerl.bench.commands import reproduce
from vinerl.bench.numbers import publishing, reference
from vinerl.bench.pictures import plots
from vinerl.bench.run import running
from vinerl.bench.run.runs import Run, Subject
from vinerl.bench.studies import bandits, curves, ladder, lines, steps, trained, variance
from vinerl.bench.studies.bandits import BANDITS
from vinerl.bench.studies.ladder import CLIMBERS, Climber, Scale
from vinerl.data.fold import fold
from vinerl.errors import InputError
from vinerl.train import evaluate, offline, stack

PUBLISHED = Path(__file__).parents[2] / "results" / "antmaze-large-navigate-task1" / "vine"
QUICK = Scale(
    seeds=(0,),
    updates=1500,
    rows=500,
    draws=200,
    kept=5,
    sizes={"actor_hidden": (16,), "critic_hidden": (32, 32), "critics": 2, "critic": "mlp"}
    | {"batch_size": 64, "lr": 3e-3, "lr_end": 0.1, "lr_steps": 1500},
)


def test_lines_of_another_origin_are_left_alone(tmp_path):
    path = tmp_path / "raw.jsonl"
    assert lines.read(path, {"a": 1}) == []
    lines.append(path, {"a": 1}, [{"x": 1}])
    lines.append(path, {"a": 2}, [{"x": 2}, {"x": 3}])
    assert [line["x"] for line in lines.read(path, {"a": 1})] == [1]
    assert [line["x"] for line in lines.read(path, {"a": 2})] == [2, 3]


def test_a_damaged_line_is_named(tmp_path):
    path = tmp_path / "raw.jsonl"
    lines.append(path, {}, [{"x": 1}])
    path.write_text(path.read_text() + '{"x": 2\n')
    with pytest.raises(InputError, match=r"raw\.jsonl: line 2 is damaged .* remove this line"):
        lines.read(path, {})


def test_every_bandit_is_worth_one_at_its_first_peak_and_no_more():
    side = np.linspace(-1, 1, 201)
    plane = np.stack(np.meshgrid(side, side), axis=-1)
    for bandit in BANDITS.values():
        assert bandits.value(bandit, bandit.peaks[0]) == pytest.approx(1, abs=2e-4)
        assert bandits.value(bandit, plane).max() < 1.0003


def test_the_best_mode_is_the_rarest_in_the_data():
    bandit = BANDITS["rarest"]
    action = bandits.actions(bandit, 1000)
    far = np.linalg.norm(action[:, None] - bandit.modes, axis=-1)
    assert np.bincount(far.argmin(axis=1)).tolist() == [40, 80, 160, 240, 480]
    assert bandit.rewards.tolist() == sorted(bandit.rewards, reverse=True)


def test_the_datas_value_in_closed_form():
    """A bump of width .3 at .3, met by a Gaussian of spread .2; one drawn mode at a time."""
    by_hand = 0.09 / 0.13 * np.exp(-0.09 / 0.26)
    assert bandits.behaviour(BANDITS["one"]) == pytest.approx(by_hand)
    shrunk = 0.04 / 0.0425
    assert bandits.behaviour(BANDITS["five"]) == pytest.approx(0.6 * shrunk, abs=1e-3)
    shares = 0.04 + 0.08 * 0.8 + 0.16 * 0.6 + 0.24 * 0.4 + 0.48 * 0.2
    assert bandits.behaviour(BANDITS["rarest"]) == pytest.approx(shares * shrunk, abs=1e-3)
    for bandit in BANDITS.values():
        drawn = bandits.value(bandit, bandits.actions(bandit, 20_000)).mean()
        assert drawn == pytest.approx(bandits.behaviour(bandit), abs=0.01)


def test_a_transition_of_a_bandit_is_an_episode():
    data = bandits.data(BANDITS["five"], 50)
    batch = fold(data, jnp.array([0, 17, 49]), 1, 0.9)
    assert batch.discount.tolist() == [0, 0, 0]
    assert batch.weight.tolist() == [1, 1, 1]
    wanted = bandits.value(BANDITS["five"], np.asarray(batch.action))
    np.testing.assert_allclose(batch.reward, wanted, rtol=1e-6)


def narrow(**changes):
    """Two modes without spread, worth 1 and .5, three quarters of the data at the worse."""
    modes = np.array([[0.5, 0.0], [-0.5, 0.0]])
    return bandits.Bandit(modes, np.array([0.25, 0.75]), 0.0, modes, np.array([1, 0.5]), 0.05)


def test_ideal_policies_of_two_points():
    """Best of n: 1 unless all n are at the worse. Tilted: odds of 1 to 3 times exp(b / 2)."""
    bandit = narrow()
    assert bandits.best_of(bandit, 1) == pytest.approx(0.625)
    assert bandits.best_of(bandit, 4) == pytest.approx(1 - 0.5 * 0.75**4)
    assert bandits.tilted(bandit, 0.0) == pytest.approx(0.625)
    odds = np.exp(2.0) / 3
    assert bandits.tilted(bandit, 4.0) == pytest.approx((odds + 0.5) / (odds + 1))
    assert bandits.tilted(bandit, 1e3, most=7.0) == pytest.approx(1.0)
    assert bandits.tilted(bandit, -4.0, most=1.0) < 0.625


def test_a_cap_makes_equal_what_it_cuts():
    """Advantages .375 and -.125 times -8: weights exp(-3) and exp(1), the latter cut to 1."""
    odds = np.exp(-3.0) / 3
    wanted = (odds + 0.5) / (odds + 1)
    assert bandits.tilted(narrow(), -8.0, most=1.0) == pytest.approx(wanted)


def test_the_endpoint_terms_point_goes_from_the_peak_to_the_mean():
    bandit = BANDITS["one"]
    assert bandits.point(bandit, 0.0) == pytest.approx(1, abs=1e-3)
    middle = np.exp(-(0.3**2) / (2 * 0.3**2))
    assert bandits.point(bandit, 1e4) == pytest.approx(middle, abs=1e-2)


def test_every_agent_is_on_the_ladder():
    assert {climber.agent for climber in CLIMBERS.values()} == set(AGENTS) == set(CLIMBERS)


def test_only_a_rung_that_had_to_be_reached_is_missed():
    climber = Climber("vine", {}, "five")
    assert ladder.missed(climber, "one", 0.84)
    assert ladder.missed(climber, "five", 0.84)
    assert not ladder.missed(climber, "five", 0.86)
    assert not ladder.missed(climber, "rarest", 0.1)


def test_measured_actions():
    bandit = BANDITS["one"]
    seen = ladder.measure(bandit, np.array([[0.3, 0.0], [0.3, 0.3]], np.float32), kept=1)
    assert seen["value"] == pytest.approx((1 + np.exp(-0.5)) / 2, abs=1e-4)
    assert seen["spread"] == pytest.approx(0.075)
    assert seen["best"] == 0.5
    assert seen["actions"] == [[0.3, 0.0]]


@pytest.mark.slow
def test_an_agent_climbs_the_first_rung():
    found = list(ladder.climb("rebrac", CLIMBERS["rebrac"], QUICK))
    assert [line["rung"] for line in found] == ["one", "five", "rarest"]
    assert ladder.mean(found, "value", "rebrac", "one") > 0.9
    assert all(line["spread"] < 1e-6 and line["status"] == "learning" for line in found)


def test_a_climber_that_is_done_is_not_trained_again(tmp_path, monkeypatch):
    trained = []

    def climb(name, climber, scale):
        trained.append(name)
        yield {"climber": name, "value": 0.5}

    monkeypatch.setattr(ladder, "climb", climb)
    path, two = tmp_path / "ladder.jsonl", {name: CLIMBERS[name] for name in ("fql", "qam")}
    first = ladder.learn(path, {"fql": two["fql"]}, QUICK, print)
    both = ladder.learn(path, two, QUICK, print)
    assert trained == ["fql", "qam"]
    assert [line["climber"] for line in both] == trained
    assert both[:1] == first
    ladder.learn(path, two, replace(QUICK, updates=1), print)
    assert trained == ["fql", "qam"] * 2


def test_the_table_marks_a_miss_and_has_the_ideal():
    told = [
        {"climber": "ifql", "begin": "fresh", "rung": rung, "seed": seed, "value": value}
        for rung, value in (("one", 0.95), ("five", 0.9), ("rarest", 0.5))
        for seed in (0, 1)
    ]
    row = ladder.markdown(told).splitlines()[-1]
    assert row == "| ifql | rarest | 0.95 (0.96) | 0.90 (0.99) | **0.50** (0.91) |"


def test_cloning_moves_the_actor_alone_and_towards_the_data():
    config, make = tiny("vine")
    config = replace(config, lr=1e-2, batch_size=64)
    agent_of = stack.maker(make, config, ladder.SPEC)
    fresh = offline.start(agent_of, stack.members(config, (0,)))
    bandit = BANDITS["one"]._replace(modes=np.array([[0.5, -0.5]]), spread=0.05)
    data = jax.device_put(bandits.data(bandit, 500))
    cloned = ladder.cloner(agent_of, 200)(fresh, data)
    before, after = fresh.state.params, cloned.state.params
    jax.tree.map(np.testing.assert_array_equal, before["critic"], after["critic"])
    jax.tree.map(np.testing.assert_array_equal, fresh.state.targets, cloned.state.targets)
    drawn = np.asarray(ladder.drawer(agent_of, 300)(cloned))[0]
    np.testing.assert_allclose(drawn.mean(axis=0), [0.5, -0.5], atol=0.1)


def test_scatter_of_known_gradients():
    """Around (3, 4): apart by (+-1, 0) and (0, +-2), so the total variance is 10 / 3."""
    drawn = jnp.array([[4.0, 4.0], [2.0, 4.0], [3.0, 6.0], [3.0, 2.0]])
    signal, noise = variance.scatter(lambda i: {"w": drawn[i]}, jnp.arange(4))
    assert signal == pytest.approx(5)
    assert noise == pytest.approx(np.sqrt(10 / 3))


def looked(name):
    config, make = tiny(name)
    agent_of = stack.maker(make, config, SPEC)
    run = offline.start(agent_of, stack.members(config, (0, 1)))
    policies = evaluate.policies(agent_of)(run)
    data = jax.device_put(dataset())
    return variance.looker(agent_of)(run, policies, data)


def test_a_gradient_without_noise_has_none():
    """ReBRAC's actor draws nothing: every gradient on a batch is the same, every action too."""
    seen = looked("rebrac")
    assert (seen["signal"] > 0).all()
    np.testing.assert_allclose(seen["noise"] / seen["signal"], 0, atol=1e-5)
    np.testing.assert_allclose(seen["spread"], 0, atol=1e-6)


def test_a_samplers_gradient_has_noise():
    seen = looked("vine")
    assert (seen["noise"] > 1e-3).all()
    assert (np.diff(seen["spread"], axis=1) > 0).all()
    assert (seen["spread"] > 0).all()


def test_policies_that_were_saved_are_found_in_order(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    for name in ("policy-000002000", "policy-000000100", "state-000002000"):
        (tmp_path / "checkpoints" / f"{name}.json").touch()
    assert variance.saved(Run(tmp_path)) == [100, 2000]


@pytest.fixture(scope="module")
def subject():
    config, make = tiny("vine")
    members = stack.members(config, (0, 1))
    subject = Subject(config, make, SPEC, members, None, None)
    run = offline.start(subject.agent_of(), members)
    return subject, evaluate.policies(subject.agent_of())(run)


def test_a_path_is_what_acting_gives_when_it_stops_there(subject):
    subject, policies = subject
    obs = np.array([[0.1, -0.2, 0.3]], np.float32)
    path = steps.paths(subject, policies, obs, draws=4)
    assert path.shape == (2, 3, 4, 2)
    pick = lambda tree: jax.tree.map(lambda x: x[1], tree)
    member, policy = pick(subject.members), pick(policies)
    key = stack.keys(member).evaluate
    for k, fixed in ((2, {"stop_at": 2}), (3, {})):
        acted = subject.agent_of(**fixed)(member).act(policy, jnp.repeat(obs, 4, axis=0), key)
        np.testing.assert_allclose(path[1, k - 1], acted, rtol=1e-5, atol=1e-6)


def test_an_agent_that_cannot_stop_is_refused_by_name():
    run = SimpleNamespace(path=Path("runs/x"), manifest={"agent": {"name": "fql"}})
    config, make = tiny("fql")
    with pytest.raises(InputError, match=r"runs/x: fql has no stop_at"):
        steps.lengths(run, Subject(config, make, SPEC, None, None, None))


def test_lengths_end_with_all_steps():
    run = SimpleNamespace(path=Path("x"), manifest={})
    for flow_steps, wanted in ((10, [1, 4, 6, 8, 10]), (5, [1, 4, 5]), (20, [*steps.KS, 20])):
        config = replace(AGENTS["vine"][0], flow_steps=flow_steps)
        assert steps.lengths(run, Subject(config, None, SPEC, None, None, None)) == wanted


def test_success_at_each_length_as_a_table_and_picture(tmp_path):
    told = [
        {"run": "vine", "k": k, "seed": seed, "success": success}
        for k, each in ((1, (0.0, 0.5)), (10, (1.0, 1.0)))
        for seed, success in enumerate(each)
    ]
    text = steps.markdown(told)
    assert "| vine | 0.25 [0.00, 0.50] | 1.00 [1.00, 1.00] |" in text
    ways = [{"run": "vine", "seed": 0, "path": np.zeros((3, 4, 2)).tolist()}]
    assert steps.draw(told, ways, ["made by hand"], tmp_path / "steps.png").stat().st_size > 5000


STACK = [{"seed": s, "alpha": a, "status": "learning"} for s in (0, 1) for a in (1.0, 3.0)]


def test_members_are_told_by_their_run_and_what_is_stacked():
    named = lambda members: trained.members(SimpleNamespace(manifest={"members": members}), "r")
    assert named(STACK) == ["r, alpha 1", "r, alpha 3"] * 2
    assert named([{"seed": 0, "status": "learning"}, {"seed": 1, "status": "frozen"}]) == ["r"] * 2


def test_lines_have_the_names_of_today_and_every_setting_is_a_row():
    """They were measured when the run was called `old`."""
    told = [
        {"run": "old", "k": k, "seed": member["seed"], "success": member["alpha"] / 10 + k / 20}
        for k in (1, 10)
        for member in STACK
    ]
    names = ["r, alpha 1", "r, alpha 3"] * 2
    found = lines.named(told[4:] + told[:4], "k", names)
    assert [line["run"] for line in found] == names * 2
    text = steps.markdown(found)
    assert "| r, alpha 1 | 0.15 [0.15, 0.15] | 0.60 [0.60, 0.60] |" in text
    assert "| r, alpha 3 | 0.35 [0.35, 0.35] | 0.80 [0.80, 0.80] |" in text
    assert "run (2 seeds)" in text


def test_where_a_line_was_removed_all_of_its_kind_are_measured_again():
    """Of k = 1 one of two is left, until both are added again behind it."""
    left = [{"k": 1, "success": 0.1}, {"k": 2, "success": 0.3}, {"k": 2, "success": 0.4}]
    assert set(lines.whole(left, "k", 2)) == {2}
    added = [*left, {"k": 1, "success": 0.5}, {"k": 1, "success": 0.6}]
    told = [(x["run"], x["success"]) for x in lines.named(added, "k", ["a", "b"]) if x["k"] == 1]
    assert told == [("a", 0.5), ("b", 0.6)]


def test_more_runs_than_colours_are_all_drawn(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path, *_, **__: drawn.append(figure) or path)
    names = [f"run-{i}" for i in range(len(plots.COLOURS) + 2)]
    told = [{"run": n, "k": k, "seed": 0, "success": 0.5} for n in names for k in (1, 3)]
    ways = [{"run": n, "seed": 0, "path": np.zeros((3, 4, 2)).tolist()} for n in names]
    steps.draw(told, ways, [], tmp_path / "steps.png")
    for axes in drawn[0].axes[:2]:
        looks = {
            (line.get_color(), line.get_linestyle()) for line in axes.lines if line.get_lw() > 1
        }
        assert len(looks) == len(names)


@pytest.fixture
def published(tmp_path):
    """The published run, as if it had ended."""
    run = tmp_path / "run"
    run.mkdir()
    manifest = json.loads((PUBLISHED / "manifest.json").read_text())
    disk.write_sealed(run / "manifest.json", manifest | {"ended": "2026-01-01T00:00:00+00:00"})
    (run / "metrics.jsonl").write_text((PUBLISHED / "metrics.jsonl").read_text())
    folder = tmp_path / "results"
    publishing.publish(Run(run), folder)
    return folder


def test_curves_stand_beside_the_published_ones(published, tmp_path):
    raw, table, picture = curves.reproduce(published, tmp_path / "out")
    told = [json.loads(line) for line in raw.read_text().splitlines()]
    ours = [line for line in told if "seed" in line]
    metrics = [json.loads(line) for line in (PUBLISHED / "metrics.jsonl").read_text().splitlines()]
    at = {x["step"]: x["eval/success"] for x in metrics if "eval/success" in x}
    assert [line["seed"] for line in ours] == [0, 1, 2, 3]
    for i, line in enumerate(ours):
        assert line["success"] == [at[step][i] for step in line["step"]]
    file = Path(reference.__file__).parent / "published" / "qam_curves.csv"
    rows = list(csv.DictReader(file.read_text().splitlines()))
    of = {"method": "FQL", "domain": "antmaze-large", "task": "1", "what": "mean"}
    (fql,) = [row for row in rows if of.items() <= row.items()]
    (theirs,) = [line for line in told if line["agent"] == "fql"]
    assert theirs["steps"] == [50_000, 100_000, 150_000]
    assert theirs["mean"] == pytest.approx([float(fql[str(s)]) / 100 for s in theirs["steps"]])
    mean = np.mean(at[100_000])
    assert f"{mean:.2f} [" in next(x for x in table.read_text().splitlines() if "| vine |" in x)
    assert picture.stat().st_size > 5000


def test_of_more_cells_than_colours_those_as_published_are_drawn(monkeypatch):
    monkeypatch.setattr(curves.summary, "as_published", lambda recipe: recipe["usual"])
    row = lambda usual: SimpleNamespace(cell=SimpleNamespace(recipe={"usual": usual}))

    def shown(*usual):
        panel = curves.Panel("task", [row(one) for one in usual], {})
        return [row.cell.recipe["usual"] for row in curves.drawn(panel, 3)]

    assert shown(0, 1, 0) == [0, 1, 0]
    assert shown(0, 1, 0, 1) == [1, 1]
    assert shown(1, 1, 1, 1) == [1, 1, 1]
    assert shown(0, 0, 0, 0) == [0, 0, 0]


def test_two_lengths_of_one_name_are_told_apart(tmp_path):
    task = "antmaze-large-navigate-singletask-task1-v0"
    for length in (100_000, 200_000):
        cells.publish(tmp_path, "fql", task, length, {0: 0.5}, {50_000: 0.1})
    (panel,) = curves.panels(tmp_path)
    assert [row.name for row in panel.rows] == ["fql, to 100k", "fql, to 200k"]


def test_a_task_without_published_curves_has_its_ends_in_the_table(tmp_path):
    point = "pointmaze-medium-navigate-singletask-task1-v0"
    cells.publish(tmp_path, "vine", point, 6000, {0: 0.5, 1: 1.0}, {3000: 0.25})
    text = curves.markdown(curves.panels(tmp_path))
    assert "| pointmaze-medium-navigate-task1 | seeds | 6k |\n|---|---|---|\n" in text
    assert "| vine | 2 | 0.75 [0.50, 1.00] |" in text


def test_one_evaluation_is_no_curve(tmp_path):
    """A run that was evaluated at its end alone is left out of the panels."""
    task = "puzzle-3x3-play-singletask-task4-v0"
    cells.publish(tmp_path, "vine", task, 300, {0: 0.5})
    with pytest.raises(InputError, match="has no curves"):
        curves.panels(tmp_path)
    cells.publish(tmp_path, "vine", task, 400, {0: 0.5}, {200: 0.0})
    (panel,) = curves.panels(tmp_path)
    assert [row.steps for row in panel.rows] == [400]


def test_a_folder_without_curves_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no curves; vinerl results add"):
        curves.panels(tmp_path)


def test_default_runs_are_begun_or_gone_on_with_or_left_alone(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(running, "train", lambda job: begun.append(("train", job.config.sampler)))
    monkeypatch.setattr(running, "resume", lambda path: begun.append(("resume", path.name)))
    assert "vine and euler: about 10 minutes" in trained.cost((), tmp_path)
    trained.chosen((), None, tmp_path)
    assert begun == [("train", "vine"), ("train", "euler")]
    for sampler, ended in (("vine", "2026-01-01"), ("euler", None)):
        (tmp_path / sampler).mkdir()
        facts = {"schema": 1, "ended": ended}
        disk.write_sealed(tmp_path / sampler / "manifest.json", facts)
    begun.clear()
    trained.chosen((), None, tmp_path)
    assert begun == [("resume", "euler")]
    assert "with euler: about 5 minutes" in trained.cost((), tmp_path)
    assert trained.cost((Path("mine"),), tmp_path) == "no training"


@pytest.mark.parametrize("name", reproduce.STUDIES)
def test_a_dry_run_says_what_it_costs_and_writes_nothing(name, tmp_path, monkeypatch, capsys):
    folder = str(PUBLISHED.parents[1])
    monkeypatch.chdir(tmp_path)
    reproduce.reproduce([name, "--dry-run", "--folder", folder])
    said = capsys.readouterr().out
    assert "minute" in said or "seconds" in said
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_study_is_told_all_names():
    folder = str(PUBLISHED.parents[1])
    with pytest.raises(InputError, match=r"there are toy, ladder, .*curves, .*ablation-sampler"):
        reproduce.reproduce(["tarot", "--folder", folder])


def test_outside_a_clone_an_unknown_study_is_told_them_and_where_the_sections_are(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        reproduce.reproduce(["tarot"])
    assert f"no study 'tarot'; there are {', '.join(reproduce.STUDIES)}." in str(error.value)
    assert "a section of the queue: results/queue.toml: there is no such file" in str(error.value)


@pytest.mark.parametrize("line", ["queue status", "queue next", "reproduce table1"])
def test_outside_a_clone_what_wants_the_queue_says_where_it_is(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        cli.main(line.split())
    said = capsys.readouterr().err
    assert (stop.value.code, "Errno" in said) == (2, False)
    assert "a clone of the repository" in said
    assert "--folder" in said


def test_names_that_stand_beside_one_another_have_different_colours():
    found = curves.apart([["a", "b"], ["c", "a"], ["c", "d", "b"]], ["red", "green", "blue"])
    assert found == {"a": "red", "b": "green", "c": "blue", "d": "red"}
    crowded = curves.apart([["a", "b", "c"]], ["red", "green"])
    assert list(crowded.values()) == ["red", "green", "red"]
