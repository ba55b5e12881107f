"""A stack that is too large for the device: in groups that fit, or what to ask for instead."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import vinerl
from tiny import SIZES, SPEC, assert_close, dataset
from vinerl.agents.vine import VineConfig, make_vine
from vinerl.bench.run import jobs, memory, running
from vinerl.bench.run.memory import Need
from vinerl.bench.run.runs import Run
from vinerl.errors import InputError
from vinerl.train import offline, stack

GIB = 2**30
SMALL: dict[str, Any] = SIZES | {"flow_steps": 1, "critics": 1, "critic_blocks": 1}
OPTIONS: dict[str, Any] = SMALL | {
    "steps": 6,
    "eval_every": 0,
    "log_every": 1,
    "block": 1,
    "seeds": (0, 1),
}
TEXT = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34.5GiB.\nmore lines"


@pytest.fixture
def data(tmp_path):
    rng, n = np.random.default_rng(0), 40
    path = tmp_path / "own.npz"
    columns: dict[str, Any] = {
        "observations": rng.normal(size=(n, 3)),
        "actions": rng.uniform(-1, 1, (n, 2)),
    }
    np.savez(path, **columns, rewards=rng.normal(size=n), terminals=np.arange(n) % 10 == 9)
    return path


def job(tmp_path, **options):
    asked = {"data": tmp_path / "x.npz", "out": tmp_path / "run"} | options
    return jobs.resolve(jobs.request("vine", asked))


def exhaust():
    """More than an address can name, so no machine gives it: the true exception of JAX."""
    jnp.zeros(2**46).block_until_ready()


@pytest.fixture
def fail_if(monkeypatch):
    """Training whose block finds no memory where (its members, how many calls there were) say."""

    def arrange(too_much):
        original, sizes = offline.train_block, []

        def train_block(agent_of):
            block = original(agent_of)

            def counted(runs, data, steps):
                sizes.append(len(runs.status))
                if too_much(sizes[-1], len(sizes)):
                    exhaust()
                return block(runs, data, steps)

            counted.lower = getattr(block, "lower", None)
            return counted

        monkeypatch.setattr(offline, "train_block", train_block)
        return sizes

    return arrange


def test_what_is_needed_is_a_line_in_the_number_of_members():
    need = Need(fixed=10 * GIB, member=5 * GIB, state=GIB)
    assert need.of(4) == 30 * GIB
    assert need.fits(100 * GIB) == 16, "a tenth is left free"
    assert need.fits(15 * GIB) == 0
    assert need.fits(5 * GIB) == 0


@pytest.mark.parametrize(
    ("count", "room", "size"),
    [
        (4, 34, 4),  # 30 of 30.6
        (4, 33, 2),  # 10 + 4 x 2 + 2 x 4 = 26, and 30 with a third; 29.7
        (4, 25, 1),  # 22 of 22.5
        (4, 24, 0),
        (10, 100, 10),
        (20, 100, 10),  # 10 + 40 + 10 x 4
    ],
)
def test_a_group_has_room_beside_the_states_of_all(count, room, size):
    """A member takes 5: its state, the copy that is saved, and 3; in a group its state again."""
    need = Need(fixed=10 * GIB, member=5 * GIB, state=GIB)
    assert need.at_once(count, room * GIB) == size


def test_a_result_in_the_place_of_an_argument_is_counted_once():
    sizes = {"argument": 100, "output": 80, "alias": 70, "temp": 40}
    fake = SimpleNamespace(**{f"{name}_size_in_bytes": size for name, size in sizes.items()})
    assert memory.taken(fake) == 100 + 80 - 70 + 40


def test_memory_grows_by_the_same_amount_with_every_member():
    """The compiler's own account for four members, against the line through one and two."""
    config, make = replace(VineConfig(), **SMALL), make_vine
    agent_of, data = stack.maker(make, config, SPEC), dataset(4000)
    like = stack.members(config, seeds=(0,))
    need = memory.estimate(agent_of, like, data)
    assert need is not None
    four = memory._bytes(agent_of, like, data, 4)
    assert need.of(4) == pytest.approx(four, rel=0.1)
    stored = sum(np.asarray(x).nbytes for x in jax.tree.leaves(data))
    assert need.fixed == pytest.approx(stored, rel=0.2)
    state = offline.start(agent_of, like)
    assert need.state == sum(x.nbytes for x in jax.tree.leaves(state))
    assert need.member > 2 * need.state, "itself and its copy"


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(4, 2, "01 23"), (4, 3, "01 23"), (5, 2, "01 23 4"), (3, 1, "0 1 2"), (2, 9, "01")],
)
def test_seeds_are_dealt_out_evenly(count, size, expected):
    parts = memory.turns(range(count), size)
    assert " ".join("".join(map(str, part)) for part in parts) == expected


