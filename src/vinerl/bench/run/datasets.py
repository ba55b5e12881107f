"""Datasets by name: made with a progress bar, and what that will cost said before."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from vinerl import disk
from vinerl.bench.run import provenance
from vinerl.bench.run.progress import Progress, duration
from vinerl.collect import controllers, make, recipes
from vinerl.collect.recipes import Recipe
from vinerl.errors import InputError


def recipe_of(dataset: str, episodes: int | None = None, seed: int = 0) -> Recipe:
    if episodes is not None and episodes < 1:
        raise InputError(f"--episodes {episodes}: expected a whole number, 1 or more")
    recipe = recipes.official(dataset)
    return replace(recipe, episodes=episodes or recipe.episodes, seed=seed)


def make_data(
    recipe: Recipe, folder: Path, processes: int | None = None, controller: Path | None = None
) -> Path:
    """The training file; `controller` is a file for robots that need one, else the package's."""
    processes = provenance.cores() if processes is None else processes
    if recipe.robot:
        controller = controller or controllers.shipped(recipe.robot)
        if controller is None:
            raise InputError(
                f"{recipe.dataset} needs a controller that makes the {recipe.robot} walk, and none "
                "comes with this version. Give one with --controller FILE to vinerl data make, or "
                f"get the official file: vinerl data get {recipe.dataset}"
            )
        controllers.read(controller, recipe.robot)
        recipe = replace(recipe, controller=disk.sha256(controller))
    elif controller:
        raise InputError(f"--controller {controller}: {recipe.dataset} has no use for one")
    if processes < 1:
        raise InputError(f"--workers {processes}: expected a whole number, 1 or more")
    print(f"{recipe.dataset}: {about(recipe, processes)} on {processes} cores", flush=True)
    try:
        with Progress("making data", recipe.total) as bar:
            show = lambda done, _: bar.update(done)
            return make.make(recipe, folder, processes, show, controller)
    except KeyboardInterrupt:
        print("stopped; the same command goes on from there", flush=True)
        raise


def trial(controller: Path, size: str, episodes: int) -> dict[str, float]:
    """How a controller does in one of the mazes: means over episodes of the official recipe."""
    recipe = recipe_of(f"antmaze-{size}-navigate-v0", episodes)
    with tempfile.TemporaryDirectory() as folder:
        path = make_data(recipe, Path(folder), controller=controller)
        return json.loads(path.with_suffix(".json").read_text())["per_episode"]


def about(recipe: Recipe, cores: int) -> str:
    """What it costs, in words."""
    seconds, size = recipes.cost(recipe, cores)
    return f"{recipe.total} episodes, about {duration(seconds)} and {size / 1e6:.0f} MB"


def advice(dataset: str) -> str:
    """How a missing dataset is had."""
    get = f"vinerl data get {dataset}     (downloads the official file)"
    if not can_make(dataset):
        return get
    cost = about(recipes.OFFICIAL[dataset], provenance.cores())
    return f"vinerl data make {dataset}    ({cost} on this machine; --make-data does it)\n  {get}"


def can_make(dataset: str) -> bool:
    """Whether there is a recipe, and a controller where that needs one."""
    recipe = recipes.OFFICIAL.get(dataset)
    return bool(recipe and (not recipe.robot or controllers.shipped(recipe.robot)))
