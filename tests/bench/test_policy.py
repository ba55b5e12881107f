"""Asking a policy, beside the agent itself asked without a compiler."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vinerl
from tiny import SIZES, tiny
from vinerl.bench.run import runs
from vinerl.bench.run.policy import Policy
from vinerl.bench.run.runs import Subject, Trained
from vinerl.data.normalise import Normaliser
from vinerl.errors import InputError
from vinerl.rl import learner
from vinerl.train import checkpoint, offline, stack
from vinerl.types import Spec

NUMBERS = jax.ShapeDtypeStruct((3,), jnp.float32)
PICTURED = {"camera": jax.ShapeDtypeStruct((4, 4, 3), jnp.uint8), "joints": NUMBERS}
MEAN, STD = np.array([[1, 2, 3], [0.5, 2, 4]], np.float32)


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def trained(obs: Any = NUMBERS, normaliser=None, **fields):
    """Two members as they are loaded, with random weights: none is zero, and none a bfloat16."""
    config, make = tiny("vine")
    config = replace(config, **fields)
    spec, members = Spec(obs, 2 * config.act_steps), stack.members(config, (0, 1))

    def policy(member):
        agent = make(config, spec)
        return agent.policy(learner.init(agent, stack.keys(member).init))

    noise = partial(np.random.default_rng(1).normal, 0, 0.3)
    shapes = jax.eval_shape(jax.vmap(policy), members)
    weights = jax.tree.map(lambda x: noise(x.shape).astype(x.dtype), shapes)
    return Trained(Subject(config, make, spec, members, normaliser, None), weights, 0)


def asked(trained, member, seen, call, weights=None):
    """The action of call `call`, [B, A], for observations as the networks take them."""
    subject = trained.subject
    agent = subject.make(subject.config, subject.spec)
    weights = trained.policies if weights is None else weights
    start = jax.random.fold_in(jax.random.key(0), subject.members.seed[member])
    key = jax.random.fold_in(jax.random.split(start, 4)[3], call)
    action = np.asarray(agent.act(jax.tree.map(lambda x: x[member], weights), seen, key))
    assert (np.abs(action) < 1).mean() >= 0.5, "the edge of the box would hide differences"
    return action


def test_call_n_draws_with_the_nth_key_whatever_the_shapes_before_it(draw):
    made = trained(normaliser=Normaliser(MEAN, STD))
    policy, obs = Policy(made, 1), draw.normal(MEAN, STD, (5, 3))
    seen = (obs.astype(np.float32) - MEAN) / STD
    for call, rows in enumerate((1, 5, 1, 5)):
        expected = asked(made, 1, seen[:rows], call)
        found = policy(obs[0] if rows == 1 else obs)
        np.testing.assert_allclose(found, expected[0] if rows == 1 else expected, atol=1e-5)
    assert policy.calls == 4


def test_chunks_come_in_the_order_of_time(draw):
    made = trained(horizon=3)
    obs = draw.normal(size=(4, 3)).astype(np.float32)
    policy = Policy(made, 0)
    expected = asked(made, 0, obs, 0)
    assert expected.shape == (4, 6)
    for t, found in enumerate(np.moveaxis(policy(obs), 1, 0)):
        np.testing.assert_allclose(found, expected[:, 2 * t : 2 * t + 2], atol=1e-5)
    np.testing.assert_allclose(policy(obs[0]).ravel(), asked(made, 0, obs[:1], 1)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "steps"), [({}, 1), ({"horizon": 3}, 3), ({"horizon": 3, "chunk": False}, 1)]
)
def test_a_policy_says_how_many_steps_a_call_is_for(fields, steps):
    policy = Policy(trained(**fields), 0)
    assert policy.horizon == steps
    assert policy(np.zeros(3)).shape == ((2,) if steps == 1 else (steps, 2))


@pytest.mark.parametrize("fixed", [{"noise": 0.0}, {"noise": 0.5}, {"stop_at": 1}])
def test_a_policy_acts_with_the_noise_and_stops_where_it_is_asked_to(draw, fixed):
    """As the agent whose config has these values, also where the members were given another."""
    made = trained(noise=(1.0, 2.0))
    chosen = made.subject._replace(config=replace(made.subject.config, **{"noise": 1.0} | fixed))
    obs = draw.normal(size=(20, 3)).astype(np.float32)
    found = Policy(made, 0, **fixed)(obs)
    np.testing.assert_allclose(found, asked(made._replace(subject=chosen), 0, obs, 0), atol=1e-5)
    assert np.abs(found - Policy(made, 0)(obs)).max() > 1e-2


def test_without_noise_every_call_is_the_same(draw):
    quiet, obs = Policy(trained(), 0, noise=0.0), draw.normal(size=(5, 3))
    same(quiet(obs), quiet(obs))


def test_each_seed_has_a_noise_of_its_own_and_keeps_it():
    made, obs = trained(), np.zeros(3)
    policies = [Policy(made, 0, seed=seed) for seed in (0, 1, 2**32 - 1)]
    calls = [[policy(obs) for _ in range(3)] for policy in policies]
    assert len({action.tobytes() for actions in calls for action in actions}) == 9
    again = Policy(made, 0, seed=1)
    same([again(obs) for _ in range(3)], calls[1])
    same(Policy(made, 0)(obs), calls[0][0])


def test_trees_of_numbers_and_images(draw):
    made = trained(obs=PICTURED)
    obs = {"camera": draw.integers(0, 256, (2, 4, 4, 3)), "joints": draw.normal(size=(2, 3))}
    seen = {"camera": obs["camera"].astype(np.uint8), "joints": obs["joints"].astype(np.float32)}
    policy = Policy(made, 0)
    np.testing.assert_allclose(policy(obs), asked(made, 0, seen, 0), atol=1e-5)
    first = {name: x[0] for name, x in obs.items()}
    expected = asked(made, 0, {name: x[:1] for name, x in seen.items()}, 1)[0]
    np.testing.assert_allclose(policy(first), expected, atol=1e-5)


def test_an_agent_is_traced_once_for_a_shape_and_its_weights_are_moved_once():
    made = trained()
    shapes, make = [], made.subject.make

    def watched(config, spec):
        agent = make(config, spec)

        def act(policy, obs, key):
            shapes.append(obs.shape)
            return agent.act(policy, obs, key)

        return agent._replace(act=act)

    policy = Policy(made._replace(subject=made.subject._replace(make=watched)), 0)
    assert {type(x) for x in jax.tree.leaves(made.policies)} == {np.ndarray}
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(policy.params))
    for rows in (7, 2, 7, 2, 7):
        policy(np.zeros((rows, 3)))
    policy([0, 0, 0])
    policy(np.zeros(3, np.float64))
    assert shapes == [(7, 3), (2, 3), (1, 3)]


def test_bfloat16_rounds_kernels_and_nothing_else(draw):
    made = trained()
    cut = lambda x: np.asarray(jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32))
    by_name = lambda path, x: cut(x) if "kernel" in jax.tree_util.keystr(path) else x
    rounded = jax.tree_util.tree_map_with_path(by_name, made.policies)
    obs = draw.normal(size=(20, 3)).astype(np.float32)
    found = Policy(made, 0, "bfloat16")(obs)
    expected, exact = asked(made, 0, obs, 0, rounded), asked(made, 0, obs, 0)
    all_cut = asked(made, 0, obs, 0, jax.tree.map(cut, made.policies))
    assert min(np.abs(expected - exact).max(), np.abs(expected - all_cut).max()) > 1e-4
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_observation_of_another_shape_is_refused_and_is_no_call():
    made = trained(obs=PICTURED)
    policy = Policy(made, 0)
    wrong = {"camera": np.zeros((4, 4, 3), np.uint8), "joints": np.zeros(4)}
    with pytest.raises(
        InputError, match=r"\{'camera': \(4, 4, 3\), 'joints': \(4,\)\}, the policy"
    ):
        policy(wrong)
    several = np.zeros((2, *PICTURED["camera"].shape), np.uint8)
    mixed = {"camera": several, "joints": np.zeros(3)}
    with pytest.raises(InputError, match="a batch has one more axis in front, everywhere"):
        policy(mixed)
    with pytest.raises(InputError, match=r"observation of shape \(\), .* trained on \(3,\)"):
        Policy(trained(), 0)(0.5)
    with pytest.raises(InputError, match=r"observation of shape \(5, 2, 3\), .* trained on"):
        Policy(trained(), 0)(np.zeros((5, 2, 3)))
    with pytest.raises(InputError, match=r"'joints': \(2, 3\)\}, the policy"):
        policy({"camera": np.zeros((4, 4, 3), np.uint8), "joints": np.zeros((2, 3))})
    with pytest.raises(InputError, match=r"other parts; the policy was trained on \{'camera'"):
        policy({"camera": np.zeros((4, 4, 3), np.uint8)})
    assert policy.calls == 0


@pytest.mark.parametrize(
    ("camera", "said"),
    [
        (np.full((4, 4, 3), 0.5), "float64, where the policy was trained on uint8"),
        (np.full((4, 4, 3), 300), "int64, outside of 0 to 255"),
        (np.full((4, 4, 3), -1), "outside of 0 to 255"),
        (np.full((4, 4, 3), True), "bool, where"),
    ],
)
def test_a_picture_is_bytes(draw, camera, said):
    policy, joints = Policy(trained(PICTURED), 0), draw.normal(size=3)
    with pytest.raises(InputError, match=said):
        policy({"camera": camera, "joints": joints})
    assert policy.calls == 0


def test_whole_numbers_that_are_bytes_are_a_picture(draw):
    camera, joints = draw.integers(0, 256, (4, 4, 3)), draw.normal(size=3)
    first, second = (Policy(trained(PICTURED), 0) for _ in range(2))
    found = first({"camera": camera, "joints": joints})
    expected = second({"camera": camera.astype(np.uint8), "joints": joints})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("obs", [{"a": 1.0}, "three", [[1.0], [2.0, 3.0]], None])
def test_what_is_no_observation_is_refused(obs):
    with pytest.raises(InputError, match="the policy was trained on"):
        Policy(trained(), 0)(obs)


def test_an_action_that_is_no_number_is_refused(draw):
    made = trained()
    with pytest.raises(InputError, match="action is NaN or infinite: the observation is, too, or"):
        Policy(made, 0)([0.0, np.nan, 0.0])
    spoilt = jax.tree.map(lambda x: x * np.float32(np.nan), made.policies)
    with pytest.raises(InputError, match="the training of this member diverged"):
        Policy(made._replace(policies=spoilt), 1)(draw.normal(size=3))


def test_weights_of_an_unknown_type_are_refused(tmp_path):
    with pytest.raises(InputError, match="weights='float16': one of float32, bfloat16"):
        vinerl.load(tmp_path, weights="float16")  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two runs on a file that differ only in what they choose among: 1 action, and 4."""
    folder, draw = tmp_path_factory.mktemp("pair"), np.random.default_rng(0)
    arrays = {"observations": draw.normal(size=(40, 3)), "actions": draw.uniform(-1, 1, (40, 2))}
    arrays |= {"rewards": draw.normal(size=40), "terminals": np.arange(40) % 10 == 9}
    np.savez(folder / "mine.npz", **arrays)
    options = SIZES | {"data": folder / "mine.npz", "steps": 4, "seeds": (0, 1), "workers": 1}
    options |= {"rescale_actions": True}
    return [vinerl.train(out=folder / f"run-{n}", best_of=n, **options) for n in (1, 4)]


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_policy_that_chooses_acts_after_loading_as_before_it_was_saved(pair, draw):
    _, run = pair
    subject = runs.load(run).subject
    agent_of = subject.agent_of()
    like = jax.eval_shape(lambda: offline.start(agent_of, subject.members))
    saved = checkpoint.load(run.checkpoint("state"), like)
    member, state = jax.tree.map(lambda x: x[1], (saved.member, saved.state))
    agent, obs = agent_of(member), draw.normal(size=(20, 3)).astype(np.float32)
    key = jax.random.fold_in(stack.keys(member).evaluate, 0)
    expected = jax.jit(agent.act)(agent.policy(state), subject.see(obs), key)
    np.testing.assert_allclose(vinerl.load(run, 1)(obs), expected, atol=1e-5)


