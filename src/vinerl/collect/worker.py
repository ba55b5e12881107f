"""A process that makes episodes: python -m vinerl.collect.worker RECIPE [CONTROLLER]."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from vinerl.collect.mazes import Episode, Maze
from vinerl.collect.recipes import Recipe
from vinerl.envs.workers import serve


def maker(recipe: Recipe, controller: Path | None) -> Callable[[Sequence[int]], list[Episode]]:
    if recipe.kind != "play":
        return Maze(recipe, controller).episodes
    from vinerl.collect.play import Play  # and with it dm_control, which mazes do without

    play = Play(recipe)
    return lambda numbers: [play.episode(number) for number in numbers]


def main(recipe: str, controller: str | None = None) -> None:
    make = maker(Recipe(**json.loads(recipe)), Path(controller) if controller else None)

    def answer(request, _):
        episodes = make(request["numbers"])
        names = list(episodes[0][0])
        arrays = [arrays[name] for arrays, _ in episodes for name in names]
        return {"names": names, "facts": [facts for _, facts in episodes]}, arrays

    serve(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
