"""A job comes back from its manifest, also from one that an earlier version wrote."""

import math
from dataclasses import replace

import pytest

from vinerl.agents import AGENTS
from vinerl.agents.vine import VineConfig
from vinerl.bench.run import jobs, manifests, provenance, runs
from vinerl.errors import InputError
from vinerl.train import stack
from vinerl.types import Spec


def begun(**options):
    """The job, and what is kept of it."""
    job = jobs.resolve(jobs.request("vine", {"data": "parts"} | options))
    config = {name: manifests.freeze(value) for name, value in vars(job.config).items()}
    return job, {
        "run": {name: manifests.freeze(getattr(job, name)) for name in manifests.KEPT},
        "agent": {"name": "vine", "config": config},
        "task": None,
        "data": {"path": "parts"},
        "block": 10,
        "from": job.origin,
    }


def test_a_manifest_from_before_an_option_goes_on_as_it_began(tmp_path):
    _, manifest = begun(shard_every=50, drop_bad_rows=True, rescale_actions=True)
    options = lambda job: (job.shard_every, job.drop_bad_rows, job.rescale_actions)
    assert options(manifests.again(manifest, tmp_path, None)) == (50, True, True)
    for name in ("shard_every", "drop_bad_rows", "rescale_actions"):
        del manifest["run"][name]
    assert options(manifests.again(manifest, tmp_path, None)) == (1000, False, False)


def test_how_a_stack_is_divided_is_asked_for_every_time(tmp_path):
    job, manifest = begun(stack=3)
    assert job.stack == 3
    assert manifest == begun()[1]
    assert manifests.again(manifest, tmp_path, None).stack == 0
    assert manifests.again(manifest, tmp_path, None, stack=2).stack == 2
    with pytest.raises(InputError, match="--stack -1: expected a whole number, 0 or more"):
        manifests.again(manifest, tmp_path, None, stack=-1)


def test_a_run_goes_on_with_the_processes_it_began_with(tmp_path, monkeypatch):
    """On a machine with fewer cores with no more than these; or with as many as are asked for."""
    job, older = begun(workers=3)
    manifest = manifests.begin(job, Spec({}, 2), {"path": "parts"}) | {"block": 10}
    workers = lambda manifest, **asked: manifests.again(manifest, tmp_path, None, **asked).workers
    monkeypatch.setattr(provenance, "cores", lambda: 8)
    assert workers(manifest) == 3
    assert workers(manifest, workers=6) == 6
    assert workers(older) is None
    monkeypatch.setattr(provenance, "cores", lambda: 2)
    assert workers(manifest) == 2
    with pytest.raises(InputError, match="--workers 0: expected a whole number, 1 or more"):
        workers(manifest, workers=0)


def test_a_run_of_an_earlier_version_has_the_defaults_of_what_came_later():
    config = {name: manifests.freeze(value) for name, value in vars(AGENTS["vine"][0]).items()}
    config |= {"alpha": [1.0, 2.0], "max_grad_norm": "inf"}
    older = {name: value for name, value in config.items() if name != "stop_at"}
    found, _ = manifests.config_of({"agent": {"name": "vine", "config": older}}, "vine")
    assert (found.alpha, found.stop_at, found.max_grad_norm) == ((1.0, 2.0), None, float("inf"))
    with pytest.raises(InputError, match="vine no longer has betas, with which this run began"):
        manifests.config_of({"agent": {"name": "vine", "config": config | {"betas": 1}}}, "vine")


def test_infinity_can_be_one_value_of_a_stack():
    config = replace(VineConfig(), max_grad_norm=(1.0, float("inf")))
    members = stack.members(config, seeds=(0,))
    assert [runs.title(manifests.member_of(members, i)) for i in range(2)] == [
        "seed 0, max_grad_norm 1",
        "seed 0, max_grad_norm inf",
    ]


def test_a_stacked_value_is_told_as_it_was_asked_for():
    """As float32 0.1 is 0.10000000149 and 3e-4 is 0.00030000001: another recipe, to results."""
    asked = (0.03, 0.1, 0.3, 1.0, 3e-4, 1e10)
    members = stack.members(replace(VineConfig(), alpha=asked), seeds=(0,))
    assert tuple(manifests.member_of(members, i)["alpha"] for i in range(6)) == asked


def test_a_manifest_knows_which_infinity():
    several = (1.0, math.inf, -math.inf)
    assert manifests.freeze(several) == [1.0, "inf", "-inf"]
    assert manifests.thaw(manifests.freeze(several)) == several
