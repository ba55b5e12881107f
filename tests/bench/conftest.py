"""Data that several of these tests train on."""

from dataclasses import replace

import pytest

from vinerl.collect import make, recipes


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three short episodes of the default task."""
    folder = tmp_path_factory.mktemp("data")
    recipe = replace(recipes.official("pointmaze-medium-navigate-v0"), episodes=3, rows=101)
    make.make(recipe, folder, processes=2)
    return folder
