"""Is everything there that a run needs?"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from vinerl.agents import AGENTS
from vinerl.bench.run import provenance
from vinerl.data import files
from vinerl.data.fold import transitions
from vinerl.envs import ogbench
from vinerl.train import offline, stack
from vinerl.types import Spec

GIGABYTE = 2**30


def examine(say: Callable[[str], None]) -> bool:
    """Look at one thing after the other; False where something needs attention."""
    checks = {
        "versions": versions,
        "device": device,
        "simulator": simulator,
        "rendering": rendering,
        "disk": disk,
        "ten steps": ten_steps,
    }
    good = True
    for name, check in checks.items():
        try:
            verdict, fine = check(), True
        except Exception as error:  # whatever is wrong here is what the user came to see
            verdict, fine = f"{type(error).__name__}: {error}", False
        good &= fine
        say(f"{'ok ' if fine else 'BAD'}  {name:<10} {verdict}")
    return good


def versions() -> str:
    return ", ".join(f"{name} {number}" for name, number in provenance.versions().items())


def device() -> str:
    if warning := provenance.unseen_gpu():
        raise RuntimeError(warning)
    facts = provenance.hardware()
    return f"{facts['device']} ({facts['backend']}), {facts['cores']} cores"


def simulator() -> str:
    number = tuple(int(x) for x in provenance.versions()["mujoco"].split(".")[:2])
    if not (3, 2) <= number < (3, 5):
        raise RuntimeError("MuJoCo 3.2.7 or later, below 3.5, simulates as the benchmark did")
    env = ogbench.make("pointmaze-medium-singletask-task1-v0")
    first = ogbench.reset(env, 0)
    if not np.array_equal(first, ogbench.reset(env, 0)):
        raise RuntimeError("one seed gave two starts")
    return "a maze resets and repeats itself"


def rendering() -> str:
    """In a process of its own: MuJoCo chooses how to draw when it is imported."""
    code = "from vinerl.bench.pictures import video; print(video.try_frame())"
    command = [sys.executable, "-c", code]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise RuntimeError(f"no --video here: {last} (Debian: apt install libegl1)")
    return done.stdout.strip()


def disk() -> str:
    said = []
    for name, path in {"runs": Path.cwd(), "data": files.folder()}.items():
        there = next(p for p in (path, *path.parents) if p.exists())
        free = shutil.disk_usage(there).free / GIGABYTE
        with tempfile.TemporaryFile(dir=there):
            said.append(f"{name} {free:.0f} GB free")
        if free < 1:
            raise RuntimeError(f"{there}: only {free:.2f} GB free")
    return ", ".join(said)


def ten_steps() -> str:
    """VINE, small, on random numbers."""
    config, make = AGENTS["vine"]
    small = {"batch_size": 16, "actor_hidden": (16,), "critic_hidden": (16,)}
    config, draw = replace(config, **small), np.random.default_rng(0)
    ends = np.arange(100) % 50 == 49
    obs = draw.normal(size=(102, 3)).astype(np.float32)
    action = draw.uniform(-1, 1, (100, 2))
    data = transitions(obs, action, -np.ones(100), np.ones(100), ends)
    spec = Spec(jax.ShapeDtypeStruct((3,), np.float32), 2)
    agent_of = stack.maker(make, config, spec)
    runs = offline.start(agent_of, stack.members(config, (0,)))
    runs, seen = offline.train_block(agent_of)(runs, jax.device_put(data), 10)
    if runs.status.tolist() != [0]:
        raise RuntimeError(f"the run is {offline.STATUS[int(runs.status[0])]}")
    return f"critic loss {float(seen['critic/loss'][0]):.3f}"
