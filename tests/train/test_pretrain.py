"""Cloning before training: what is fitted, and what is left alone."""

import os
import signal
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, dataset, tiny
from vinerl.cli import main
from vinerl.rl import cloning
from vinerl.train import offline, pretrain, stack

POINT = np.float32([0.5, -0.25])


def start(name, **changes):
    config, make = tiny(name)
    config = replace(config, lr=3e-3, batch_size=64, **changes)
    agent_of = stack.maker(make, config, SPEC)
    return agent_of, offline.start(agent_of, stack.members(config, (0, 1)))


def last(moments):
    *_, moment = moments
    return moment


def test_a_field_learns_where_the_data_are_and_nothing_else_moves():
    """One action everywhere: v = (a - x) / (1 - t) leads there from any noise."""
    agent_of, first = start("vine", actor_hidden=(32, 32))
    data = dataset()
    data = data._replace(action=jnp.broadcast_to(POINT, data.action.shape))
    moments = list(pretrain.clone(agent_of, first, data, 1200))
    assert [m.step for m in moments] == [500, 1000, 1200]
    assert moments[-1].loss < 0.5 * moments[0].loss
    cloned = moments[-1].stack

    def act(run):
        agent = agent_of(run.member)
        obs = jnp.zeros((64, 3))
        return agent.act(agent.policy(run.state), obs, jax.random.key(0))

    drawn = np.asarray(jax.jit(jax.vmap(act))(cloned))
    assert np.abs(drawn - POINT).mean() < 0.05
    rest = lambda state: (state.params["critic"], state.targets, state.optimizer, state.step)
    untouched = [rest(run.state) for run in (cloned, first)]
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, *untouched)))


def test_the_length_of_a_block_is_of_no_account(monkeypatch):
    agent_of, first = start("vine")
    once = last(pretrain.clone(agent_of, first, dataset(), 6))
    monkeypatch.setattr(pretrain, "BLOCK", 3)
    twice = last(pretrain.clone(agent_of, first, dataset(), 6))
    for a, b in zip(*map(jax.tree.leaves, (once.stack, twice.stack)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_a_block_ends_where_the_data_change(monkeypatch):
    monkeypatch.setattr(pretrain, "BLOCK", 2)
    assert [*pretrain.blocks(8, 3)] == [(0, 2), (2, 3), (3, 5), (5, 6), (6, 8)]
    assert [*pretrain.blocks(5, 5)] == [(0, 2), (2, 4), (4, 5)]


def test_fields_are_those_that_take_time():
    agents = {name: tiny(name) for name in ("vine", "fql", "qam", "rebrac", "dac")}
    of = {name: cloning.fields(make(config, SPEC)) for name, (config, make) in agents.items()}
    assert of == {
        "vine": ["actor"],
        "fql": ["flow"],
        "qam": ["slow", "fast"],
        "rebrac": [],
        "dac": [],
    }


def test_slow_copies_of_a_field_are_cloned_too():
    agent_of, first = start("bam")
    agent = agent_of(jax.tree.map(lambda x: x[0], first.member))
    slow = [role for role in cloning.fields(agent) if role in agent.targets]
    cloned = last(pretrain.clone(agent_of, first, dataset(), 2)).stack.state
    assert slow
    for role in slow:
        same = jax.tree.map(np.array_equal, cloned.params[role], cloned.targets[role])
        assert all(jax.tree.leaves(same))


@pytest.fixture
def mine(tmp_path):
    draw = np.random.default_rng(0)
    arrays = {"observations": draw.normal(size=(40, 3)), "actions": draw.uniform(-1, 1, (40, 2))}
    arrays |= {"rewards": draw.normal(size=40), "terminals": np.arange(40) % 10 == 9}
    np.savez(tmp_path / "mine.npz", **arrays)
    return ["--data", str(tmp_path / "mine.npz")]


SMALL = "--agent.actor-hidden 8 --agent.critic-hidden 8 --agent.batch-size 16 --workers 1"
SMALL = [*SMALL.split(), "--log-every", "2", "--pretrain", "3"]


def test_an_agent_without_a_field_is_refused_before_there_is_a_folder(mine, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["train", "rebrac", *mine, *SMALL, "--steps", "4", "--out", str(tmp_path / "run")])
    assert "--pretrain 3: rebrac has no velocity field" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_asked_to_end_while_it_clones_does(mine, tmp_path, monkeypatch, capsys):
    """After the block, not after all of them; a folder of files changes every two steps."""

    def clone(agent_of, stack, data, steps, *, every, among):
        assert (steps, every) == (3, 2)
        os.kill(os.getpid(), signal.SIGTERM)
        yield pretrain.Moment(2, 0.5, stack)
        raise AssertionError("a second block")

    monkeypatch.setattr(pretrain, "clone", clone)
    monkeypatch.setattr(offline, "start", lambda agent_of, members: members)
    words = [mine[0], str(tmp_path), *SMALL, "--shard-every", "2", "--steps", "4"]
    with pytest.raises(SystemExit, match="143"):
        main(["train", *words, "--out", str(tmp_path / "run")])
    assert "stopped at step 0; vinerl resume" in capsys.readouterr().out
    assert not (tmp_path / "run/lock.json").exists()


@pytest.mark.slow
def test_a_resumed_run_is_not_cloned_again(mine, tmp_path):
    few = [*mine, *SMALL, "--agent.flow-steps", "2"]
    main(["train", *few, "--steps", "8", "--out", str(tmp_path / "whole")])
    main(["train", *few, "--steps", "4", "--out", str(tmp_path / "parts")])
    main(["resume", str(tmp_path / "parts"), "--steps", "8"])
    lines = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "parts")]
    assert lines[0] == lines[1]
    main(["train", *few[:-2], "--steps", "8", "--pretrain", "0", "--out", str(tmp_path / "none")])
    assert (tmp_path / "none/metrics.jsonl").read_text() != lines[0]
