"""Rows that one core makes in a second, beside the bare simulator under the same controls.

python -m benchmarks data
python -m benchmarks data --names antmaze-large-navigate-v0,scene-play-v0 --rows 301

A small dataset is made, for its bytes and its controls; then making it again and replaying it take
turns in this one process. Mazes are replayed by mujoco.rollout, an arm by its plain environment,
which is spared the oracle. `made` and `bare` are rows a second. `apart` is how far a replay is from
the record, in the median: it tells that the motion was the same.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
from mujoco import rollout

from benchmarks import lines
from vinerl import disk
from vinerl.collect import controllers, make, recipes
from vinerl.collect.recipes import Recipe
from vinerl.collect.worker import maker
from vinerl.data import files
from vinerl.envs import ogbench
from vinerl.errors import InputError

TURNS = 7
SPAN = 50  # rows of a walk that are replayed from one recorded state
NAMES = [f"{robot}-{s}-navigate-v0" for robot, sizes in recipes.NAVIGATE.items() for s in sizes]
NAMES += ["antmaze-large-stitch-v0", "antmaze-large-explore-v0"]
NAMES += [f"{name}-play-v0" for name in ("cube-double", "cube-triple", "scene", "puzzle-3x3")]
COLUMNS = ("case", "made", "bare", "ratio", "bytes_a_row", "apart")

Columns = dict[str, np.ndarray]  # [episodes, rows, ...]


class Replay(NamedTuple):
    run: Callable[[], np.ndarray]  # to postures [N, Q] that it comes to
    rows: int
    recorded: np.ndarray  # the same postures as the file has them


def replay_maze(recipe: Recipe, columns: Columns) -> Replay:
    env = ogbench.make(recipe.env).unwrapped
    span = SPAN if recipe.robot else 1
    starts = np.arange(0, recipe.rows - span, span)
    qpos, qvel = (columns[name][:, starts].astype(np.float64) for name in ("qpos", "qvel"))
    actions = columns["actions"][:, : span * len(starts)]
    if recipe.robot:
        controls = actions.reshape(-1, span, env.model.nu).repeat(env.frame_skip, axis=1)
    else:  # a point is set down where it is to go, and has no motor
        qpos, qvel = qpos + 0.2 * actions, 0 * qvel
        controls = np.zeros((1, env.frame_skip, env.model.nu))
    states = np.concatenate([np.zeros((*qpos.shape[:2], 1)), qpos, qvel], axis=2)
    states, controls = states.reshape(-1, states.shape[2]), controls.astype(np.float64)
    data = mujoco.MjData(env.model)  # pyright: ignore[reportAttributeAccessIssue]

    def run():
        after: Any = rollout.rollout(env.model, data, states, controls)[0]
        return after[:, -1, 1 : 1 + env.model.nq]

    recorded = columns["qpos"][:, starts + span].reshape(-1, env.model.nq)
    return Replay(run, actions[..., 0].size, recorded)


def replay_play(recipe: Recipe, columns: Columns) -> Replay:
    env = ogbench.make(recipe.env, mode="data_collection", terminate_at_goal=False)
    actions = columns["actions"][:, :-1]

    def run():
        seen = []
        for number, episode in enumerate(actions):
            ogbench.reset(env, int(np.random.default_rng([recipe.seed, number]).integers(2**31)))
            seen += [env.step(action)[-1]["qpos"] for action in episode]
        return np.array(seen)

    recorded = columns["qpos"][:, 1:]
    return Replay(run, actions[..., 0].size, recorded.reshape(-1, recorded.shape[2]))


def measure(recipe: Recipe) -> lines.Row:
    controller = controllers.shipped(recipe.robot) if recipe.robot else None
    if recipe.robot and not controller:
        raise InputError(f"no controller for the {recipe.robot} comes with this version")
    if controller:
        recipe = replace(recipe, controller=disk.sha256(controller))
    with tempfile.TemporaryDirectory() as folder:
        path = make.make(recipe, Path(folder), processes=1, controller=controller)
        arrays, size = files.read(path), path.stat().st_size
    rows = recipe.episodes * recipe.rows
    columns = {name: x.reshape(-1, recipe.rows, *x.shape[1:]) for name, x in arrays.items()}
    replay = (replay_play if recipe.kind == "play" else replay_maze)(recipe, columns)
    episodes, numbers = maker(recipe, controller), list(range(recipe.episodes))
    episodes(numbers[:1])
    apart = np.median(np.abs(replay.run() - replay.recorded).max(axis=1))
    turns = [
        (rows / seconds(lambda: episodes(numbers)), replay.rows / seconds(replay.run))
        for _ in range(TURNS)
    ]
    made, bare = np.array(turns).T
    return {
        "made": round(np.median(made)),
        "bare": round(np.median(bare)),
        "ratio": round(np.median(made / bare), 3),
        "ratios": [round(ratio, 3) for ratio in sorted(made / bare)],
        "bytes_a_row": round(size / rows, 1),
        "apart": float(f"{apart:.1e}"),
    }


def seconds(work: Callable[[], Any]) -> float:
    """Of this process, so that others on the machine take less of a part in it."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main(args: list[str]) -> None:
    parser = lines.parser("data", __doc__)
    parser.add_argument("--names", default=",".join(NAMES))
    parser.add_argument("--episodes", type=int, help="a turn (else as many as are made at once)")
    parser.add_argument(
        "--rows", type=int, help=f"an episode, more than {SPAN} (else the official number)"
    )
    given = parser.parse_args(args)
    chosen = {name: recipe_of(name, given) for name in given.names.split(",")}
    said = lines.Lines("data", given)
    for name, recipe in chosen.items():
        said.case({"case": name, "turns": TURNS}, partial(measure, recipe))
    said.show(COLUMNS)


def recipe_of(name: str, given: argparse.Namespace) -> Recipe:
    if given.rows is not None and given.rows <= SPAN:
        raise InputError(f"--rows {given.rows}: an episode is replayed {SPAN} rows at a time")
    recipe = recipes.official(name)
    count, rows = given.episodes or recipe.together, given.rows or recipe.rows
    return replace(recipe, episodes=count, rows=rows)
