"""One program for four devices, in a process that pretends to have them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PROGRAM = """
import json
import jax, numpy as np
jax.config.update("jax_disable_most_optimizations", True)
from tiny import SPEC, dataset, tiny
from vinerl.train import devices, groups, offline, stack

WORDS = ("all-reduce", "all-gather", "all-to-all", "collective")
config, make = tiny("vine")
agent_of = stack.maker(make, config, SPEC)
block, data = offline.train_block(agent_of), dataset()

def trained(seeds, among):
    runs = devices.split(offline.start(agent_of, stack.members(config, seeds)), among)
    runs, _ = block(runs, devices.copy(data, among), 5)
    return runs

many, alone = devices.mesh(8), devices.mesh(1)
runs = trained(range(8), many)
params = jax.tree.leaves(runs.state.params)
pairs = zip(params, jax.tree.leaves(trained(range(8), alone).state.params), strict=True)
program = block.lower(runs, devices.copy(data, many), 5).compile().as_text()
among = groups.deal(8, 5, many.size)
steps, group = runs.state.step + 0, groups.take(runs, among, 1)
moved = groups.take.lower(runs, among, 1).compile().as_text()
moved += groups.put.lower(runs, group, among, 1).compile().as_text()
last, seen = groups.in_turn(lambda x, by, n: (x + n * by, x), among, 0)(steps, runs.member.seed, 2)
print(json.dumps({
    "group": [s.data.shape[0] for s in group.state.step.addressable_shards],
    "members": group.member.seed.tolist(),
    "still": [s.data.shape[0] for s in last.addressable_shards],
    "in_turn": [last.tolist(), seen.tolist()],
    "few": devices.mesh(8, 3).size,
    "meshes": [devices.mesh(n).size for n in (8, 6, 5, 1)],
    "shares": sorted({tuple(s.data.shape[0] for s in x.addressable_shards) for x in params}),
    "difference": max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs),
    "talk": [w for w in WORDS if w in program + moved],
    "steps": np.asarray(runs.state.step).tolist(),
}))
"""


def test_devices_get_equal_shares_and_do_not_talk():
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "JAX_PLATFORMS": "cpu"}
    env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["meshes"] == [4, 3, 1, 1]
    assert found["shares"] == [[2, 2, 2, 2]]
    assert found["steps"] == [5] * 8
    assert found["difference"] < 1e-6
    assert found["talk"] == []
    assert found["group"] == [1, 1, 1, 1]
    assert found["members"] == [1, 3, 5, 7]
    assert found["still"] == [2, 2, 2, 2]
    assert found["in_turn"] == [[5, 7, 9, 11, 13, 15, 17, 19], [5] * 8]
    assert found["few"] == 2, "no device without a member at work"


@pytest.mark.slow
def test_a_run_on_four_devices_and_what_is_added_to_it_equal_those_on_one(tmp_path):
    """A restored stack is spread out as well."""
    draw = np.random.default_rng(0)
    arrays = {"observations": draw.normal(size=(40, 3)), "actions": draw.uniform(-1, 1, (40, 2))}
    arrays |= {"rewards": draw.normal(size=40), "terminals": np.arange(40) % 10 == 9}
    np.savez(tmp_path / "mine.npz", **arrays)
    small = "--agent.actor-hidden 8 --agent.critic-hidden 8 --agent.batch-size 16"
    small += " --agent.flow-steps 2 --seeds 0,1,2,3 --steps 4 --workers 1 --log-every 2"
    losses = []
    for count in (1, 4):
        out = str(tmp_path / f"run{count}")
        env = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}
        for words in (
            ["train", "--data", str(tmp_path / "mine.npz"), "--out", out, *small.split()],
            ["resume", out, "--steps", "8"],
        ):
            command = [sys.executable, "-m", "vinerl", *words]
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
        lines = (tmp_path / f"run{count}/metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["actor/loss"] for line in lines])
    assert np.shape(losses) == (2, 4, 4)  # devices, logs, members
    np.testing.assert_allclose(*losses, rtol=1e-4)
