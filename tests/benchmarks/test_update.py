"""`python -m benchmarks update`: what is timed, how, and what is made of it."""

import json
from itertools import count

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import clock, limits, material, steps, update
from vinerl.data.fold import fold, transitions
from vinerl.errors import InputError
from vinerl.nets.actors import Deterministic
from vinerl.rl.learner import Agent, AgentConfig
from vinerl.train import offline


def planned(*args):
    given = update.options().parse_args(args)
    config, _ = material.agent(given.agent, material.settings(given.set), given.small)
    return update.plan(given, config)


def said_by(args, capsys):
    update.main(args)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()[1:]]


def test_stacks_of_the_papers_vine_unless_something_is_varied():
    cases = planned("--stacks", "1,4")
    assert [case.members for case in cases] == [1, 4]
    sizes = {"batch": 512, "K": 10, "width": 512, "obs": 29, "rows": 100_000}
    none = {"grow": None, "option": None}
    assert cases[0].facts == none | {"members": 1, "precision": "float32"} | sizes


def test_growing_varies_one_size():
    assert [case.members for case in planned("--grow", "seeds")] == [1, 2, 4, 8, 12, 24, 48]
    (first,) = planned("--stacks", "3")
    for name, value in {"batch": 64, "K": 3, "width": 32, "obs": 7, "rows": 5000}.items():
        (case,) = planned("--grow", f"{name}={value}", "--members", "3")
        assert case.facts == first.facts | {"grow": name, name: value}
    (wide,) = planned("--grow", "width=32")
    assert wide.config.actor_hidden == wide.config.critic_hidden == (32,) * 4


def test_everything_grows_in_turn_but_what_an_agent_has_not():
    assert {case.grow for case in planned("--grow", "all")} == set(update.GROW)
    assert {c.grow for c in planned("--grow", "all", "--agent", "rebrac")} == {*update.GROW} - {"K"}
    with pytest.raises(InputError, match=r"--grow K.*rebrac"):
        planned("--grow", "K", "--agent", "rebrac")
    for wrong in ("all=1,2", "seed", "K=1,x"):
        with pytest.raises(InputError, match=f"--grow {wrong[0]}"):
            planned("--grow", wrong)
    several = planned("--grow", "seeds=2,1", "--grow", "batch=64")
    assert [(c.grow, c.members, c.config.batch_size) for c in several] == [
        ("seeds", 2, 512),
        ("seeds", 1, 512),
        ("batch", 4, 64),
    ]
    with pytest.raises(InputError, match="--stacks 1,x"):
        planned("--stacks", "1,x")


def test_an_option_is_a_further_case_of_every_stack():
    cases = planned("--stacks", "1,4", "--option", "a=1", "--option", "b=true,c=X,Y")
    timed = [(case.members, case.facts["option"]) for case in cases]
    assert timed == [(n, option) for n in (1, 4) for option in (None, "a=1", "b=true,c=X,Y")]
    given = [update.compiler_options(case.option) for case in cases[:3]]
    assert given == [None, {"a": 1}, {"b": True, "c": "X,Y"}]
    assert update.compiler_options("a=") == {"a": ""}
    with pytest.raises(InputError, match=r"--option a: .*name=value.*xla_"):
        planned("--option", "a")


def test_any_field_can_be_set_also_over_a_small_size():
    said = ["precision=bfloat16", "flow_steps=5", "critic_hidden=[4, 6]", "unroll=false"]
    config, _ = material.agent("vine", material.settings(said), small=True)
    assert (config.precision, config.batch_size) == ("bfloat16", 16)
    set_by_hand = {"flow_steps": 5, "critic_hidden": (4, 6), "unroll": False}
    assert vars(config).items() >= set_by_hand.items()
    with pytest.raises(InputError, match=r"--set alpha.*name=value"):
        material.settings(["alpha"])
    with pytest.raises(InputError, match="no field 'alhpa'"):
        material.agent("vine", material.settings(["alhpa=1"]))


def test_ratios_are_to_what_was_measured():
    """Memory feeds 10 FLOP a byte times 2 TB/s, less than the product's rate."""
    found = {"tflops": 5.0, "intensity": 10.0}
    peers, product, copy = {"tflops": 2.0}, {"tflops": 50.0}, {"gb_s": 2000.0}
    ratios = update.ratios(found, peers, product, copy)
    assert ratios == {"times_peers": 2.5, "of_product": 0.1, "of_roof": 0.25}
    assert update.ratios(found, peers, {"tflops": 10.0}, copy)["of_roof"] == 0.5
    assert update.ratios(found, {"error": ""}, product, {"error": ""}) == {"of_product": 0.1}


