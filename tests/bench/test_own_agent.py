"""A run of an agent of the user's own: which file it is, and where it is now."""

import hashlib
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import vinerl
from vinerl import disk
from vinerl.bench.commands import training as commands
from vinerl.bench.pictures import show
from vinerl.bench.run import evaluation, jobs, manifests, running, tasks
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError

SOURCE = (Path(__file__).parents[2] / "examples" / "my_agent.py").read_text()
EDITED = SOURCE.replace("return matching + cfg.weight", "return matching - 2 * cfg.weight")
TINY = {"actor_hidden": (8,), "batch_size": 16, "flow_steps": 2, "steps": 4, "block": 2}
OBS = np.random.default_rng(1).normal(size=(5, 2))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, its actions, and its agent's file: away from where it was while the run was made."""
    folder, draw = tmp_path_factory.mktemp("own"), np.random.default_rng(0)
    arrays = {"observations": draw.normal(size=(40, 2)), "actions": draw.uniform(-1, 1, (40, 2))}
    arrays |= {"rewards": draw.normal(size=40), "terminals": np.arange(40) % 10 == 9}
    np.savez(folder / "mine.npz", **arrays)
    for place in ("cluster", "robot"):
        (folder / place).mkdir()
    file = folder / "cluster" / "my_agent.py"
    file.write_text(SOURCE)
    run = vinerl.train(f"{file}:MINE", data=folder / "mine.npz", out=folder / "run", **TINY)
    actions = vinerl.load(run)(OBS)
    return run, actions, file.rename(folder / "robot" / "my_agent.py")


@pytest.fixture
def copied(trained, tmp_path):
    """A run that may be changed, and the same or another file of its agent."""
    run, _, file = trained
    (tmp_path / "edited").mkdir()
    edited = tmp_path / "edited" / "my_agent.py"
    edited.write_text(EDITED)
    return Run(shutil.copytree(run.path, tmp_path / "run")), file, edited


