"""An environment to learn in that workers import by name: "live_envs:Sum"."""

import gymnasium as gym
import numpy as np


class Sum(gym.Env):
    """Adds up what it is told; over after three steps by the task, or after five by the clock.

    obs  seed % 100, time, the sum of all actions; reward -1, or 0 in the step that solves the task
    """

    action_space = gym.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        self.seed, self.time, self.sum = seed, 0, 0.0
        return self._obs(), {}

    def step(self, action):
        self.time, self.sum = self.time + 1, self.sum + float(action.sum())
        solved = solves(self.seed) and self.time == 3
        return self._obs(), float(solved) - 1, solved, self.time == 5, {}

    def _obs(self):
        return np.array([self.seed % 100, self.time, self.sum])


def solves(seed):
    return seed % 2 == 1


class Drift(Sum):
    """Is elsewhere every time it is made."""

    made = 0

    def __init__(self):
        type(self).made += 1

    def _obs(self):
        return super()._obs() + self.made * (self.time > 0)
