"""From a list of episodes to a file to train on.

python examples/own_data.py my.npz                   # writes it, from episodes made up here
vinerl data check my.npz                             # what is in it, and what is wrong
vinerl train --data my.npz --rescale-actions         # its actions are in newton, up to 5 either way

Afterwards vinerl.load("runs/vine-my")({"camera": image, "joints": joints}) is an action in newton.
"""

import sys
from typing import Any, NamedTuple

import numpy as np


class Episode(NamedTuple):
    """T steps. An observation may be one array instead of parts by name."""

    observations: dict[str, np.ndarray] | np.ndarray  # [T + 1, ...]: also the one after the last
    actions: np.ndarray  # [T, A]
    rewards: np.ndarray  # [T]
    terminated: bool  # by the task (solved, fallen over); False where time ran out


def pack(episodes: list[Episode]) -> dict[str, np.ndarray]:
    """One array for each key. T + 1 rows an episode: nothing is done in the last one."""
    after = lambda x, last: np.concatenate([x, np.full_like(x[:1], last)])
    columns: dict[str, list[Any]] = {}
    for episode in episodes:
        steps = len(episode.actions)
        named = {
            "actions": after(episode.actions, 0),
            "rewards": after(episode.rewards, 0),
            "terminals": np.arange(steps + 1) == steps,
            "masks": np.arange(steps + 1) != (steps - 1 if episode.terminated else -1),
        }
        seen = episode.observations
        parts = seen if isinstance(seen, dict) else {"": seen}
        named |= {f"observations/{name}".rstrip("/"): x for name, x in parts.items()}
        for key, column in named.items():
            columns.setdefault(key, []).append(_small(column))
    return {key: np.concatenate(parts) for key, parts in columns.items()}


def _small(x: np.ndarray) -> np.ndarray:
    """Images are uint8 and stay so, all other numbers are float32."""
    return x if x.dtype == np.uint8 else x.astype(np.float32)


def made_up(draw: np.random.Generator) -> Episode:
    """A mass that is pushed towards 0, and a camera that sees it as a bright column."""
    steps = int(draw.integers(20, 40))
    pushes, states = np.zeros((steps, 1)), np.zeros((steps + 1, 2))
    states[0] = draw.uniform(-1, 1, 2)
    for t in range(steps):
        place, speed = states[t]
        pushes[t] = np.clip(-4 * place - 3 * speed + draw.normal(), -5, 5)
        states[t + 1] = place + 0.05 * speed, speed + 0.05 * pushes[t, 0]
    images = np.zeros((steps + 1, 16, 16, 3), np.uint8)
    columns = np.clip(8 + 6 * states[:, 0], 0, 15).astype(int)
    images[np.arange(steps + 1), :, columns] = 255
    solved = bool(abs(states[-1, 0]) < 0.05)
    seen = {"camera": images, "joints": states}
    return Episode(seen, pushes, -np.abs(states[1:, 0]), terminated=solved)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("give the file's name: python examples/own_data.py my.npz")
    draw = np.random.default_rng(0)
    np.savez(sys.argv[1], **pack([made_up(draw) for _ in range(50)]))
