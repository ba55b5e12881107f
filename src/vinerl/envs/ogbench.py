"""OGBench's single-task environments: making, seeding, labelling, describing."""

import difflib
import re
import tempfile
import threading
import warnings
from typing import Any

import numpy as np

from vinerl.errors import InputError

_MAZES = {"pointmaze": "medium large giant teleport", "antmaze": "medium large giant teleport"}
_MAZES |= {"humanoidmaze": "medium large giant"}
_PLAY = "cube-single cube-double cube-triple cube-quadruple scene puzzle-3x3 puzzle-4x4"
_PLAY += " puzzle-4x5 puzzle-4x6"

MAKING = threading.Lock()  # where temporary files go and which warnings are heard is one for all
BAD = 4  # of MuJoCo's warnings the first about numbers: position, velocity, acceleration, control

DATASETS = [
    f"{robot}-{size}-{kind}-v0"
    for robot, sizes in _MAZES.items()
    for size in sizes.split()
    for kind in ("navigate", "stitch")
]
DATASETS += [f"antmaze-{size}-explore-v0" for size in ("medium", "large", "teleport")]
DATASETS += [f"{name}-{kind}-v0" for name in _PLAY.split() for kind in ("play", "noisy")]

TASKS = [
    f"{name.removesuffix('-v0')}-singletask-task{i}-v0" for name in DATASETS for i in range(1, 6)
]


def check_task(name: str) -> None:
    if name not in TASKS:
        begun = [task for task in TASKS if task.startswith(name.removesuffix("-v0"))]
        near = begun[:3] or difflib.get_close_matches(name, TASKS, n=3, cutoff=0.0)
        raise InputError(f"unknown task {name!r}; the nearest names are:\n  " + "\n  ".join(near))


def dataset_of(task: str) -> str:
    """antmaze-large-navigate-singletask-task1-v0 -> antmaze-large-navigate-v0."""
    return re.sub(r"-singletask-task\d", "", task)


def env_id(task: str) -> str:
    """The environment's own name has no dataset type in it."""
    return re.sub(r"-(navigate|stitch|explore|play|noisy)(?=-singletask)", "", task)


def make(name: str, **options) -> Any:
    """A Gymnasium environment by id. OGBench's mazes each leave a file behind; ours do not."""
    import gymnasium
    import ogbench  # noqa: F401  (registers its environments)

    # The arm says so at every reset, of bounds that float32 holds exactly.
    warnings.filterwarnings("ignore", ".*precision lowered by casting", UserWarning)
    with MAKING, tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            return gymnasium.make(name, **options)
        finally:
            tempfile.tempdir = before


def reset(env: Any, seed: int, **options) -> Any:
    """The first observation of one episode. The mazes draw theirs from NumPy's global generator."""
    np.random.seed(seed)
    env.action_space.seed(seed)
    return env.reset(seed=seed, **options)[0]


def unstable(env: Any) -> bool:
    """Whether MuJoCo has set its state back since this was last asked, having met NaN or a number
    too large. It says so in a counter, and goes on as if it were the beginning."""
    inner = env.unwrapped
    data: Any = next((d for d in (getattr(inner, n, None) for n in ("data", "_data")) if d), None)
    if not hasattr(data, "warning"):
        return False
    met = [one for kind in range(BAD, BAD + 4) if (one := data.warning[kind]).number]
    for one in met:
        one.number = 0
    return bool(met)


def label(task: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of an OGBench file with the task's rewards and masks, by OGBench's own rules."""
    from ogbench.relabel_utils import relabel_dataset

    needed = ("qpos", "button_states") if re.match("scene|puzzle", task) else ("qpos",)
    if missing := [name for name in needed if name not in arrays]:
        raise InputError(f"rewards of {task} need {' and '.join(missing)}, which the file lacks")
    env = make(env_id(task))
    arrays = dict(arrays)
    relabel_dataset(task, env, arrays)
    env.close()
    return arrays


def describe(env: Any) -> dict:
    """What pictures and manifests say about an environment, as plain values."""
    inner = env.unwrapped
    facts: dict[str, Any] = {"limit": getattr(env.spec, "max_episode_steps", None)}
    if hasattr(inner, "maze_map"):
        facts["maze"] = {
            "map": inner.maze_map.tolist(),
            "unit": float(inner._maze_unit),
            "offset": [float(inner._offset_x), float(inner._offset_y)],
            "goal": [float(x) for x in inner.cur_goal_xy],
            "tolerance": float(inner._goal_tol),
        }
    return facts
