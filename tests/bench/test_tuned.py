"""Tuned values and the two protocols, against numbers written down by hand."""

from dataclasses import fields, replace
from functools import partial

import jax
import pytest

import tiny
from vinerl.agents import AGENTS
from vinerl.bench.run import jobs, tasks, tuned
from vinerl.envs import ogbench
from vinerl.errors import InputError
from vinerl.rl import learner
from vinerl.train import offline

TASK = {
    "antmaze-large": "antmaze-large-navigate-singletask-task1-v0",
    "antmaze-giant": "antmaze-giant-navigate-singletask-task2-v0",
    "humanoidmaze-large": "humanoidmaze-large-navigate-singletask-task1-v0",
    "scene-sparse": "scene-play-singletask-task4-v0",
    "puzzle-3x3-sparse": "puzzle-3x3-play-singletask-task4-v0",
    "cube-double": "cube-double-play-singletask-task1-v0",
    "cube-triple": "cube-triple-play-singletask-task5-v0",
}


def resolve(agent, domain, **options):
    return jobs.resolve(jobs.request(agent, {"task": TASK[domain]} | options))


def test_every_agent_has_values_for_every_domain_and_they_are_its_fields():
    assert set(tuned.VALUES) == set(AGENTS)
    domains = {tasks.named(name).domain for name in ogbench.TASKS}
    assert set(tuned.DOMAINS) <= domains
    for agent, values in tuned.VALUES.items():
        known = {f.name for f in fields(AGENTS[agent][0])}
        assert set(values) <= known, agent
        assert {len(several) for several in values.values()} == {len(tuned.DOMAINS)}
    for protocol in tuned.RUN:
        for place in range(len(tuned.DOMAINS)):
            assert set(tuned.around(protocol, place)) <= {f.name for f in fields(AGENTS["vine"][0])}


@pytest.mark.parametrize(
    ("agent", "domain", "expected"),
    [
        ("rebrac", "cube-triple", {"alpha": 0.01, "noise": 0.2, "target_every": 2}),
        ("rebrac", "humanoidmaze-large", {"noise": 0.1, "rho": 0.0, "discount": 0.995}),
        ("fql", "antmaze-large", {"alpha": 3.0, "horizon": 1, "discount": 0.99, "rho": 0.5}),
        ("fql", "scene-sparse", {"alpha": 300.0, "horizon": 5, "chunk": True}),
        ("ifql", "puzzle-3x3-sparse", {"kappa": 0.95, "draws": 32}),
        ("qam", "antmaze-giant", {"inv_temp": 3.0, "discount": 0.995, "max_grad_norm": 1.0}),
        ("qsm", "scene-sparse", {"inv_temp": 3.0, "alpha": 30.0, "pull": "qsm"}),
        ("cgql-m", "antmaze-giant", {"guidance": 0.1, "noisy_weight": 0.001, "mode": "mse"}),
        ("dsrl", "cube-triple", {"noise_scale": 1.4}),
        ("fbrac", "puzzle-3x3-sparse", {"alpha": 0.03}),
        ("bam", "cube-triple", {"inv_temp": 30.0}),
        ("vine", "puzzle-3x3-sparse", {"alpha": 1000.0, "horizon": 1, "critics": 2}),
    ],
)
def test_values_by_hand(agent, domain, expected):
    config = resolve(agent, domain).config
    assert {name: getattr(config, name) for name in expected} == expected


def test_each_agent_runs_under_its_own_protocol():
    vine, fql = (resolve(agent, "cube-double") for agent in ("vine", "fql"))
    parts = lambda c: (c.critic, c.critics, c.target, c.batch_size, c.discount, c.horizon)
    assert parts(vine.config) == ("residual", 2, "min", 512, 0.995, 1)
    assert (vine.config.critic_hidden, vine.config.critic_blocks) == ((512, 512), 4)
    assert parts(fql.config) == ("mlp", 10, "std", 256, 0.99, 5)
    assert (vine.eval_every, fql.eval_every) == (20_000, 50_000)
    assert vine.origin["alpha"] == "row: the VINE paper's table"
    assert fql.origin["alpha"] == fql.origin["horizon"] == "row: QAM's published runs"


