"""Small environments that workers import by name: "toy_envs:Echo"."""

import time

import gymnasium as gym
import numpy as np


class Echo(gym.Env):
    """Three to five steps, by the seed. What a report holds says what happened:

    rewards  the seed the episode was given
    path     the actions that were executed
    success  of a step: whether its action was to the right
    """

    action_space = gym.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        self.seed, self.time = seed, 0
        return self._obs(), {}

    def step(self, action):
        self.time += 1
        info = {"xy": action, "success": float(action[0] > 0)}
        return self._obs(), float(self.seed), False, self.time == 3 + self.seed % 3, info

    def _obs(self):
        return np.array([self.time, self.seed % 1000])


class Camera(gym.Env):
    """A step; the picture and the numbers are drawn from the seed, as `seen_first` draws them."""

    action_space = gym.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        print("a simulator may print what it likes")
        return seen_first(seed), {}

    def step(self, action):
        return seen_first(0), 0.0, True, False, {}


def seen_first(seed):
    draw = np.random.default_rng(seed)
    return {"state": draw.normal(size=2), "image": draw.integers(0, 256, (8, 8, 3), np.uint8)}


class Broken(Echo):
    """Fails at its second step."""

    def step(self, action):
        if self.time == 1:
            raise ValueError("the robot fell over")
        return super().step(action)


class Fallen(Echo):
    """Ends by itself at the first step and says nothing of success."""

    def step(self, action):
        obs, reward, *_ = super().step(action)
        return obs, reward, True, False, {}


class Quick(gym.Env):
    """A maze's observations and actions, over in four steps."""

    action_space = gym.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        self.at = np.random.default_rng(seed).normal(size=2)
        self.time = 0
        return self.at, {}

    def step(self, action):
        self.at, self.time = self.at + action, self.time + 1
        info = {"xy": self.at, "success": float(self.at.sum() > 0)}
        return self.at, -1.0, False, self.time == 4, info


class Stuck(Echo):
    """Never comes back from its first step."""

    def step(self, action):
        time.sleep(60)


class Teleporter(Echo):
    """Goes where NumPy's global generator says, as OGBench's teleport mazes do."""

    _teleport_info = ()

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"xy": np.random.uniform(size=2)}


class Exploding(Echo):
    """Its second observation is no number, and it claims success."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        bad = self.time == 2
        return obs * (np.nan if bad else 1), reward, terminated, truncated, {"success": 1.0}

    def _obs(self):
        return super()._obs().astype(np.float32)


class Unpaid(Echo):
    """Pays -3, -2, NaN; NaN at once with seed 0."""

    def step(self, action):
        obs, _, _, _, info = super().step(action)
        reward = [-3.0, -2.0, np.nan][self.time - 1] if self.seed else np.nan
        return obs.astype(np.float32), reward, False, False, info