def test_the_advice_has_the_numbers_and_the_commands(tmp_path):
    need, asked = Need(5 * GIB, 10 * GIB, GIB), job(tmp_path, seeds=range(6), stack=3)
    said = memory.advice(asked, TEXT, need, 40 * GIB)
    for part in (
        "ran out of memory with 6 members, 3 at once (RESOURCE_EXHAUSTED: Out of memory while "
        "trying to allocate 34.5GiB).",
        "It gives this process 40 GiB.",
        "6 members need 65 GiB: 5 GiB and 10 GiB a member. 3 members would fit, and 2 at once "
        "beside the states of all.",
        f"vinerl resume {tmp_path / 'run'} --stack 2 begins it again in groups",
    ):
        assert part in said
    assert "\n" not in said


LARGE = Need(5 * GIB, 10 * GIB, 5 * GIB)  # hardly more than its state


@pytest.mark.parametrize(
    ("options", "need", "room", "expected"),
    [
        ({"seeds": (0, 1)}, LARGE, None, "--stack 1 begins it again"),
        ({"seeds": (0, 1, 2, 3, 4)}, None, GIB, "--stack 2 begins it again"),
        ({"seeds": (0, 1)}, LARGE, 8 * GIB, "Not even one would fit. Lower --agent.batch-size"),
        ({"seeds": (0,)}, LARGE, None, "Lower --agent.batch-size"),
        ({"seeds": (0, 1), "stack": 1}, None, None, "Lower --agent.batch-size"),
        (
            {"seeds": (0, 1)},
            LARGE,
            100 * GIB,
            "8 members would fit. Another process may be using the device. vinerl resume",
        ),
        (
            {"seeds": (0, 1, 2, 3)},
            LARGE,
            40 * GIB,
            "3 members would fit. A member is the same run in any stack, so give the same command, "
            "each time with another --out, with --seeds 0,1, then with --seeds 2,3.",
        ),
        (
            {"seeds": (0, 1), "alpha": (1.0, 2.0)},
            LARGE,
            40 * GIB,
            "with --seeds 0, then with --seeds 1.",
        ),
        (
            {"seeds": (0, 1), "alpha": (1.0, 2.0, 3.0, 4.0)},
            LARGE,
            40 * GIB,
            "then with --seeds 1 and fewer values of alpha.",
        ),
    ],
)
def test_the_advice_fits_what_was_asked(tmp_path, options, need, room, expected):
    assert expected in memory.advice(job(tmp_path, **options), TEXT, need, room)


def test_over_several_devices_the_members_of_each_are_counted(tmp_path, monkeypatch, capsys):
    """Eight members on two devices: of four on each two fit at once, so four of all."""
    need = Need(10 * GIB, 5 * GIB, GIB)
    monkeypatch.setattr(memory, "estimate", lambda *_: need)
    monkeypatch.setattr(memory, "room", lambda: 33 * GIB)
    asked = job(tmp_path, seeds=range(8))
    full = jax.errors.JaxRuntimeError(TEXT)
    assert memory.smaller(asked, full, lambda _: None, dataset(), devices=2).stack == 4
    assert "8 members do not fit: at most 4 at once (--stack 4)" in capsys.readouterr().out


def test_without_memory_for_the_first_block_the_run_says_what_to_do(data, tmp_path, fail_if):
    fail_if(lambda members, calls: calls == 1)
    with pytest.raises(InputError) as caught:
        vinerl.train(data=data, out=tmp_path / "run", **OPTIONS)
    said = str(caught.value)
    assert "2 members (RESOURCE_EXHAUSTED: Out of memory allocating 281474976710656 bytes)" in said
    assert "By the compiler's account 2 members need" in said
    assert f"vinerl resume {tmp_path / 'run'} --stack 1 begins it again" in said
    assert not (tmp_path / "run" / "lock.json").exists()


def test_without_memory_for_the_data_there_is_a_run_to_resume(data, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "estimate", lambda *_: None)
    monkeypatch.setattr(running.devices, "copy", lambda *_: exhaust())
    with pytest.raises(InputError, match=r"vinerl resume \S+ --stack 1 begins it again"):
        vinerl.train(data=data, out=tmp_path / "run", **OPTIONS)
    assert not Run(tmp_path / "run").manifest["ended"]


