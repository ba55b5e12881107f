"""A stack that is too large for the device: what fits, what to ask for, and nothing lost."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vinerl
from tiny import SIZES, SPEC, dataset
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
def fail_at(monkeypatch):
    """Training whose block finds no memory once it has been called so often."""

    def arrange(number):
        original, calls = offline.train_block, []

        def train_block(agent_of):
            block = original(agent_of)

            def counted(runs, data, steps):
                if isinstance(steps, int):  # called, not traced
                    calls.append(steps)
                    if len(calls) == number:
                        exhaust()
                return block(runs, data, steps)

            return counted

        monkeypatch.setattr(offline, "train_block", train_block)

    return arrange


def test_what_is_needed_is_a_line_in_the_number_of_members():
    need = Need(fixed=10 * GIB, member=5 * GIB)
    assert need.of(4) == 30 * GIB
    assert need.fits(100 * GIB) == 16, "a tenth is left free"
    assert need.fits(15 * GIB) == 0
    assert need.fits(5 * GIB) == 0


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
    assert need.member > 2 * sum(x.nbytes for x in jax.tree.leaves(state)), "itself and its copy"


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(4, 2, "01 23"), (4, 3, "01 23"), (5, 2, "01 23 4"), (3, 1, "0 1 2"), (2, 9, "01")],
)
def test_seeds_are_dealt_out_evenly(count, size, expected):
    parts = memory.turns(range(count), size)
    assert " ".join("".join(map(str, part)) for part in parts) == expected


def test_the_advice_has_the_numbers_and_the_commands(tmp_path):
    need, asked = Need(5 * GIB, 10 * GIB), job(tmp_path, seeds=(0, 1, 2, 3))
    said = memory.advice(asked, TEXT, need, 30 * GIB)
    for part in (
        "ran out of memory with 4 members (RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 34.5GiB).",
        "It gives this process 30 GiB.",
        "4 members need 45 GiB: 5 GiB and 10 GiB a member. 2 members would fit.",
        "with --seeds 0,1, then with --seeds 2,3.",
        f"{tmp_path / 'run'} has no checkpoint yet and can be removed.",
    ):
        assert part in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("options", "room", "expected"),
    [
        ({"seeds": (0, 1)}, None, "with --seeds 0, then with --seeds 1."),
        ({"seeds": (0, 1)}, 8 * GIB, "Not even one would fit. Lower --agent.batch-size"),
        ({"seeds": (0,)}, None, "Lower --agent.batch-size"),
        (
            {"seeds": (0, 1)},
            100 * GIB,
            "8 members would fit. Another process may be using the device. A member",
        ),
        ({"seeds": (0, 1), "alpha": (1.0, 2.0)}, 40 * GIB, "with --seeds 0, then with --seeds 1."),
        (
            {"seeds": (0, 1), "alpha": (1.0, 2.0, 3.0, 4.0)},
            40 * GIB,
            "then with --seeds 1 and fewer values of alpha.",
        ),
    ],
)
def test_the_advice_fits_what_was_asked(tmp_path, options, room, expected):
    assert expected in memory.advice(job(tmp_path, **options), TEXT, Need(5 * GIB, 10 * GIB), room)


def test_without_memory_for_the_first_block_the_run_says_what_to_do(data, tmp_path, fail_at):
    fail_at(1)
    with pytest.raises(InputError) as caught:
        vinerl.train(data=data, out=tmp_path / "run", **OPTIONS)
    said = str(caught.value)
    assert "2 members (RESOURCE_EXHAUSTED: Out of memory allocating 281474976710656 bytes)" in said
    assert "By the compiler's account 2 members need" in said
    assert "--seeds 0, then with --seeds 1." in said
    assert "no checkpoint yet" in said
    assert not (tmp_path / "run" / "lock.json").exists()


@pytest.mark.slow
def test_a_run_that_finds_no_memory_later_is_resumed_and_ends_the_same(
    data, tmp_path, fail_at, monkeypatch
):
    whole = vinerl.train(data=data, out=tmp_path / "whole", **OPTIONS)
    monkeypatch.setattr(memory, "estimate", lambda *_: Need(GIB, GIB))
    fail_at(5)
    with pytest.raises(InputError, match=r"vinerl resume \S+ goes on from step 4 when"):
        vinerl.train(data=data, out=tmp_path / "run", **OPTIONS)
    assert not Run(tmp_path / "run").manifest["ended"]
    resumed = running.resume(tmp_path / "run")
    files = [run.checkpoint("state").with_suffix(".safetensors") for run in (whole, resumed)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert resumed.metrics == whole.metrics


def test_another_error_of_the_device_stays_what_it_is(tmp_path):
    asked = job(tmp_path)
    with (
        pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"),
        memory.explained(asked, stack.maker(asked.make, asked.config, SPEC), dataset()),
    ):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