def test_the_peers_gather_what_fold_gathers():
    ends = [0, 0, 1, 0, 1]
    obs = np.arange(14, dtype=np.float32).reshape(7, 2)
    action = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    data = transitions(obs, action, np.arange(5.0), [1, 1, 0, 1, 1], ends)
    config, _ = material.agent("vine", {})
    starts = np.array([2, 0, 4, 3])
    ours = fold(jax.device_put(data), jnp.asarray(starts), 1, config.discount)
    theirs = steps.gather(data, starts, config)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), theirs, ours)
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(theirs))
    assert [x.dtype for x in jax.tree.leaves(theirs)] == [x.dtype for x in jax.tree.leaves(ours)]


def test_the_time_of_one_is_the_median_of_three_parts(monkeypatch):
    """A step takes 1 ms, in the second part of 333 steps 2 ms, in the third 4 ms. The first call
    compiles, which takes a minute and tells nothing.
    """
    now, asked = [0.0], []
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])

    def many(times):
        asked.append(times)
        now[0] += 60 * (len(asked) == 1)
        now[0] += times * 1e-3 * (2 ** (asked.count(333) - 1) if times == 333 else 1)

    middle, spread = clock.repeated(many, seconds=1.0)
    assert asked == [2, 1, 2, 4, 8, 16, 32, 64, 128, 333, 333, 333]
    assert (middle, spread) == pytest.approx((2e-3, 1.5))


def test_limits_are_flop_and_bytes_a_second(monkeypatch):
    monkeypatch.setattr(clock, "calls", lambda work, seconds: 0.5)
    assert limits.product("bfloat16", True, 1.0) == {"size": 64, "tflops": 4 * 64**3 / 1e12}
    assert limits.copy(True, 1.0) == {"gb_s": 4 * 4 * 2**14 / 1e9}


def test_a_stack_that_does_not_fit_does_not_stop_the_others(monkeypatch, capsys):
    numbers = count(1)

    def stacked(config, make, members, data, seconds, options):
        if members == 2:
            raise RuntimeError("RESOURCE_EXHAUSTED: 3 TiB")
        return {"tflops": float(next(numbers)), "intensity": 1.0}

    monkeypatch.setattr(steps, "stacked", stacked)
    peers = lambda config, *_: {"tflops": 0.5, "in": config.precision}
    monkeypatch.setattr(steps, "peers", peers)
    monkeypatch.setattr(clock, "calls", lambda work, seconds: 1.0)
    said = said_by(["--small", "--stacks", "1,2,4", "--set", "precision=bfloat16"], capsys)
    assert [x["case"] for x in said] == ["product", "product", "copy", "peers"] + 3 * ["project"]
    assert (said[3]["in"], said[3]["precision"], said[4]["precision"]) == (
        "float32",
        "float32",
        "bfloat16",
    )
    assert "RESOURCE_EXHAUSTED" in said[5]["error"]
    assert [said[i]["times_peers"] for i in (4, 6)] == [2.0, 4.0]