@pytest.fixture
def forgotten(monkeypatch):
    """Where modules are looked for, and which are known, is as before."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("my_agent", "run.my_agent", "run"):
        sys.modules.pop(name, None)


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_the_manifest_has_the_hash_of_its_file(trained):
    run, _, file = trained
    assert run.manifest["agent_sha256"] == sha256(file)
    assert jobs.resolve(jobs.Request()).agent_sha256 is None, "of the package's agents there is one"


def test_a_policy_is_loaded_with_its_file_where_that_is_now(trained, capsys):
    run, actions, file = trained
    gone = r"cannot import \S+cluster\S+my_agent.py: .* --agent FILE.py:NAME \(agent=.* vinerl.load"
    with pytest.raises(InputError, match=gone):
        vinerl.load(run)
    np.testing.assert_array_equal(vinerl.load(run, agent=f"{file}:MINE")(OBS), actions)
    assert not capsys.readouterr().out
    with pytest.raises(InputError, match="expected YOURS = ") as refused:
        vinerl.load(run, agent=f"{file}:YOURS")
    assert "FILE.py:NAME" not in str(refused.value), "that is what was done"


def test_a_policy_that_is_loaded_with_another_file_says_so(trained, copied, capsys):
    run, _, edited = copied
    vinerl.load(run, agent=f"{edited}:MINE")
    said = "my_agent.py:MINE is another file than the run has learned with, by its sha256\n"
    assert capsys.readouterr().out == said


def test_a_run_is_evaluated_with_its_file_where_that_is_now(trained, monkeypatch, capsys):
    run, _, file = trained
    task = tasks.named(tasks.DEFAULT)._replace(env="toy_envs:Quick")
    monkeypatch.setattr(evaluation, "_task", lambda run: task)
    words = [str(run.path), "--episodes", "2", "--workers", "1"]
    with pytest.raises(InputError, match=r"--agent FILE.py:NAME"):
        commands.evaluate(words)
    commands.evaluate([*words, "--agent", f"{file}:MINE"])
    assert "mean " in capsys.readouterr().out


def test_a_run_goes_on_with_its_file_where_that_is_now(copied, capsys):
    run, file, _ = copied
    with pytest.raises(InputError, match=r"--agent FILE.py:NAME"):
        running.resume(run.path, 6)
    commands.resume([str(run.path), "--steps", "6", "--agent", f"{file}:MINE"])
    said = capsys.readouterr().out
    assert "going on from step 4" in said
    assert "my_agent.py is" not in said
    assert run.metrics[-1]["step"] == 6
    assert "agent_sha256" not in run.manifest["resumed"][0]
    assert "changed on the way" not in show.remarks(run)


def test_a_run_that_goes_on_with_an_edited_file_says_so_and_keeps_it(trained, copied, capsys):
    """Found where it was, too: nobody names it."""
    run, file, edited = copied
    was = Path(run.manifest["agent"]["name"].removesuffix(":MINE"))
    shutil.copy(edited, was)
    try:
        running.resume(run.path, 6)
        vinerl.load(run)
    finally:
        was.unlink()
    said, manifest = capsys.readouterr().out, run.manifest
    assert "not as at the beginning: agent_sha256" in said
    assert f"at the beginning (sha256 {sha256(edited)[:12]}.., then {sha256(file)[:12]}..)" in said
    assert "another file than the run has learned with" not in said, "it has, since"
    assert manifest["agent_sha256"] == sha256(file)
    assert manifest["resumed"][0]["agent_sha256"] == sha256(edited)
    assert "its agent's file was changed on the way" in show.remarks(run)


def test_a_manifest_from_before_there_was_a_hash_is_read_and_gone_on_with(copied, capsys):
    """Of what the file was then nothing is known, and nothing is said."""
    run, _, edited = copied
    older = run.manifest
    del older["agent_sha256"]
    disk.write_sealed(run.path / "manifest.json", older)
    vinerl.load(run, agent=f"{edited}:MINE")
    running.resume(run.path, 6, agent=f"{edited}:MINE")
    said = capsys.readouterr().out
    assert "my_agent.py:MINE is" not in said
    assert "not as at the beginning" not in said
    assert "agent_sha256" not in run.manifest["resumed"][0]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("{}/my_agent.py:MINE", "."),
        ("my_agent.py:MINE", "run"),
        ("my_agent:MINE", "run"),
        ("run:MINE", "."),
        ("run.my_agent:MINE", "."),
    ],
)
def test_what_lies_in_the_folder_of_a_run_is_not_executed_unasked(
    copied, forgotten, tmp_path, monkeypatch, name, place
):
    """Neither the module that the manifest names nor the package it is in."""
    run, *_ = copied
    for file in ("my_agent.py", "__init__.py"):
        mark = f"from pathlib import Path\nPath({str(tmp_path / 'executed')!r}).touch()\n"
        (run.path / file).write_text(mark + SOURCE)
    manifest, name = run.manifest, name.format(run.path)
    manifest["agent"]["name"] = name
    disk.write_sealed(run.path / "manifest.json", manifest)
    monkeypatch.chdir(tmp_path / place)
    with pytest.raises(InputError, match=rf"lies in the folder of the run.* --agent {name} asks"):
        vinerl.load(run)
    with pytest.raises(InputError, match="lies in the folder of the run"):
        running.resume(run.path, 6)
    assert not (tmp_path / "executed").exists()
    vinerl.load(run, agent=name)
    assert (tmp_path / "executed").exists()


def test_an_agent_of_the_package_is_where_it_is():
    manifest = {"agent": {"name": "vine"}}
    assert manifests.agent_name(manifest, Path("run"), "vine") == "vine"
    with pytest.raises(InputError, match=r"--agent my.py:MINE: the agent .* is vinerl's own vine"):
        manifests.agent_name(manifest, Path("run"), "my.py:MINE")
