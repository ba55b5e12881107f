"""Films of trained policies."""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinerl.bench.run import runs, tasks
from vinerl.bench.run.runs import Run
from vinerl.envs import ogbench
from vinerl.errors import InputError
from vinerl.train import evaluate

FRAMES = 200  # at most; longer episodes are shown faster


def headless() -> None:
    """Let MuJoCo draw without a screen; to be called before it is imported."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")


def try_frame() -> str:
    """One picture of a maze, or an exception."""
    headless()
    env = ogbench.make("pointmaze-medium-singletask-task1-v0", width=64, height=64)
    ogbench.reset(env, 0)
    height, width, _ = env.render().shape
    return f"a frame of {width} x {height}"


def film(
    run: Run,
    step: int | None = None,
    noise: float | None = None,
    stop_at: int | None = None,
    stream: int = 1,
    best_of: int | None = None,
    agent: str | None = None,
) -> list[Path]:
    """The first episode of every member, one file each."""
    headless()
    manifest, asked = run.manifest, {"noise": noise, "stop_at": stop_at, "best_of": best_of}
    if not manifest["task"]:
        raise InputError(f"{run.path} was trained on a file: there is no environment to film")
    trained, fixed = runs.otherwise(run, runs.load(run, step, agent), **asked)
    subject = trained.subject
    act = evaluate.acting(subject.agent_of(**fixed))
    how = "".join(f"-{name.replace('_', '-')}-{value:g}" for name, value in fixed.items())
    how = (f"-step-{step}" if step is not None else "") + how
    how += f"-stream-{stream}" if stream != 1 else ""
    env = ogbench.make(tasks.named(manifest["task"]).env, width=320, height=320)
    made = []
    for i, member in enumerate(manifest["members"]):
        pick = lambda tree, i=i: jax.tree.map(lambda x: x[i : i + 1], tree)
        frames = _episode(env, act, pick(subject.members), pick(trained.policies), subject, stream)
        made.append(_write(run.path / f"episode-{i}-seed{member['seed']}{how}", frames))
    return made


def _episode(env: Any, act, member, policy, subject: runs.Subject, stream: int) -> list[np.ndarray]:
    """Frames of one episode, far enough apart for the longest to fit."""
    obs = ogbench.reset(env, evaluate.start_seeds(stream, 1)[0])
    stride = max(1, env.spec.max_episode_steps // FRAMES)
    frames, time, count, over = [env.render()], 0, 0, False
    zero = np.zeros((1, 1), np.int32)
    while not over:
        seen = jax.tree.map(lambda x, s: np.asarray(x, s.dtype)[None, None], obs, subject.spec.obs)
        action = act(member, policy, np.int32(stream), subject.see(seen), zero, zero + time)
        for step in np.asarray(action).reshape(subject.config.act_steps, -1):
            obs, _, terminated, truncated, _ = env.step(step)
            over, count = terminated or truncated, count + 1
            if over or count % stride == 0:
                frames.append(env.render())
            if over:
                break
        time += 1
    return frames


def _write(stem: Path, frames: list[np.ndarray]) -> Path:
    """An .mp4 with the [video] extra, else a .gif."""
    try:
        import imageio.v2 as imageio
        import imageio_ffmpeg  # noqa: F401
    except ImportError:
        from PIL import Image

        first, *rest = map(Image.fromarray, frames)
        path = stem.with_name(f"{stem.name}.gif")  # a value in the name may have a point
        first.save(path, save_all=True, append_images=rest, duration=50, loop=0)
        return path
    path = stem.with_name(f"{stem.name}.mp4")
    with warnings.catch_warnings():  # JAX warns of any fork; this one only starts ffmpeg
        warnings.simplefilter("ignore", RuntimeWarning)
        imageio.mimwrite(path, list[Any](frames), fps=20, macro_block_size=16)
    return path
