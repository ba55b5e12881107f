"""The official recipes, as the benchmark's generation commands have them."""

import pytest

from vinerl.collect import recipes
from vinerl.envs import ogbench
from vinerl.errors import InputError


@pytest.mark.parametrize(
    ("name", "episodes", "rows", "noise"),
    [
        ("pointmaze-medium-navigate", 1000, 1001, 0.5),
        ("pointmaze-giant-navigate", 500, 2001, 0.5),
        ("pointmaze-large-stitch", 5000, 201, 0.5),
        ("antmaze-large-navigate", 1000, 1001, 0.2),
        ("antmaze-giant-navigate", 500, 2001, 0.2),
        ("antmaze-medium-stitch", 5000, 201, 0.2),
        ("antmaze-large-explore", 10000, 501, 1.0),
        ("humanoidmaze-medium-navigate", 1000, 2001, 0.2),
        ("humanoidmaze-large-stitch", 5000, 401, 0.2),
        ("humanoidmaze-giant-navigate", 1000, 4001, 0.2),
        ("humanoidmaze-giant-stitch", 10000, 401, 0.2),
        ("cube-double-play", 1000, 1001, 0.1),
        ("cube-triple-play", 3000, 1001, 0.1),
        ("cube-quadruple-play", 5000, 1001, 0.1),
        ("scene-play", 1000, 1001, 0.1),
        ("puzzle-3x3-play", 1000, 1001, 0.1),
        ("puzzle-4x4-play", 1000, 1001, 0.1),
        ("puzzle-4x5-play", 3000, 1001, 0.1),
        ("puzzle-4x6-play", 5000, 1001, 0.1),
    ],
)
def test_sizes_and_noise(name, episodes, rows, noise):
    recipe = recipes.official(f"{name}-v0")
    assert (recipe.episodes, recipe.rows, recipe.noise) == (episodes, rows, noise)
    assert recipe.validation == episodes // 10
    assert recipe.env == f"{name.rpartition('-')[0]}-v0"
    assert recipe.kind == name.rpartition("-")[2]


def test_every_recipe_is_a_dataset_of_the_benchmark():
    assert set(recipes.OFFICIAL) <= set(ogbench.DATASETS)


def test_who_needs_a_controller():
    needed = {r.robot for n, r in recipes.OFFICIAL.items() if n.startswith(("ant", "human"))}
    assert needed == {"ant", "humanoid"}
    others = [r for n, r in recipes.OFFICIAL.items() if not n.startswith(("ant", "human"))]
    assert {r.robot for r in others} == {None}


def test_a_dataset_without_a_recipe_is_refused_with_those_there_are():
    with pytest.raises(
        InputError, match=r"no recipe for 'antmaze-teleport-navigate-v0'(.|\n)*scene"
    ):
        recipes.official("antmaze-teleport-navigate-v0")


def test_cost_grows_with_rows_and_shrinks_with_cores():
    recipe = recipes.official("antmaze-large-navigate-v0")
    seconds, size = recipes.cost(recipe, 2)
    rows = 1100 * 1001
    assert seconds == rows / recipes.COSTS["antmaze"].rate / 2
    assert size == rows * recipes.COSTS["antmaze"].bytes