def test_critics_are_saved_with_a_policy_only_where_they_choose(pair):
    one, four = (runs.load(run).policies for run in pair)
    assert (set(one), set(four)) == ({"actor"}, {"actor", "critic"})
    same(one["actor"], four["actor"])  # learning does not choose


def test_a_run_can_choose_among_another_number_afterwards(pair, draw, tmp_path):
    """With the critics of its state; where its policies have them, with those."""
    one, four = map(runs.load, pair)
    later = runs.among(pair[0], one, 4)
    assert later.subject.config == four.subject.config
    same(later.policies, four.policies)
    obs = draw.normal(size=(20, 3))
    chosen, plain = Policy(four, 0)(obs), Policy(one, 0)(obs)
    same(Policy(later, 0)(obs), chosen)
    same(Policy(runs.among(pair[1], four, 1), 0)(obs), plain)
    assert not np.array_equal(chosen, plain)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(InputError, match="has no state of step 4 in its checkpoints"):
        runs.among(runs.Run(tmp_path), one, 2)


def test_a_policy_is_loaded_to_act_otherwise_than_its_run_did(pair, draw):
    one, four = map(runs.load, pair)
    obs = draw.normal(size=(20, 3))
    same(vinerl.load(pair[0], 1, best_of=4)(obs), Policy(four, 1)(obs))
    same(vinerl.load(pair[0], noise=0.0, stop_at=2)(obs), Policy(one, 0, noise=0.0, stop_at=2)(obs))
    same(vinerl.load(pair[0], seed=3)(obs), Policy(one, 0, seed=3)(obs))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stop_at": 9}, "--agent.stop-at 9: expected 1 to flow_steps, which is 3"),
        ({"best_of": 0}, "--agent.best_of 0: expected a whole number, 1 or more"),
        ({"noise": np.nan}, "--agent.noise nan: expected a number"),
        ({"seed": -1}, r"seed=-1: expected a number from 0 to 2\*\*32-1"),
        ({"seed": 2**32}, "seed=4294967296: expected a number from 0"),
    ],
)
def test_what_a_policy_cannot_be_asked_for_is_refused(pair, options, said):
    with pytest.raises(InputError, match=said):
        vinerl.load(pair[0], **options)


def test_an_agent_without_noise_cannot_be_asked_for_another():
    config, make = tiny("fql")
    made = Trained(trained().subject._replace(config=config, make=make), {}, 0)
    with pytest.raises(InputError, match="--noise: this agent's config has no such field"):
        runs.otherwise(runs.Run(Path("nowhere")), made, noise=0.0, stop_at=None)


def test_a_best_of_without_critics_is_refused_before_there_is_a_folder(pair, tmp_path):
    lines = [
        "from vinerl.agents import AGENTS",
        "config, make = AGENTS['vine']",
        "def blind(cfg, spec):",
        "    agent = make(cfg, spec)",
        "    return agent._replace(networks={'actor': agent.networks['actor']})",
        "BLIND = config, blind",
    ]
    (tmp_path / "mine.py").write_text("\n".join(lines))
    data, out = pair[0].manifest["data"]["path"], tmp_path / "run"
    with pytest.raises(InputError, match=r"--agent.best_of 2: this agent has no critic"):
        vinerl.train(f"{tmp_path}/mine.py:BLIND", data=data, best_of=2, out=out, steps=4)
    assert not out.exists()
