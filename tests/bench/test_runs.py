"""One whole run, as small as can be, and everything it leaves behind."""

import inspect
import json
import re
from pathlib import Path
from typing import NamedTuple

import jax
import matplotlib.image
import numpy as np
import pytest

import vinerl
from tiny import SIZES
from vinerl import disk
from vinerl.bench.commands import training as commands
from vinerl.bench.pictures import show
from vinerl.bench.run import evaluation, jobs, provenance, running, runs, tasks, tuned
from vinerl.bench.run.runs import Run
from vinerl.bench.run.saver import Saver
from vinerl.data import files
from vinerl.envs.pool import Report
from vinerl.errors import InputError
from vinerl.train import checkpoint, loop, offline, stack

README = Path(__file__).parents[2] / "README.md"
SMALL = SIZES | {"batch_size": 64}  # the rows differ enough for two seeds to be told apart
OPTIONS = {"steps": 20, "eval_every": 10, "log_every": 5, "block": 5, "seeds": (0, 1)}
OPTIONS |= {"eval_episodes": 1, "final_episodes": 2, "workers": 2}


class Done(NamedTuple):
    run: Run
    data: Path  # the dataset
    said: str


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The default job on three episodes, which it makes itself."""
    folder, said = tmp_path_factory.mktemp("whole"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "OFFICIAL", folder / "nothing")
        patch.setattr("builtins.print", lambda *words, **_: said.append(" ".join(map(str, words))))
        patch.setitem(tuned.SMALL_RUN, "episodes", 3)
        options = OPTIONS | SMALL | {"task": tasks.DEFAULT, "dir": folder / "data"}
        run = vinerl.train(out=folder / "run", **options)
    (data,) = (folder / "data").rglob("*-navigate-v0.npz")
    return Done(run, data, "\n".join(said))


def strict(text):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_manifest_says_what_was_run_with_what(done):
    manifest = strict((done.run.path / "manifest.json").read_text())
    assert manifest["agent"]["name"] == "vine"
    assert manifest["agent"]["config"]["flow_steps"] == 3
    assert manifest["agent"]["config"]["max_grad_norm"] == "inf"
    assert manifest["task"] == tasks.DEFAULT
    assert manifest["block"] == 5
    assert manifest["run"] == {
        "steps": 20,
        "eval_every": 10,
        "eval_episodes": 1,
        "final_episodes": 2,
        "log_every": 5,
        "save_every": 10,
        "normalise": "standard",
        "seeds": [0, 1],
        "log": [],
        "stop_on_bad": False,
        "deterministic": False,
        "shard_every": 1000,
        "pretrain": 0,
        "online_steps": 0,
        "online_every": 0,
        "utd": "1",
        "balanced": False,
        "drop_bad_rows": False,
        "rescale_actions": False,
    }
    assert manifest["exact"].startswith("bit-exact")
    assert [m["status"] for m in manifest["members"]] == ["learning"] * 2
    assert [m["seed"] for m in manifest["members"]] == [0, 1]
    assert manifest["ended"] >= manifest["started"]


def test_the_manifest_says_who_chose_each_value(done):
    chosen = done.run.manifest["from"]
    assert chosen["flow_steps"] == "flag"
    assert chosen["alpha"].startswith("row")
    assert chosen["tau"] == "default"
    assert chosen["normalise"] == "row"


def test_the_manifest_has_provenance(done):
    manifest = done.run.manifest
    assert manifest["data"]["sha256"] == disk.sha256(done.data)
    assert manifest["data"]["origin"] == "regenerated"
    assert manifest["data"]["card"]["recipe"]["episodes"] == 3
    assert (manifest["data"]["transitions"], manifest["data"]["episodes"]) == (3000, 3)
    assert manifest["versions"] == provenance.versions()
    assert manifest["commit"] == provenance.commit()
    assert manifest["source_sha256"] == provenance.source_hash()
    assert manifest["hardware"]["backend"] == "cpu"
    assert manifest["hardware"]["cores"] == provenance.cores()


def test_metrics_have_an_entry_a_member(done):
    lines = (done.run.path / "metrics.jsonl").read_text().splitlines()
    for line in map(strict, lines):
        assert all(len(v) == 2 for k, v in line.items() if k != "step"), line
    steps = done.run.metrics
    assert [line["step"] for line in steps] == [5, 10, 15, 20]
    always = {"critic/q", "critic/loss", "actor/bc", "actor/spread", "actor/estimate_max"}
    always |= {"grad_norm/actor", "grad_norm/actor_max", "grad_norm/critic", "grad_norm/step"}
    assert all(always <= set(line) for line in steps)
    assert [line["step"] for line in steps if "eval/success" in line] == [10, 20]
    assert [line["step"] for line in steps if "eval/success_noise0" in line] == [20]


def test_the_gradient_at_each_step_is_there_and_vines_start_gets_none(done):
    found = np.array(done.run.metrics[-1]["grad_norm/step"])
    assert found.shape == (2, SMALL["flow_steps"] + 1)
    assert (found[:, 0] == 0).all()
    assert (found[:, 1:] > 0).all()


def test_checkpoints_hold_policies_of_every_evaluation_and_states_to_go_on_from(done):
    folder = done.run.path / "checkpoints"
    stems = [f"{kind}-{step:09d}" for kind in ("policy", "state") for step in (10, 20)]
    expected = {f"{stem}.{suffix}" for stem in stems for suffix in ("json", "safetensors")}
    assert {p.name for p in folder.iterdir()} == expected
    assert not list(done.run.path.rglob("*.part"))


def test_only_the_last_two_states_are_kept(tmp_path):
    """Policies are a fraction of that and all stay."""

    (tmp_path / "checkpoints").mkdir()
    saver = Saver(tmp_path)
    for step in (10, 20, 30):
        saver.save(loop.Moment(step, {"x": np.zeros(1)}, None, []), {"actor": np.zeros(1)})
    saver.close()
    names = {p.stem for p in (tmp_path / "checkpoints").iterdir()}
    assert {n for n in names if n.startswith("state")} == {"state-000000020", "state-000000030"}
    assert len({n for n in names if n.startswith("policy")}) == 3


def test_a_state_is_enough_to_go_on(done):
    subject = runs.load(done.run).subject
    like = jax.eval_shape(lambda m: offline.start(subject.agent_of(), m), subject.members)
    found = checkpoint.load(done.run.checkpoint("state"), like)
    assert found.state.step.tolist() == [20, 20]
    assert found.member.seed.tolist() == [0, 1]


def test_every_episode_is_written_down(done):
    final = strict((done.run.path / "final.json").read_text())
    assert final["environment"]["limit"] == 1000
    assert {"map", "goal", "unit"} <= set(final["environment"]["maze"])
    for name in ("eval/success", "eval/success_noise0"):
        episodes = final["episodes"][name]
        assert [len(member) for member in episodes] == [2, 2]
        last = done.run.metrics[-1][name]
        assert [np.mean([e["success"] for e in member]) for member in episodes] == last
        for e in (e for member in episodes for e in member):
            assert 1 <= e["length"] <= 1000
            assert np.shape(e["path"])[1] == 2


@pytest.mark.parametrize("name", ["curve.png", "paths.png"])
def test_pictures_show_something(done, name):
    image = matplotlib.image.imread(done.run.path / name)
    height, width, _ = image.shape
    assert 400 < width < 3000
    assert 300 < height < 3000
    drawn = (image[..., :3] < 0.9).any(axis=-1).mean()
    assert 0.01 < drawn < 0.9


def test_the_data_are_made_where_nobody_takes_them_for_the_full_set(done):
    assert done.data.parent.name == "demo"
    assert "making data 4/4" in done.said
    assert f"data: {done.data} (regenerated)" in done.said


def test_the_end_names_every_seed_and_where_to_look(done):
    assert "seed 0 " in done.said
    assert "seed 1 " in done.said
    assert "mean success" in done.said
    assert "at step 20, 2 x 2 episodes" in done.said
    for name in ("curve.png", "paths.png", "manifest.json"):
        assert str(done.run.path / name) in done.said
    # The evaluation at step 10 runs beside the training; its success may come too late for this.
    whole = r"training 20/20 +\S+/s +0:00 left( +success \d\.\d\d at 10)?$"
    assert re.search(whole, done.said, re.MULTILINE)


def test_a_loaded_policy_takes_and_gives_numpy(done):
    policy = vinerl.load(done.run.path)
    one = policy(np.array([1.0, 2.0]))
    assert isinstance(one, np.ndarray)
    assert one.shape == (2,)
    many = policy(np.random.default_rng(0).normal(size=(7, 2)) * 100)
    assert many.shape == (7, 2)
    assert (np.abs(many) <= 1).all()
    with pytest.raises(InputError, match=r"observation of shape \(3,\)"):
        policy(np.zeros(3))


def test_a_policy_repeats_itself_after_loading_and_draws_fresh_noise_at_every_call(done):
    obs = np.array([1.0, 2.0])
    first, second = vinerl.load(done.run), vinerl.load(str(done.run.path))
    actions = [first(obs) for _ in range(3)]
    assert [second(obs).tolist() for _ in range(3)] == [a.tolist() for a in actions]
    assert not np.array_equal(actions[0], actions[1])


def test_members_and_steps_are_chosen(done):
    obs = np.array([1.0, 2.0])
    found = [vinerl.load(done.run, m, s)(obs) for m, s in ((0, 20), (1, 20), (0, 10))]
    assert np.array_equal(found[0], vinerl.load(done.run)(obs))
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    with pytest.raises(InputError, match="has members 0 to 1, not 2"):
        vinerl.load(done.run, 2)
    with pytest.raises(InputError, match=r"no policy of step 15 .* steps: 10, 20"):
        vinerl.load(done.run, 0, 15)


def test_a_policy_sees_what_training_saw(done):
    """The normaliser is in the checkpoint, and is the data's."""
    trained = runs.load(done.run)
    subject, obs = trained.subject, files.read(done.data)["observations"]
    np.testing.assert_allclose(subject.normaliser.mean, obs.mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(subject.normaliser.std, obs.std(axis=0), rtol=1e-3)

    policy = vinerl.load(done.run)
    agent = subject.agent_of()(jax.tree.map(lambda x: x[0], subject.members))
    key = jax.random.fold_in(stack.keys(stack.Member(np.uint32(0), {})).evaluate, 0)
    weights = jax.tree.map(lambda x: x[0], trained.policies)
    seen = (obs[:5] - subject.normaliser.mean) / subject.normaliser.std
    np.testing.assert_allclose(policy(obs[:5]), agent.act(weights, seen, key), atol=1e-5)


def test_evaluating_again_gives_the_same_result_twice(done, capsys):
    options = {"episodes": 1, "stream": 20, "workers": 2}
    first = evaluation.again(done.run, **options)
    (file,) = done.run.path.glob("evaluation-000000020-1x20.json")
    episodes = file.read_text()
    file.unlink()
    assert "mean " in capsys.readouterr().out
    second = evaluation.again(done.run, **(options | {"workers": 1}))
    assert first.tolist() == second.tolist()
    assert file.read_text() == episodes, "every position of every episode"
    in_training = strict((done.run.path / "final.json").read_text())["episodes"]["eval/success"]
    again = strict(episodes)["episodes"]["eval/success"]
    assert [m[:1] for m in in_training] == again, "and the stream of training is that of its step"


def test_commands_find_the_run(done, tmp_path, capsys):
    commands.list_runs([str(done.run.path.parent)])
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[:4] == [str(done.run.path), "vine", "2", "20"]
    assert "regenerated data" in line
    picture = tmp_path / "compare.png"
    commands.compare([*[str(done.run.path)] * 2, "--plot", str(picture)])
    assert {"success", str(picture)} <= set(capsys.readouterr().out.split())
    assert matplotlib.image.imread(picture).shape[1] > 400
    with pytest.raises(InputError, match="two runs or more"):
        commands.compare([str(done.run.path)])


def test_a_finished_run_is_evaluated_with_the_best_of_several_actions(done, capsys):
    commands.evaluate([str(done.run.path), "--best-of", "3", "--episodes", "1", "--workers", "1"])
    (file,) = done.run.path.glob("evaluation-000000020-1x1-best_of3.json")
    ((one,), (other,)) = json.loads(file.read_text())["episodes"]["eval/success"]
    file.unlink()
    assert one["path"] != other["path"]
    assert "mean " in capsys.readouterr().out


def test_pictures_can_be_drawn_again(done, capsys):
    (done.run.path / "curve.png").unlink()
    commands.plot([str(done.run.path)])
    assert capsys.readouterr().out.split() == [
        str(done.run.path / "curve.png"),
        str(done.run.path / "paths.png"),
    ]
    assert (done.run.path / "curve.png").exists()


def test_a_comparison_says_what_differs(done, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    manifest = done.run.manifest
    manifest["agent"]["config"]["alpha"] = 3.0
    disk.write_sealed(other / "manifest.json", manifest)
    rows = [line.split() for line in show.comparison([done.run, Run(other)]).splitlines()]
    assert ["agent.config.alpha", "1.0", "3.0"] in rows
    assert not any(row[0].startswith("versions") for row in rows)


@pytest.mark.parametrize(
    ("steps", "said"), [(10, "this run has 20; it can only grow"), (23, "goes in blocks of 5")]
)
def test_a_run_is_not_resumed_to_a_length_it_cannot_have(done, steps, said):
    before = (done.run.path / "manifest.json").read_bytes()
    with pytest.raises(InputError, match=said):
        running.resume(done.run.path, steps)
    assert (done.run.path / "manifest.json").read_bytes() == before
    assert not (done.run.path / "lock.json").exists()


def test_a_folder_without_a_run_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"holds no run: there is no manifest\.json"):
        vinerl.load(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": 1, ')
    with pytest.raises(InputError, match=r"manifest\.json: cannot be read"):
        vinerl.load(tmp_path)
    disk.write_sealed(tmp_path / "manifest.json", {"schema": 7})
    with pytest.raises(InputError, match="schema 7"):
        vinerl.load(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"episodes": 0}, "--episodes 0: at least 1"),
        ({"stream": -1}, "--stream -1: at least 1"),
        ({"stop_at": 9}, "expected 1 to flow_steps, which is 3"),
        ({"best_of": 0}, "--agent.best_of 0: expected a whole number, 1 or more"),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused(done, options, said):
    with pytest.raises(InputError, match=said):
        evaluation.again(done.run, **options)


def test_an_episode_that_broke_the_simulator_is_written_down(tmp_path):
    nan, inf = float("nan"), float("inf")
    report = Report(0.0, [-1.0, nan], [[1.0, 2.0], [nan, inf]], broken=True)
    evaluation.save(tmp_path / "final.json", {"eval/success": [[report]]}, {})
    ((episode,),) = strict((tmp_path / "final.json").read_text())["episodes"].values()
    assert episode == [
        {
            "success": 0.0,
            "return": None,
            "length": 2,
            "path": [[1.0, 2.0], [None, None]],
            "rewards": [],
        }
    ]


def test_a_damaged_policy_is_refused(done, tmp_path):
    """A copy of the run in which one bit is another."""
    (tmp_path / "checkpoints").mkdir()
    for name in ("manifest.json", "checkpoints/policy-000000020.json"):
        (tmp_path / name).write_bytes((done.run.path / name).read_bytes())
    name = "checkpoints/policy-000000020.safetensors"
    data = bytearray((done.run.path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=r"policy-000000020\.safetensors: damaged"):
        vinerl.load(tmp_path)


def test_training_is_the_same_with_and_without_evaluation(done, tmp_path, monkeypatch):
    """Also where evaluation runs beside it, as it does with more cores. Rollouts are short here."""
    monkeypatch.setattr(files, "OFFICIAL", tmp_path / "nothing")
    monkeypatch.setattr(provenance, "cores", lambda: 4)

    def states(name, **options):
        asked = OPTIONS | SMALL | {"dir": done.data.parent, "out": tmp_path / name} | options
        job = jobs.resolve(jobs.request("vine", asked))
        task = job.task._replace(env="toy_envs:Quick")
        run = running.train(jobs.replace(job, task=task))
        return [run.checkpoint("state").with_suffix(".safetensors").read_bytes(), run]

    beside, run = states("on", eval_episodes=3)
    assert [x["step"] for x in run.metrics if "eval/success" in x] == [10, 20]
    without, run = states("off", eval_every=0, final_episodes=0)
    assert not any("eval/success" in x for x in run.metrics)
    now_and_then = done.run.checkpoint("state").with_suffix(".safetensors").read_bytes()
    assert beside == without == now_and_then


def test_the_lines_of_the_readme_work(done, monkeypatch):
    """What it trains is checked and replaced by the run that is there."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    (block,) = (block for block in blocks if "vinerl.train(" in block)

    def train(*args, **options):
        inspect.signature(vinerl.train).bind(*args, **options)
        job = jobs.resolve(jobs.request(args[0] if args else "vine", options | {"out": None}))
        assert job.members >= 1
        return done.run

    load = vinerl.load
    monkeypatch.setattr(vinerl, "train", train)
    monkeypatch.setattr(vinerl, "load", lambda run, **chosen: load(done.run, **chosen))
    names = {}
    exec(compile(block, "lines of the README", "exec"), names)
    assert names["action"].shape == (2,)