@pytest.mark.parametrize("domain", ["antmaze-large", "cube-double"])
def test_any_agent_runs_under_the_other_protocol_and_keeps_its_value(domain):
    both = [resolve(a, domain, protocol=p).config for p in ("qam", "vine") for a in ("vine", "fql")]
    recipe = lambda c: {name: getattr(c, name) for name in tuned.around("qam", 0)}
    assert recipe(both[0]) == recipe(both[1])
    assert recipe(both[2]) == recipe(both[3])
    assert recipe(both[0]) != recipe(both[2])
    assert both[0].alpha == both[2].alpha
    assert both[1].alpha == both[3].alpha
    away = resolve("fql", domain, protocol="vine").origin
    assert away["alpha"] == "row: QAM's published runs; value tuned elsewhere"
    assert away["critics"] == "row: the VINE paper's table"
    assert "elsewhere" not in resolve("fql", domain, protocol="qam").origin["alpha"]


def test_a_flag_beats_the_protocol():
    config = resolve("fql", "cube-double", protocol="vine", horizon=3, alpha=7.0).config
    assert (config.horizon, config.alpha, config.critics) == (3, 7.0, 2)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(InputError, match="--protocol td3: there are vine, qam"):
        resolve("fql", "cube-double", protocol="td3")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"data": "own.npz"}, "--data"),
        ({}, tasks.DEFAULT),
        ({"task": "antmaze-medium-navigate-singletask-task2-v0"}, "antmaze-medium-navigate"),
    ],
)
def test_a_protocol_without_values_for_the_data_is_refused(options, where):
    with pytest.raises(InputError, match=f"--protocol vine: .*cube-triple, and none for {where}"):
        jobs.resolve(jobs.request("fql", options | {"protocol": "vine"}))


@pytest.mark.parametrize(
    ("agent", "domain", "field"),
    [
        ("qam-fql", "puzzle-3x3-sparse", "alpha"),
        ("qam-fql", "cube-double", "alpha"),
        ("qam-edit", "scene-sparse", "edit_scale"),
    ],
)
def test_a_variant_that_was_tuned_away_is_plain_qam(agent, domain, field):
    said = f"{agent} on {domain} has {field} 0, which is plain qam: train qam"
    with pytest.raises(InputError, match=said):
        resolve(agent, domain)
    assert getattr(resolve(agent, domain, **{field: 0.3}).config, field) == 0.3
    assert resolve(agent, "antmaze-large").config


@pytest.mark.parametrize("agent", AGENTS)
def test_where_the_table_names_another_agent_that_one_has_the_same_values(agent):
    for place in range(len(tuned.DOMAINS)):
        values = {name: several[place] for name, several in tuned.VALUES[agent].items()}
        for plain in {x for x in values.values() if isinstance(x, str)}:
            shared = {name: x for name, x in values.items() if not isinstance(x, str)}
            assert shared == {name: tuned.VALUES[plain][name][place] for name in shared}


@pytest.mark.parametrize("protocol", tuned.RUN)
@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_learns_under_either_protocol(agent, protocol):
    """Its program is traced with the recipe's critics, target and chunks, in small."""
    job = resolve(agent, "cube-triple", protocol=protocol)
    elsewhere = "value tuned elsewhere" in job.origin[next(iter(tuned.VALUES[agent]))]
    assert elsewhere == (protocol != tuned.home(agent))
    small = {"actor_hidden": (8,), "critic_hidden": (8,), "batch_size": 16}
    cfg, recipe = replace(job.config, **small), tuned.around(protocol, len(tuned.DOMAINS) - 1)
    kept = {name: value for name, value in recipe.items() if name not in small}
    assert {name: getattr(cfg, name) for name in kept} == kept
    made = job.make(cfg, tiny.SPEC._replace(action_dim=2 * cfg.horizon))
    state = jax.eval_shape(partial(learner.init, made), jax.random.key(0))
    step = partial(offline.train_step, made)
    after, _ = jax.eval_shape(step, tiny.dataset(), jax.random.key(0), state)
    assert jax.tree.structure(after) == jax.tree.structure(state)


def test_the_default_job_is_small_for_every_agent():
    for agent in AGENTS:
        job = jobs.resolve(jobs.Request(agent=agent))
        assert (job.config.actor_hidden, job.config.critics, job.steps) == ((128,) * 3, 2, 6000)
