"""VINE as specified: its defaults, and its loss against plain arithmetic in float64."""

from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tiny import SPEC, assert_close, dataset, relative, tiny
from vinerl.agents.vine import VineConfig
from vinerl.data.fold import fold
from vinerl.rl import learner

B, A, K = 16, 2, 3
SAMPLERS, REGULARISERS = ("vine", "euler"), ("endpoint", "estimates", "flow", "teacher")


def test_defaults_are_the_specified_ones():
    cfg = VineConfig()
    assert (cfg.lr, cfg.lr_end, cfg.batch_size) == (3e-4, 1.0, 512)
    assert (cfg.discount, cfg.tau, cfg.target_every) == (0.995, 0.005, 1)
    assert (cfg.flow_steps, cfg.sampler, cfg.noise, cfg.stop_at) == (10, "vine", 1.0, None)
    assert (cfg.alpha, cfg.regulariser, cfg.horizon) == (10.0, "endpoint", 1)
    assert (cfg.actor_hidden, cfg.actor_layer_norm) == ((512,) * 4, False)
    assert (cfg.critics, cfg.critic_hidden, cfg.critic_blocks) == (2, (512,) * 4, 2)
    assert (cfg.critic_layout, cfg.precision) == ("branches", "float32")
    assert cfg.max_grad_norm == float("inf")


# The oracle: networks, sampler and loss again, from the formulas alone


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def normed(x, p):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6) * p["scale"] + p["bias"]


def linear(x, p):
    return x @ p["kernel"] + p["bias"]


def hidden(x, p):
    for n in range(sum(name.startswith("Dense") for name in p)):
        x = gelu(linear(x, p[f"Dense_{n}"]))
        x = normed(x, p[f"LayerNorm_{n}"]) if f"LayerNorm_{n}" in p else x
    return x


def velocity(params, obs, x, t):
    p = params["params"]["layers"]
    x = np.concatenate([obs, x, np.broadcast_to(t, (len(x), 1))], axis=1)
    return linear(hidden(x, p["Hidden_0"]), p["Dense_0"])


def values(params, obs, action):
    """Q of every critic, [E, B]."""
    members = params["params"]["VmapResidualMLP_0"]

    def one(p):
        x = hidden(np.concatenate([obs, action], axis=1), p["Hidden_0"])
        for n in range(1, sum(name.startswith("Hidden") for name in p)):
            x = x + hidden(x, p[f"Hidden_{n}"])
        return linear(x, p["Dense_0"])[:, 0]

    return np.stack([one(jax.tree.map(lambda p, e=e: p[e], members)) for e in range(2)])


def generate(sampler, params, obs, z, first=0):
    """a_K, and the K estimates on the way to it."""
    a, estimates = z[0], []
    for k in range(K):
        t = (k + first) / K
        x = t * a + (1 - t) * z[k + 1] if sampler == "vine" else a
        v = velocity(params, obs, x, t)
        estimates.append(x + (1 - t) * v)
        a = estimates[-1] if sampler == "vine" else x + v / K
    return a, np.stack(estimates)


clip = partial(np.clip, a_min=-1, a_max=1)
same = lambda x: x


def oracle(
    cfg,
    params,
    constant,
    targets,
    batch,
    draws,
    *,
    pessimism=np.min,
    mean=np.mean,
    per_action=np.mean,
    held=same,
    seen=clip,
    weigh=same,
    discounted=same,
    slow=True,
    sign=1,
    last=False,
    first=0,
    other_noise=False,
):
    """The loss. Everything after the star is as specified, and there to be got wrong."""
    z_next, z, *matching = draws
    weight, run = weigh(batch.weight), partial(generate, cfg.sampler, first=first)

    next_action, _ = run(constant["actor"], batch.next_obs, cfg.noise * z_next)
    next_qs = values(targets if slow else constant["critic"], batch.next_obs, clip(next_action))
    target = batch.reward + discounted(batch.discount) * pessimism(next_qs, axis=0)
    qs = values(params["critic"], batch.obs, batch.action)
    critic = np.mean(weight * (qs - target) ** 2)

    action, estimates = run(params["actor"], batch.obs, cfg.noise * z)
    q = mean(values(constant["critic"], batch.obs, seen(action)), axis=0)
    error = lambda a, b: per_action((held(a) - b) ** 2, axis=-1)

    def matched(role):
        noise, t = matching
        v = velocity(params[role], batch.obs, (1 - t) * noise + t * batch.action, t)
        return np.mean(weight * error(v, batch.action - sign * noise))

    if cfg.regulariser == "endpoint" or last:
        actor = cfg.alpha * weight * error(action, batch.action)
    elif cfg.regulariser == "estimates":
        actor = cfg.alpha * (weight * error(estimates, batch.action)).mean(axis=0)
    elif cfg.regulariser == "flow":
        actor = cfg.alpha * matched("actor")
    else:
        z = z[::-1] if other_noise else z
        taught, _ = run(constant["teacher"], batch.obs, cfg.noise * z)
        actor = cfg.alpha * error(action, taught) + matched("teacher")
    return critic + np.mean(actor - sign * q)