def test_environments_are_closed_though_a_copy_found_no_memory():
    closed = []
    evaluator = SimpleNamespace(close=lambda: closed.append("evaluator"))
    live = SimpleNamespace(close=lambda: closed.append("live"))
    under_way: Any = SimpleNamespace(
        job=SimpleNamespace(task=None, log=()),
        folder=None,
        manifest={},
        saver=SimpleNamespace(close=exhaust),
        evaluator=evaluator,
        online=SimpleNamespace(live=live),
        _train=lambda *_: exhaust(),
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        running._Running.run(under_way, None)
    assert closed == ["evaluator", "live"]


@pytest.fixture
def tight(monkeypatch):
    """A device on which five members do not fit, and three of them at once do; nobody learns."""

    block = lambda runs, data, steps: (runs, {"critic/loss": runs.member.seed * 1.0})
    monkeypatch.setattr(offline, "train_block", lambda agent_of: block)
    look = lambda runs, data: {"actor/spread": runs.member.seed * 10.0 + len(runs.status)}
    monkeypatch.setattr(offline, "diagnose", lambda agent_of: look)
    need = Need(10 * GIB, 5 * GIB, GIB)
    monkeypatch.setattr(memory, "estimate", lambda *_: need)
    monkeypatch.setattr(memory, "room", lambda: 36 * GIB)
    assert need.at_once(5, 36 * GIB) == 3


@pytest.mark.usefixtures("tight")
def test_what_does_not_fit_is_split_and_goes_on(data, tmp_path, fail_if, capsys):
    """Two rounds of three: the last has a member to fill it up."""
    sizes = fail_if(lambda members, calls: members > 3)
    run = vinerl.train(data=data, out=tmp_path / "run", **OPTIONS | {"seeds": range(5), "steps": 2})
    assert sizes == [5, 3, 3, 3, 3]
    assert "5 members do not fit: at most 3 at once (--stack 3)" in capsys.readouterr().out
    assert [line["critic/loss"] for line in run.metrics] == [[0, 1, 2, 3, 4]] * 2
    assert [line["actor/spread"] for line in run.metrics] == [[3, 13, 23, 33, 43]] * 2
    assert run.manifest["ended"]


@pytest.mark.usefixtures("tight")
def test_groups_that_do_not_fit_after_all_are_halved(data, tmp_path, fail_if):
    """By the compiler's account three of seven fit at once; in truth one does."""
    sizes = fail_if(lambda members, calls: members > 1)
    run = vinerl.train(data=data, out=tmp_path / "run", **OPTIONS | {"seeds": range(7), "steps": 1})
    assert sizes == [7, 2, 1, 1, 1, 1, 1, 1, 1]
    assert run.manifest["ended"]


@pytest.mark.usefixtures("tight")
def test_not_even_one_at_once_ends_it(data, tmp_path, fail_if):
    sizes = fail_if(lambda members, calls: True)
    with pytest.raises(InputError, match=r"5 members, 1 at once .* using the device. Lower"):
        vinerl.train(data=data, out=tmp_path / "run", **OPTIONS | {"seeds": range(5)})
    assert sizes == [5, 3, 1]


@pytest.mark.usefixtures("tight")
def test_a_size_that_was_asked_for_is_kept_to(data, tmp_path, fail_if):
    fail_if(lambda members, calls: members > 3)
    with pytest.raises(InputError, match=r"7 members, 4 at once .* --stack 2 begins it again"):
        vinerl.train(data=data, out=tmp_path / "run", stack=4, **OPTIONS | {"seeds": range(7)})


@pytest.mark.slow
def test_a_run_in_groups_equals_the_whole_and_may_be_resumed_in_others(
    data, tmp_path, fail_if, monkeypatch
):
    """Three members as one stack; two at once; two at once, stopped, and on one by one."""
    options = {"data": data} | OPTIONS | {"seeds": range(3), "pretrain": 2}
    whole = vinerl.train(out=tmp_path / "whole", **options)
    found = [vinerl.train(out=tmp_path / "groups", stack=2, **options)]
    monkeypatch.setattr(memory, "estimate", lambda *_: None)
    fail_if(lambda members, calls: calls == 6)  # in the second group of the third block
    with pytest.raises(InputError, match="goes on from step 2"):
        vinerl.train(out=tmp_path / "run", stack=2, **options)
    found.append(running.resume(tmp_path / "run", stack=1))
    for run in found:
        states = [
            safetensors.numpy.load_file(f"{x.checkpoint('state')}.safetensors")
            for x in (run, whole)
        ]
        assert_close(*states)
        assert_close(run.metrics, whole.metrics)
        kept = [x.manifest for x in (run, whole)]
        assert kept[0]["run"] == kept[1]["run"], "it is no part of what was asked for"


@pytest.mark.slow
def test_a_run_that_finds_no_memory_later_is_resumed_and_ends_the_same(
    data, tmp_path, fail_if, monkeypatch
):
    whole = vinerl.train(data=data, out=tmp_path / "whole", **OPTIONS)
    monkeypatch.setattr(memory, "estimate", lambda *_: Need(GIB, GIB, 1))
    fail_if(lambda members, calls: calls == 5)
    with pytest.raises(InputError, match=r"vinerl resume \S+ --stack 1 goes on from step 4"):
        vinerl.train(data=data, out=tmp_path / "run", **OPTIONS)
    assert not Run(tmp_path / "run").manifest["ended"]
    resumed = running.resume(tmp_path / "run")
    files = [run.checkpoint("state").with_suffix(".safetensors") for run in (whole, resumed)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert resumed.metrics == whole.metrics


def test_another_error_of_the_device_stays_what_it_is(tmp_path):
    other = jax.errors.JaxRuntimeError("INTERNAL: something else")
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        memory.smaller(job(tmp_path), other, lambda _: None, dataset())
