"""What is measured: agents as `vinerl train` would make them, and random data of antmaze sizes."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from vinerl.bench.run import jobs
from vinerl.data.fold import Transitions, transitions
from vinerl.errors import InputError
from vinerl.rl.learner import AgentConfig, Make

TASK = "antmaze-large-navigate-singletask-task1-v0"
OBS, ACTION, ROWS = 29, 8, 100_000
EPISODE = 1000
SMALL = {"actor_hidden": (8,) * 2, "critic_hidden": (8,) * 2, "critic_blocks": 1, "critics": 2}
SMALL |= {"batch_size": 16, "flow_steps": 2}
SMALL_ROWS = 2 * EPISODE


def random_data(rows: int, obs: int, action: int, episode: int = EPISODE) -> Transitions:
    draw = np.random.default_rng(0)
    ends = np.arange(rows) % episode == episode - 1
    ends[-1] = True
    observed = draw.standard_normal((rows + int(ends.sum()), obs), np.float32)
    actions = draw.uniform(-1, 1, (rows, action))
    return transitions(observed, actions, -np.ones(rows), np.ones(rows), ends)


def agent(
    name: str, given: dict[str, Any], small: bool = False, task: str = TASK
) -> tuple[AgentConfig, Make]:
    """The agent with its protocol's values for the task, then small ones, then those given."""
    job = jobs.resolve(jobs.Request(agent=name, fields=given, task=task))
    if not small:
        return job.config, job.make
    known = {field.name for field in fields(job.config)}
    tiny = {field: value for field, value in SMALL.items() if field in known}
    return replace(job.config, **(tiny | given)), job.make


def settings(
    said: Sequence[str], flag: str = "--set", example: str = "precision=bfloat16"
) -> dict[str, Any]:
    """Fields from name=value; a value that is no JSON is a word."""
    return dict(_setting(one, flag, example) for one in said)


def _setting(said: str, flag: str, example: str) -> tuple[str, Any]:
    name, equals, text = said.partition("=")
    if not equals:
        raise InputError(f"{flag} {said}: expected name=value, e.g. {example}")
    try:
        value = json.loads(text)
    except ValueError:
        return name, text
    return name, tuple(value) if isinstance(value, list) else value
