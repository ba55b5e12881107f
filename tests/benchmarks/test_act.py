"""What is measured is what it says: chains of products, and actions that are the policy's."""

import json
import os

import jax
import numpy as np
import pytest

from benchmarks import act
from vinerl.bench.run.policy import Policy
from vinerl.errors import InputError


@pytest.mark.parametrize("rows", [(), (3,)])
def test_a_chain_goes_through_every_kernel_in_every_step(rows):
    """Kernels that double make 4**K of the numbers that come back, and the rest has no part."""
    kernels = [2 * np.eye(5, dtype=np.float32), 2 * np.eye(5, 2, dtype=np.float32)]
    start = np.broadcast_to(np.array([1, -3, 7, 7, 7], np.float32), (*rows, 5))
    expected = np.broadcast_to(np.array([64, -192], np.float32), (*rows, 2))
    assert np.array_equal(act.chain_numpy(kernels, start, 3), expected)
    assert np.array_equal(jax.jit(act.chain_jit, static_argnums=2)(kernels, start, 3), expected)
    assert start.max() == 7


def test_the_plain_call_gives_the_policys_actions():
    trained = act.untrained(small=True)
    plain, policy = act.plain_jit(trained), Policy(trained, 0)
    for obs in np.random.default_rng(0).normal(size=(2, 29)):
        np.testing.assert_allclose(plain(obs), policy(obs), atol=1e-5)
    many = np.random.default_rng(1).normal(size=(4, 29))
    np.testing.assert_allclose(plain(many), policy(many), atol=1e-5)


def test_ratios_are_to_the_faster_chain():
    seconds = {"policy": [3.0, 6.0, 3.0], "chain, numpy": [2.0] * 3, "chain, jit": [1.0, 4.0, 1.0]}
    found = act.summary({name: np.array(s) for name, s in seconds.items()})
    ours, slower, faster = found.values()
    assert (ours["median_us"], ours["ratio"], ours["calls"]) == (3e6, 3.0, 3)
    assert ours["p99_us"] == pytest.approx(5.94e6)
    assert ours["ratio_p99"] == pytest.approx(5.94 / 3.94, abs=1e-3)
    assert (slower["ratio"], faster["ratio"]) == (2.0, 1.0)


def test_every_case_is_called_as_often_as_asked_and_once_to_warm_up():
    called = []
    cases = {name: lambda name=name: called.append(name) for name in "ab"}
    seconds = act.timed(cases, 45)
    assert {name: len(s) for name, s in seconds.items()} == {"a": 45, "b": 45}
    assert "".join(called) == "ab" + 2 * (20 * "a" + 20 * "b") + 5 * "a" + 5 * "b"


@pytest.mark.slow
def test_the_command_says_a_line_a_case_and_a_table(capfd):
    """Measured on one core, in a process of its own: this one keeps its cores."""
    cores = os.sched_getaffinity(0)
    act.main(["--small", "--calls", "30"])
    assert os.sched_getaffinity(0) == cores
    said = capfd.readouterr()
    first, *rows = map(json.loads, said.out.splitlines())
    assert (first["subject"], first["hardware"]["cores"]) == ("act", 1)
    assert [(x["batch"], x["case"]) for x in rows] == [(b, n) for b in (1, 64) for n in act.NAMES]
    assert all(x["calls"] == 30 and 0 < x["median_us"] <= x["p99_us"] for x in rows)
    assert len(said.err.splitlines()) == 1 + len(rows)


def test_more_threads_than_cores_are_refused():
    with pytest.raises(InputError, match="--threads 1000: this process may use 1 to "):
        act.main(["--threads", "1000"])
