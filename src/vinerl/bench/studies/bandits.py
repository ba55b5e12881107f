"""Bandits in the plane whose best action is known, each asking for one ability more.

one      data around the middle, the best action beside it: climb a value
five     five modes, one worth more than the next, all equally frequent: choose between modes
rarest   the same modes, the better the rarer: choose against the data
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from vinerl.bench.studies import pentagon
from vinerl.data.fold import Transitions, transitions
from vinerl.types import Array


class Bandit(NamedTuple):
    modes: np.ndarray  # [M, 2], of the data
    shares: np.ndarray  # [M], of each mode in them
    spread: float  # of the data around their mode
    peaks: np.ndarray  # [P, 2], of the value
    rewards: np.ndarray  # [P], the height of each
    width: float  # of the value around a peak


def _pentagon(*shares: float) -> Bandit:
    modes, rewards = pentagon.MODES, pentagon.REWARDS
    return Bandit(modes, np.array(shares), pentagon.SPREAD, modes, rewards, pentagon.WIDTH)


BANDITS = {
    "one": Bandit(np.zeros((1, 2)), np.ones(1), 0.2, np.array([[0.3, 0.0]]), np.ones(1), 0.3),
    "five": _pentagon(0.2, 0.2, 0.2, 0.2, 0.2),
    "rarest": _pentagon(0.04, 0.08, 0.16, 0.24, 0.48),
}


def value(bandit: Bandit, action: np.ndarray) -> np.ndarray:
    """A bump on every peak, [..., 2] -> [...]; the optimum is 1, at the first."""
    far = np.linalg.norm(np.asarray(action)[..., None, :] - bandit.peaks, axis=-1)
    return (bandit.rewards * np.exp(-(far**2) / (2 * bandit.width**2))).sum(axis=-1)


def actions(bandit: Bandit, count: int, seed: int = 0) -> np.ndarray:
    """Of the data, [count, 2]; the modes have exactly their shares, if these divide the count."""
    modes = np.repeat(bandit.modes, np.round(bandit.shares * count).astype(int), axis=0)
    noise = np.random.default_rng(seed).normal(size=modes.shape)
    return np.clip(modes + bandit.spread * noise, -1, 1).astype(np.float32)


def state(count: int) -> Array:
    """The one there is. At 0 a fresh critic would say exactly 0, which ReBRAC divides by."""
    return jnp.ones((count, 1))


def data(bandit: Bandit, count: int) -> Transitions:
    """Episodes of one step, in a state with nothing to see."""
    action = actions(bandit, count)
    over = np.ones(len(action))
    return transitions(state(2 * len(action)), action, value(bandit, action), 1 - over, over)


def behaviour(bandit: Bandit) -> float:
    """The mean value of the data, in closed form but for the clip."""
    wide = bandit.width**2 + bandit.spread**2
    far = np.linalg.norm(bandit.modes[:, None] - bandit.peaks, axis=-1)
    each = bandit.width**2 / wide * np.exp(-(far**2) / (2 * wide))
    return float(bandit.shares @ each @ bandit.rewards)


# What arithmetic says of ideal policies; SAMPLE actions stand for the data.

SAMPLE = 20_000


def tilted(bandit: Bandit, inv_temp: float, most: float = np.inf) -> float:
    """Of the data weighted by exp(inv_temp * advantage), a weight being at most `most`."""
    values = value(bandit, actions(bandit, SAMPLE))
    weights = np.minimum(np.exp(inv_temp * (values - values.mean())), most)
    return float(weights @ values / weights.sum())


def best_of(bandit: Bandit, draws: int) -> float:
    """Of the best of so many actions of the data."""
    values = np.sort(value(bandit, actions(bandit, SAMPLE)))
    below = np.arange(len(values) + 1) / len(values)
    return float(values @ np.diff(below**draws))


def point(bandit: Bandit, alpha: float) -> float:
    """Of the one action that is best when its squared error to the data costs alpha."""
    side = np.linspace(-1, 1, 401)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    cost = alpha * ((points - bandit.shares @ bandit.modes) ** 2).mean(axis=1)
    values = value(bandit, points)
    return float(values[np.argmin(cost - values)])
