"""Controllers that were never trained: any motion will do."""

import numpy as np
import pytest

from vinerl.collect import controllers


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """From a robot to the file of its controller."""
    folder, draw, paths = tmp_path_factory.mktemp("controllers"), np.random.default_rng(0), {}
    for robot, (seen, actions) in controllers.SIZES.items():
        weights = {}
        for layer, shape in {"0": (seen, 16), "1": (16, 16), "mean": (16, actions)}.items():
            weights[f"{layer}.w"] = draw.normal(0, 0.5, shape).astype(np.float32)
            weights[f"{layer}.b"] = draw.normal(0, 0.1, shape[1]).astype(np.float32)
        paths[robot] = folder / f"{robot}.safetensors"
        controllers.save(paths[robot], weights, robot)
    return paths