def test_what_several_lists_have_in_common_is_timed_once(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(steps, "stacked", lambda *args: calls.append(args) or {"tflops": 1.0})
    monkeypatch.setattr(steps, "peers", lambda *_: {"tflops": 0.5})
    monkeypatch.setattr(clock, "calls", lambda work, seconds: 1.0)
    monkeypatch.setattr(update, "ratios", lambda *_: {})
    said = [x for x in said_by(["--small", "--grow", "all"], capsys) if x["case"] == "project"]
    sizes = {tuple(v for k, v in line.items() if k != "grow") for line in said}
    assert len(said) == 12
    assert len(calls) == len(sizes) == 9


def make_clone(cfg, spec):
    """An agent whose every number is known: a layer of four, and the step as a metric."""
    actor = Deterministic((4,), spec.action_dim)

    def loss(params, state, batch, key):
        error = actor.apply(params["actor"], batch.obs) - batch.action
        return jnp.mean(error**2), {"actor/step": jnp.float32(state.step)}

    act = lambda policy, obs, key: actor.apply(policy["actor"], obs)
    policy = lambda state: state.params
    return Agent(cfg, {"actor": (actor, (spec.obs,))}, (), loss, policy, act)


CLONE = 2 * 16 * (2 * (3 * 4 + 4 * 2) + 4 * 2)  # forward, gradients of weights, of the layer


def timed(monkeypatch, measure, *args):
    """What it says when a step takes a second, and what five steps returned."""
    returned = []

    def repeated(many, seconds):
        returned.append(many(5))
        return 1.0, 0.0

    monkeypatch.setattr(clock, "repeated", repeated)
    return measure(*args, seconds=1.0), returned[0]


def test_a_stack_takes_the_steps_that_are_timed(monkeypatch):
    args = AgentConfig(batch_size=16), make_clone, 3, material.random_data(100, 3, 2)
    found, seen = timed(monkeypatch, steps.stacked, *args)
    assert seen["actor/step"].tolist() == [2.0, 2.0, 2.0]  # the mean of 0, 1, 2, 3, 4
    assert found["ms_per_step"] == 1000
    assert found["ms_per_member"] == pytest.approx(1000 / 3)
    assert found["gflop_per_step"] == 3 * CLONE / 1e9
    assert found["tflops"] == 3 * CLONE / 1e12


def test_options_are_added_to_those_of_a_block_or_replace_them(monkeypatch):
    """XLA names the option that it does not know; a block's own has no meaning until replaced."""
    args = AgentConfig(batch_size=16), make_clone, 2, material.random_data(100, 3, 2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'xla_given'"):
        steps.program(*args, {"xla_given": 1})
    monkeypatch.setattr(offline, "compiler_options", lambda: {"xla_own": 1})
    with pytest.raises(jax.errors.JaxRuntimeError, match="No such compile option: 'xla_own'"):
        steps.program(*args, {"xla_cpu_enable_fast_math": False})
    monkeypatch.setattr(
        offline, "compiler_options", lambda: {"xla_cpu_enable_fast_math": "perhaps"}
    )
    seen = steps.program(*args, {"xla_cpu_enable_fast_math": False}).many(5)
    assert seen["actor/step"].tolist() == [2.0, 2.0]


def test_an_option_that_xla_does_not_know_is_a_line_and_the_next_one_is_timed(monkeypatch, capsys):
    clone = AgentConfig(batch_size=16), make_clone
    monkeypatch.setattr(material, "agent", lambda *_: clone)
    known, unknown = "xla_cpu_enable_fast_math=false", "xla_nonsense=1"
    options = ["--option", unknown, "--option", known]
    update.main(["--small", "--stacks", "2", "--seconds", "0.01", *options])
    said = capsys.readouterr()
    ours = [json.loads(line) for line in said.out.splitlines()[-3:]]
    assert [line["option"] for line in ours] == [None, unknown, known]
    assert "No such compile option: 'xla_nonsense'" in ours[1]["error"]
    assert min(line["ms_per_step"] for line in ours[::2]) > 0
    assert all(option in said.err for option in (known, unknown))  # in the table


def test_the_peers_take_the_steps_that_are_timed(monkeypatch):
    args = AgentConfig(batch_size=16), make_clone, material.random_data(100, 3, 2)
    found, state = timed(monkeypatch, steps.peers, *args)
    assert int(state.step) == 5
    assert found["ms_per_step"] == found["ms_per_member"] == 1000
    assert found["tflops"] == CLONE / 1e12


@pytest.mark.slow
def test_a_rehearsal_measures_everything(capsys):
    args = ["--small", "--stacks", "2", "--seconds", "0.05", "--set", "precision=bfloat16"]
    *_, theirs, ours = said_by(args, capsys)
    assert (theirs["precision"], ours["precision"]) == ("float32", "bfloat16")
    assert (theirs["members"], ours["members"]) == (1, 2)
    assert ours["gflop_per_step"] == 2 * theirs["gflop_per_step"]
    assert ours["times_peers"] == ours["tflops"] / theirs["tflops"]
    assert min(line[name] for line in (theirs, ours) for name in ("compile_s", "program_gb")) > 0


def test_the_peers_way_has_a_horizon_of_one():
    config, make = material.agent("vine", {"horizon": 2}, small=True)
    with pytest.raises(InputError, match="horizon=2"):
        steps.peers(config, make, material.random_data(100, 3, 2), 0.1)
