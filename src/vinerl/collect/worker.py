"""A process that makes episodes: python -m vinerl.collect.worker RECIPE [CONTROLLER]."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from vinerl.collect.recipes import Recipe
from vinerl.envs.workers import serve


def maker(recipe: Recipe, controller: Path | None) -> Callable[[Sequence[int]], list]:
    """From episodes' numbers to what they hold. Only the simulator that is needed is imported."""
    if recipe.kind != "play":
        from vinerl.collect.mazes import Maze

        return Maze(recipe, controller).episodes
    from vinerl.collect.play import Play

    play = Play(recipe)
    return lambda numbers: [play.episode(number) for number in numbers]


def main(recipe: str, controller: str | None = None) -> None:
    os.environ["MUJOCO_GL"] = "disable"  # nothing is drawn: a missing display is no news
    make = maker(Recipe(**json.loads(recipe)), Path(controller) if controller else None)

    def answer(request, _):
        episodes = make(request["numbers"])
        names = list(episodes[0][0])
        arrays = [arrays[name] for arrays, _ in episodes for name in names]
        return {"names": names, "facts": [facts for _, facts in episodes]}, arrays

    serve(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