MUTATIONS = {
    "mean for min in the target": {"pessimism": np.mean},
    "min for mean in the actor": {"mean": np.min},
    "sum over the action's coordinates": {"per_action": np.sum},
    "Q of the raw action": {"seen": same},
    "no weight": {"weigh": np.ones_like},
    "bootstrapping after the end": {"discounted": lambda d: np.full_like(d, d.max())},
    "targets that are not slow": {"slow": False},
    "the other sign": {"sign": -1},
    "a grid from 1 / K": {"first": 1},
}
OF_ONE = {
    "endpoint": {"BC on the clipped action": {"held": clip}},
    "estimates": {"the last estimate alone": {"last": True}},
    "flow": {"squared error of the action": {"last": True}},
    "teacher": {"a teacher on other noise": {"other_noise": True}},
}


class Case(NamedTuple):
    """What the agent computed, and what the oracle needs to compute it again; in float64."""

    cfg: VineConfig
    loss: float
    grads: dict
    metrics: dict
    arguments: tuple  # of the oracle: params, constant, targets, batch, draws


@cache
def case(sampler, regulariser, **changes) -> Case:
    agent, state, batch = setup(sampler=sampler, regulariser=regulariser, **changes)

    def loss(params, state, batch, key):
        draws = []
        normal, uniform = jax.random.normal, jax.random.uniform

        def recorded(draw):
            return lambda *args: draws.append(draw(*args)) or draws[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "normal", recorded(normal))
            patch.setattr(jax.random, "uniform", recorded(uniform))
            value, metrics = agent.loss(params, state, batch, key)
        return value, (metrics, draws)

    both = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (value, (metrics, draws)), grads = both(state.params, state, batch, jax.random.key(1))
    wide = lambda tree: jax.tree.map(np.float64, jax.device_get(tree))
    params = wide(state.params)
    arguments = (params, params, wide(state.targets["critic"]), wide(batch), wide(draws))
    return Case(agent.config, float(value), wide(grads), wide(metrics), arguments)


def setup(**changes):
    """An agent whose targets are far from its critics, and a batch with ends and weights."""
    default, make = tiny("vine")
    sizes = {"actor_hidden": (8, 8), "critic_hidden": (8, 8), "flow_steps": K}
    agent = make(replace(default, **(sizes | {"alpha": 3.0, "noise": 2.0} | changes)), SPEC)
    key_init, key_slow = jax.random.split(jax.random.key(0))
    init = jax.jit(partial(learner.init, agent))
    state = init(key_init)._replace(targets={"critic": init(key_slow).params["critic"]})
    data = jax.tree.map(jnp.asarray, dataset())
    batch = fold(data, jnp.arange(B), 1, agent.config.discount)
    assert batch.discount.min() == 0 < batch.discount.max()
    return agent, state, batch._replace(weight=jnp.arange(B) % 2.0)


EVERY = pytest.mark.parametrize("regulariser", REGULARISERS)
BOTH = pytest.mark.parametrize("sampler", SAMPLERS)


@BOTH
@EVERY
def test_the_loss_is_the_specified_one(sampler, regulariser):
    ours = case(sampler, regulariser)
    params, _, _, batch, (_, z, *_) = ours.arguments
    raw, _ = generate(sampler, params["actor"], batch.obs, ours.cfg.noise * z)
    assert (np.abs(raw) > 1).any(), "or no clip is tested"
    np.testing.assert_allclose(ours.loss, oracle(ours.cfg, *ours.arguments), rtol=1e-5)


