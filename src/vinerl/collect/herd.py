"""Many ants on a plane, each told a direction: OGBench's online-ant-xy task, stepped together."""

from importlib.resources import files
from typing import Any, NamedTuple

import mujoco
import numpy as np
from mujoco import rollout

TURN = 100  # steps between two directions
LIMIT = 1000  # steps of an episode
SUBSTEPS = 5  # of the simulator, in a step
HEIGHT = 0.2, 1.0  # of a torso; an episode ends outside


class Seen(NamedTuple):
    """What a step showed, before those that had ended began anew."""

    obs: np.ndarray  # [N, D]
    reward: np.ndarray  # [N], metres along the direction
    ended: np.ndarray  # [N], fallen or thrown up


class Herd:
    """obs: [posture, velocities, direction]; the place is not in it."""

    def __init__(self, count: int, threads: int, seed: int, falls: bool = True):
        robot = files("ogbench") / "online_locomotion" / "assets" / "ant.xml"
        self.model = mujoco.MjModel.from_xml_path(str(robot))  # pyright: ignore[reportAttributeAccessIssue]
        self.draw, self.falls = np.random.default_rng(seed), falls
        threads = max(1, min(threads, count))
        self.pool = rollout.Rollout(nthread=threads)
        self.data = [mujoco.MjData(self.model) for _ in range(threads)]  # pyright: ignore[reportAttributeAccessIssue]
        self.state = self._starts(count)  # [N, 1 + nq + nv]: time, positions, velocities
        self.direction, self.age = self._directions(count), np.zeros(count, int)

    @property
    def obs(self) -> np.ndarray:
        return np.concatenate([self.state[:, 3:], self.direction], axis=1).astype(np.float32)

    @property
    def height(self) -> np.ndarray:
        return self.state[:, 3]

    def step(self, action: np.ndarray) -> Seen:
        """Actions [N, A] in [-1, 1]."""
        controls = np.repeat(action[:, None].astype(np.float64), SUBSTEPS, axis=1)
        states: Any
        states, _ = self.pool.rollout(self.model, self.data, self.state, controls)
        moved = states[:, -1, 1:3] - self.state[:, 1:3]
        self.state = np.ascontiguousarray(states[:, -1])
        reward = (moved * self.direction).sum(axis=1).astype(np.float32)
        ended = self.falls & ((self.height < HEIGHT[0]) | (self.height > HEIGHT[1]))
        self.age += 1
        turning = self.age % TURN == 0
        self.direction[turning] = self._directions(turning.sum())
        seen = Seen(self.obs, reward, ended)
        over = ended | (self.age >= LIMIT)
        self.state[over] = self._starts(over.sum())
        self.direction[over], self.age[over] = self._directions(over.sum()), 0
        return seen

    def _starts(self, count: int) -> np.ndarray:
        nq, nv = self.model.nq, self.model.nv
        places = self.model.qpos0 + self.draw.uniform(-0.1, 0.1, (count, nq))
        speeds = 0.1 * self.draw.normal(size=(count, nv))
        return np.concatenate([np.zeros((count, 1)), places, speeds], axis=1)

    def _directions(self, count: int) -> np.ndarray:
        z = self.draw.normal(size=(count, 2))
        return z / np.linalg.norm(z, axis=1, keepdims=True)
