"""What drives a robot through a maze: directions from the map, actions from a controller."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

Cell = tuple[int, int]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1))


class Guide:
    """Which way to go in a maze: the centre of the next cell on a shortest path to the goal."""

    def __init__(self, env: Any):
        self.env = env.unwrapped
        self.map = self.env.maze_map
        self.free: list[Cell] = [(int(i), int(j)) for i, j in np.argwhere(self.map == 0)]
        self.corners = [cell for cell in self.free if not self._corridor(*cell)]
        self.towards = {goal: self._next_cells(goal) for goal in self.free}

    def direction(self, xy: np.ndarray, goal_xy: np.ndarray) -> np.ndarray:
        """A unit vector; in the goal's cell, or cut off from it, to the centre of one's own."""
        here = self.env.xy_to_ij(xy)
        ahead = self.towards[self.env.xy_to_ij(goal_xy)].get(here, here)
        step = np.asarray(self.env.ij_to_xy(ahead)) - xy
        return step / (np.linalg.norm(step) + 1e-6)

    def _corridor(self, i: int, j: int) -> bool:
        """A cell between two opposite walls, open at both ends."""
        wall = self.map == 1
        across = wall[i, j - 1] and wall[i, j + 1] and not (wall[i - 1, j] or wall[i + 1, j])
        along = wall[i - 1, j] and wall[i + 1, j] and not (wall[i, j - 1] or wall[i, j + 1])
        return bool(across or along)

    def _next_cells(self, goal: Cell) -> dict[Cell, Cell]:
        """From every cell to its neighbour nearest to the goal, or itself at the goal."""
        far = {goal: 0}
        queue = deque([goal])
        while queue:
            i, j = queue.popleft()
            for near in ((i + di, j + dj) for di, dj in NEIGHBOURS):
                if self.map[near] == 0 and near not in far:
                    far[near] = far[(i, j)] + 1
                    queue.append(near)

        def ahead(cell: Cell) -> Cell:
            near = [(cell[0] + di, cell[1] + dj) for di, dj in NEIGHBOURS]
            return min([cell, *(n for n in near if n in far)], key=lambda n: far[n])

        return {cell: ahead(cell) for cell in far}


Controller = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (obs, direction) -> action


def point_controller(obs: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The point moves where it is told."""
    del obs
    return direction