def test_the_loss_is_the_specified_one_with_normed_actor_layers():
    ours = case("vine", "endpoint", actor_layer_norm=True)
    np.testing.assert_allclose(ours.loss, oracle(ours.cfg, *ours.arguments), rtol=1e-5)


@BOTH
@EVERY
def test_every_mutation_of_the_oracle_is_noticed(sampler, regulariser):
    ours = case(sampler, regulariser)
    for name, mutation in (MUTATIONS | OF_ONE[regulariser]).items():
        wrong = oracle(ours.cfg, *ours.arguments, **mutation)
        assert abs(wrong / ours.loss - 1) > 1e-3, name


def slope(ours, role, direction, *, through_everything=False):
    """The oracle's derivative as one network's parameters move, the constant ones fixed."""
    params, constant, *rest = ours.arguments

    def loss(h):
        step = lambda p, d: p + h * d
        moved = params | {role: jax.tree.map(step, params[role], direction)}
        return oracle(ours.cfg, moved, moved if through_everything else constant, *rest)

    return (loss(1e-6) - loss(-1e-6)) / 2e-6


def directions(tree, count=3):
    draw = np.random.default_rng(0)
    for _ in range(count):
        direction = jax.tree.map(lambda p: draw.normal(size=p.shape), tree)
        size = optax.tree.norm(direction)
        yield jax.tree.map(lambda d, size=size: np.float64(d / size), direction)


def along(grads, direction):
    return sum(jax.tree.leaves(jax.tree.map(lambda g, d: np.sum(g * d), grads, direction)))


@BOTH
@EVERY
def test_gradients_are_the_oracles_differences(sampler, regulariser):
    """So every stop-gradient is where it belongs; the last lines show that this can fail."""
    ours = case(sampler, regulariser)
    for role, grads in ours.grads.items():
        size = float(optax.tree.norm(grads))
        assert size > 1e-3
        for direction in directions(grads):
            known = slope(ours, role, direction)
            np.testing.assert_allclose(along(grads, direction), known, atol=1e-4 * size)
        shift = [
            slope(ours, role, direction, through_everything=True) - slope(ours, role, direction)
            for direction in directions(grads)
        ]
        assert np.abs(shift).max() > 1e-3 * size


def test_metrics_are_the_oracles_numbers():
    ours = case("vine", "endpoint")
    params, _, _, batch, (_, z, *_) = ours.arguments
    action, estimates = generate("vine", params["actor"], batch.obs, ours.cfg.noise * z)
    qs = values(params["critic"], batch.obs, batch.action)
    bc = np.mean(batch.weight * np.mean((action - batch.action) ** 2, axis=-1))
    known = {
        "critic/q": qs.mean(),
        "critic/q_max": qs.max(),
        "actor/bc": bc,
        "actor/estimate_max": np.abs(estimates).max(),
    }
    assert_close({name: ours.metrics[name] for name in known}, known)
    total = ours.metrics["critic/loss"] + ours.metrics["actor/loss"]
    np.testing.assert_allclose(total, ours.loss, rtol=1e-5)


# One update


@pytest.mark.parametrize(("step", "share"), [(0, 1.0), (5, 0.55), (10, 0.1), (99, 0.1)])
def test_the_learning_rate_goes_down_in_a_line_and_stays(step, share):
    cfg = VineConfig(lr=0.01, lr_end=0.1, lr_steps=10)
    assert learner.learning_rate(cfg, step) == pytest.approx(0.01 * share)


def test_the_learning_rate_is_constant_unless_asked():
    assert learner.learning_rate(VineConfig(), 10**6) == pytest.approx(3e-4)


@pytest.fixture(scope="module")
def update():
    """One compiled update: how far it moves, what Adam was given, what was seen."""
    agent, state, batch = setup(lr_steps=10)
    usual = {"lr": 0.01, "lr_end": 1.0, "max_grad_norm": np.inf}

    @jax.jit
    def compiled(step, floats):
        changed = agent._replace(config=replace(agent.config, **floats))
        after, seen = learner.update(changed, state._replace(step=step), batch, jax.random.key(0))
        moved = jax.tree.map(lambda new, old: new - old, after.params, state.params)
        first_moment = after.optimizer[1].mu  # a tenth of the first gradient
        return moved, 10 * optax.tree.norm(first_moment), seen

    return lambda step=0, **floats: compiled(step, usual | floats)


