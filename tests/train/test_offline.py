"""Blocks of training, and members that go bad in them."""

from dataclasses import replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tiny import SPEC, assert_close, dataset, relative, tiny
from vinerl.data.shards import pad
from vinerl.rl import learner
from vinerl.train import offline, stack
from vinerl.types import Spec

CONFIG, MAKE = tiny("vine")
AGENT_OF = stack.maker(MAKE, CONFIG, SPEC)
START = jax.jit(partial(offline.start, AGENT_OF))
BLOCK = offline.train_block(AGENT_OF)
DATA = jax.device_put(dataset())
YES = jnp.array(True)
BROKEN = DATA._replace(reward=jnp.full_like(DATA.reward, jnp.nan))


def begin(**floats):
    """Three members of seed 0; one program trains them all."""
    config = replace(CONFIG, **({"alpha": (1.0, 1.0, 1.0)} | floats))
    return START(stack.members(config, seeds=(0,)))


def train(runs, *lengths, data=DATA):
    for steps in lengths:
        runs, _ = BLOCK(runs, data, steps)
    return jax.device_get(runs)


def pick(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def status(runs):
    return [offline.STATUS[i] for i in runs.status]


def test_another_length_compiles_nothing():
    train(begin(), 1)
    before = BLOCK._cache_size()
    train(begin(), 2, 5, 3)
    assert BLOCK._cache_size() == before


def test_a_block_of_six_equals_three_of_two():
    assert_equal(train(begin(), 6), train(begin(), 2, 2, 2))


def test_a_cpu_multiplies_with_the_quicker_of_two_libraries():
    program = BLOCK.lower(begin(), DATA, 1).compile().as_text()
    assert ("__ynn_fusion" in program) == (jax.__version_info__ >= (0, 11))


def spoiled(data, transitions, rows):
    """Padded, and what lies behind the data would be noticed."""
    longer = pad(data, transitions, rows)
    nan = lambda x, n: np.concatenate([x[:n], np.full_like(x[n:], np.nan)])
    columns = {name: nan(getattr(longer, name), len(data.row)) for name in ("action", "reward")}
    row = np.where(np.arange(transitions) < len(data.row), longer.row, rows - 2)
    return longer._replace(obs=nan(longer.obs, len(data.obs)), row=row, **columns)


@pytest.mark.parametrize("horizon", [1, 4])
def test_a_batch_is_drawn_from_all_of_the_data_and_from_nothing_behind_them(horizon):
    """Starts are uniform on 0 .. N - h; padded data give the same batch as the plain ones."""
    agent = AGENT_OF(jax.tree.map(lambda x: x[0], stack.members(CONFIG, seeds=(0,))))
    sizes = {"batch_size": 4096, "horizon": horizon, "chunk": True}
    agent = agent._replace(config=replace(agent.config, **sizes))
    data, key = dataset(), jax.random.key(3)
    batch = offline.draw(agent, data, key)
    jax.tree.map(
        np.testing.assert_array_equal, batch, offline.draw(agent, spoiled(data, 80, 99), key)
    )
    firsts = [data.action[i].tolist() for i in range(len(data.row) - horizon + 1)]
    assert sorted(set(map(tuple, np.asarray(batch.action)[:, :2].tolist()))) == sorted(
        map(tuple, firsts)
    )


def test_another_number_of_transitions_compiles_nothing_and_changes_the_batches():
    data = [jax.device_put(spoiled(dataset(n, seed=n), 80, 90)) for n in (60, 71, 80)]
    train(begin(), 1, data=data[0])
    before = BLOCK._cache_size()
    ends = [train(begin(), 2, data=one) for one in data]
    assert BLOCK._cache_size() == before
    assert [status(runs) for runs in ends] == [["learning"] * 3] * 3
    assert len({float(jax.tree.leaves(runs.state.params)[0].sum()) for runs in ends}) == 3


def test_metrics_are_means_and_largest_values_of_a_plain_loop():
    runs = begin()
    member, state = jax.device_get((pick(runs.member, 0), pick(runs.state, 0)))
    agent, key = AGENT_OF(member), stack.keys(member).train
    step = jax.jit(partial(offline.train_step, agent, DATA, key))
    found = []
    for _ in range(4):
        state, metrics = step(state)
        found.append(metrics)
    seen = pick(BLOCK(runs, DATA, 4)[1], 0)

    norms = {f"grad_norm/{role}_max" for role in agent.networks}
    assert set(seen) == (set(found[0]) - {offline.COUNTED}) | norms
    for name, value in seen.items():
        values = [m[name.removesuffix("_max") if name in norms else name] for m in found]
        expected = np.max(values) if name.endswith("_max") else np.mean(values)
        np.testing.assert_allclose(value, expected, rtol=1e-4, err_msg=name)
        assert len(set(map(float, values))) > 1, name


def test_a_member_that_is_not_finite_is_frozen_and_the_others_never_notice():
    first = jax.device_get(begin(alpha=(1.0, 1.0, 1e30)))
    bad, good = train(begin(alpha=(1.0, 1.0, 1e30)), 2, 2), train(begin(), 2, 2)
    assert status(bad) == ["learning", "learning", "not finite"]
    assert bad.state.step.tolist() == [4, 4, 0]
    assert_equal(pick(bad.state, 2), pick(first.state, 2))
    assert_equal(pick(bad.state, slice(2)), pick(good.state, slice(2)))


def test_a_member_that_goes_bad_later_keeps_the_state_of_its_last_good_block():
    good, bad = train(begin(), 2), train(train(begin(), 2), 2, data=BROKEN)
    assert status(bad) == ["not finite"] * 3
    assert_equal(bad.state, good.state)


def test_a_frozen_member_stays_frozen_when_the_data_are_good_again():
    bad = train(train(begin(), 2), 2, data=BROKEN)
    again = train(bad, 2, 2)
    assert_equal(again, bad)


@pytest.mark.parametrize("part", ["params", "targets", "optimizer"])
def test_one_number_anywhere_in_the_state_is_enough(part):
    """In float32 a huge gradient may leave loss and weights finite and spoil Adam's moments."""
    before = pick(begin(), 0)
    leaves, structure = jax.tree.flatten(getattr(before.state, part))
    leaves[-1] = leaves[-1].at[(0,) * leaves[-1].ndim].set(jnp.inf)
    after = before.state._replace(**{part: jax.tree.unflatten(structure, leaves)})
    seen = {"grad_norm/actor_max": jnp.float32(1)}
    agent = AGENT_OF(before.member)
    assert int(offline.freeze(agent, before, before.state, seen, YES).status) == 0
    assert int(offline.freeze(agent, before, after, seen, YES).status) == 1


def test_a_member_whose_actor_gets_no_gradient_is_frozen():
    """Far outside the box the clip hides Q; only BC, on the raw action, still pulls."""
    runs = train(begin(alpha=(0.0, 1.0, 1.0), noise=1e6), 2)
    assert status(runs) == ["no gradient", "learning", "learning"]
    assert runs.state.step.tolist() == [0, 2, 2]


def test_a_gradient_in_one_step_of_a_block_is_enough():
    """Only an actor without any gradient in the whole block has died."""
    before = pick(begin(), 0)
    agent, after = AGENT_OF(before.member), before.state._replace(step=before.state.step + 2)
    seen = {"grad_norm/actor": jnp.float32(1e-9), "grad_norm/actor_max": jnp.float32(1e-8)}
    assert int(offline.freeze(agent, before, after, seen, YES).status) == 0
    dead = {name: jnp.float32(0) for name in seen}
    assert int(offline.freeze(agent, before, after, dead, YES).status) == 2
    assert int(offline.freeze(agent, before, after, dead, ~YES).status) == 0, "no row counted"


@pytest.mark.parametrize(
    ("lengths", "steps"), [((1,) * 7, 2), ((2, 2, 2), 2), ((4, 1), 0), ((3,), 0)]
)
def test_a_dead_actor_is_known_by_the_first_block_in_which_it_was_to_move(lengths, steps):
    """With `actor_every=3`, that in which the third step is; until then it learns."""
    agent_of = altered(loss=hidden, actor_every=lambda _: 3)
    runs = offline.start(agent_of, stack.members(CONFIG, seeds=(0,)))
    block = offline.train_block(agent_of)
    for length in lengths:
        runs, _ = block(runs, DATA, length)
    assert status(runs) == ["no gradient"]
    assert runs.state.step.tolist() == [steps]


def test_a_block_in_which_no_row_counts_freezes_nobody():
    """Episodes of three steps, chunks of four: none is whole, so flow matching has no gradient."""
    config, make = tiny("ifql")
    config = replace(config, horizon=4, chunk=True)
    terminal = jnp.arange(len(DATA.row)) % 3 == 2
    short = DATA._replace(terminal=terminal.astype(jnp.int32))
    agent_of = stack.maker(make, config, SPEC._replace(action_dim=4 * SPEC.action_dim))
    block = offline.train_block(agent_of)
    runs = offline.start(agent_of, stack.members(config, seeds=(0,)))
    runs, seen = block(runs, short, 3)
    assert float(seen["grad_norm/actor_max"][0]) == 0
    assert "batch/weight" not in seen
    assert status(runs) == ["learning"]


def hidden(agent):
    """Its loss, without a gradient for its actor."""
    still = lambda params: params | {"actor": jax.lax.stop_gradient(params["actor"])}
    return lambda params, *rest: agent.loss(still(params), *rest)


class Number(nn.Module):
    @nn.compact
    def __call__(self):
        return self.param("number", nn.initializers.zeros, ())


def of_two_parts(policy):
    """An agent whose parts have the gradients 3 and 4, whatever the data."""

    def loss(params, state, batch, key):
        left, right, critic = (Number().apply(params[role]) for role in ("left", "right", "critic"))
        return 3 * left + 4 * right + 12 * critic, {}

    networks = {role: (Number(), ()) for role in ("left", "right", "critic")}
    return lambda member: learner.Agent(CONFIG, networks, (), loss, policy, lambda *_: None)


@pytest.mark.parametrize(
    ("acting", "norm"), [(("left", "right"), 5), (("left", "critic"), 3), ((), None)]
)
def test_an_actor_of_other_names_has_its_gradient_norm_too(acting, norm):
    """Its parts together; a critic that acts along is none of it."""
    agent_of = of_two_parts(lambda state: {role: state.params[role] for role in acting})
    runs = offline.start(agent_of, stack.members(CONFIG, (0,)))
    _, seen = offline.train_block(agent_of)(runs, DATA, 2)
    found = [seen.get(name) for name in ("grad_norm/actor", "grad_norm/actor_max")]
    assert found == [norm, norm]


def test_what_is_seen_now_and_then_has_an_entry_a_member():
    runs = begin()
    seen = offline.diagnose(AGENT_OF)(runs, DATA)
    assert seen["grad_norm/step"].shape == (3, CONFIG.flow_steps + 1)
    assert seen["actor/spread"].shape == (3,)
    assert np.isfinite(jax.tree.leaves(jax.tree.map(np.sum, seen))).all()


@pytest.fixture(scope="module")
def pictured():
    """An agent for a vector and an 8x8 image before and after ten steps."""
    image = jax.ShapeDtypeStruct((8, 8, 3), jnp.uint8)
    spec = Spec({"image": image, "state": SPEC.obs}, SPEC.action_dim)
    agent_of = stack.maker(MAKE, CONFIG, spec)
    runs = offline.start(agent_of, stack.members(CONFIG, seeds=(0,)))
    first = jax.device_get(runs)
    return first, *offline.train_block(agent_of)(runs, dataset(spec=spec), 10), agent_of


def test_ten_steps_on_an_image_and_a_vector_train_the_encoders(pictured):
    first, runs, seen, _ = pictured
    assert status(runs) == ["learning"]
    assert np.isfinite(seen["critic/loss"]).all()
    named = jax.tree_util.tree_leaves_with_path(runs.state.optimizer)
    moments = {jax.tree_util.keystr(path): x for path, x in named if "nu" in str(path)}
    of_encoders = {name: x for name, x in moments.items() if "Conv" in name}
    assert {role for role in ("actor", "critic") if any(role in n for n in of_encoders)} == {
        "actor",
        "critic",
    }
    assert all((x > 0).any() for x in moments.values()), "every layer got gradient"
    still = jax.tree.map(np.array_equal, first.state.params, jax.device_get(runs.state.params))
    assert not any(jax.tree.leaves(still))


def test_another_image_gives_another_action(pictured):
    _, runs, _, agent_of = pictured
    agent = agent_of(pick(runs.member, 0))
    policy = agent.policy(pick(runs.state, 0))
    draw = np.random.default_rng(0)
    image = draw.integers(0, 256, (2, 8, 8, 3), np.uint8)

    def action(image):
        obs = {"image": image[None], "state": np.zeros((1, 3), np.float32)}
        return agent.act(policy, obs, jax.random.key(0))

    assert_close(action(image[0]), action(image[0]))
    assert relative(action(image[1]), action(image[0])) > 1e-3


def test_bfloat16_trains_on_float32_weights():
    config = replace(CONFIG, precision="bfloat16")
    agent_of = stack.maker(MAKE, config, SPEC)
    first = offline.start(agent_of, stack.members(config, seeds=(0,)))
    runs, seen = offline.train_block(agent_of)(first, DATA, 10)
    assert status(runs) == ["learning"]
    assert {x.dtype for x in jax.tree.leaves(runs.state.params)} == {jnp.dtype("float32")}
    exact = begin(alpha=(CONFIG.alpha,) * 3)
    _, precise = BLOCK(exact, DATA, 10)
    apart = relative(seen["critic/loss"], precise["critic/loss"][:1])
    assert 1e-6 < apart < 0.1


def altered(**parts):
    """A maker of the tiny agent with some of its parts replaced."""

    def make(cfg, spec):
        agent = MAKE(cfg, spec)
        return agent._replace(**{name: part(agent) for name, part in parts.items()})

    return stack.maker(make, CONFIG, SPEC)


def status_of(agent_of):
    runs = offline.start(agent_of, stack.members(CONFIG, seeds=(0,)))
    return offline.train_block(agent_of)(runs, DATA, 2)[0].status.tolist()


def test_a_metric_of_minus_infinity_is_no_reason_to_freeze():
    def loss(agent):
        def told(*args):
            value, metrics = agent.loss(*args)
            return value, metrics | {"actor/log_density": -jnp.inf}

        return told

    assert status_of(altered(loss=loss)) == [0]


def test_a_policy_may_compute_and_use_names_of_its_own():
    """Only roles that are networks must keep getting gradient."""
    double = lambda agent: lambda state: {"twice": jax.tree.map(lambda x: 2 * x, state.params)}
    assert status_of(altered(policy=double)) == [0]
    critics = lambda agent: lambda state: {"critic": state.params["critic"]}
    assert status_of(altered(policy=critics)) == [0]