def test_an_update_steps_as_far_as_the_learning_rate_of_its_step_says(update):
    """Adam's first step is the learning rate in every coordinate with a gradient."""
    (first, *_), (late, *_) = update(0, lr_end=0.1), update(10, lr_end=0.1)
    assert max(jnp.abs(x).max() for x in jax.tree.leaves(first)) == pytest.approx(0.01, rel=1e-3)
    assert relative(jax.tree.map(lambda x: 0.1 * x, first), late) < 1e-3


def test_the_largest_gradient_norm_is_over_all_networks_together(update):
    _, free, seen = update()
    _, held, also_seen = update(max_grad_norm=0.5)
    whole = np.hypot(seen["grad_norm/actor"], seen["grad_norm/critic"])
    assert free == pytest.approx(whole, rel=1e-4)
    assert held == pytest.approx(0.5, rel=1e-4)
    assert_close(seen, also_seen)  # the gradient before it is held
    assert whole > 0.5


# What diagnose sees


@BOTH
def test_diagnose_shows_the_gradient_at_every_step(sampler):
    agent, state, batch = setup(sampler=sampler)
    cfg, key = agent.config, jax.random.key(2)
    seen = jax.jit(agent.diagnose)(state, batch, key)
    assert seen["grad_norm/step"].shape == (K + 1,)
    assert seen["grad_norm/share"].shape == (K,)
    assert (seen["grad_norm/step"][0] == 0) == (sampler == "vine"), "VINE forgets its start"
    assert jnp.all(seen["grad_norm/step"][1:] > 0)
    assert seen["actor/spread"] > 0.05

    wide = lambda tree: jax.tree.map(np.float64, jax.device_get(tree))
    params, batch = wide(state.params), wide(batch)
    z = cfg.noise * wide(jax.random.normal(jax.random.split(key)[0], (K + 1, B, A)))
    action, _ = generate(sampler, params["actor"], batch.obs, z)

    def loss(action):
        bc = batch.weight * np.mean((action - batch.action) ** 2, axis=-1)
        return cfg.alpha * bc - values(params["critic"], batch.obs, clip(action)).mean(axis=0)

    steps = 1e-6 * np.eye(A)
    grads = np.stack([(loss(action + h) - loss(action - h)) / 2e-6 for h in steps], axis=-1)
    last = np.linalg.norm(grads, axis=-1).mean()
    np.testing.assert_allclose(seen["grad_norm/step"][-1], last, rtol=1e-3)


def test_the_share_of_the_only_step_is_the_whole_gradient():
    agent, state, batch = setup(flow_steps=1, noise=0.0)
    seen = jax.jit(agent.diagnose)(state, batch, jax.random.key(2))
    _, metrics = jax.jit(partial(learner.update, agent))(state, batch, jax.random.key(3))
    np.testing.assert_allclose(seen["grad_norm/share"], [metrics["grad_norm/actor"]], rtol=1e-4)
    assert seen["actor/spread"] < 1e-6, "nothing spreads without noise"


def test_acting_stops_where_it_is_told():
    agent, state, batch = setup(stop_at=2)
    cfg, key = agent.config, jax.random.key(4)
    z = cfg.noise * np.float64(jax.random.normal(key, (K + 1, B, A)))
    params = jax.tree.map(np.float64, jax.device_get(state.params["actor"]))
    _, estimates = generate("vine", params, np.float64(batch.obs), z)
    action = jax.jit(agent.act)(agent.policy(state), batch.obs, key)
    np.testing.assert_allclose(action, clip(estimates[1]), atol=1e-5)


def test_learning_uses_all_steps_wherever_acting_stops():
    (whole, state, batch), (short, *_) = setup(), setup(stop_at=1)
    loss = lambda agent: jax.jit(agent.loss)(state.params, state, batch, jax.random.key(4))[0]
    losses = [loss(agent) for agent in (whole, short)]
    assert losses[0] == losses[1]
