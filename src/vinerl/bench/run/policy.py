"""A trained policy as a function of NumPy arrays."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from vinerl.bench.run import runs
from vinerl.bench.run.runs import Run, Trained
from vinerl.errors import InputError
from vinerl.train import stack


class Policy:
    """obs -> action: one observation or a batch, raw as the environment gives it.

    Actions are in [-1, 1] or, if the data's were rescaled, where the data's were. An agent that
    acts in chunks returns the chunk, [h, A], to be executed in order.
    """

    def __init__(self, trained: Trained, member: int):
        pick = lambda tree: jax.tree.map(lambda x: x[member], tree)
        self.subject, self.params = trained.subject, pick(trained.policies)
        chosen = pick(self.subject.members)
        agent = self.subject.agent_of()(chosen)
        self.key, self.calls = stack.keys(chosen).evaluate, 0
        self._act = jax.jit(agent.act)

    def __call__(self, obs: Any) -> np.ndarray:
        """Every call draws fresh noise; the same calls after loading give the same actions."""
        spec = self.subject.spec.obs
        obs = jax.tree.map(lambda s, x: np.asarray(x, s.dtype), spec, obs)
        shapes = jax.tree.map(lambda x, s: x.shape[x.ndim - len(s.shape) :] == s.shape, obs, spec)
        if not all(jax.tree.leaves(shapes)):
            found = jax.tree.map(lambda x: x.shape, obs)
            raise InputError(f"observation of shape {found}, the policy was trained on {spec}")
        single = jax.tree.leaves(obs)[0].ndim == len(jax.tree.leaves(spec)[0].shape)
        batch = jax.tree.map(lambda x: x[None], obs) if single else obs
        action = self._act(
            self.params, self.subject.see(batch), jax.random.fold_in(self.key, self.calls)
        )
        self.calls += 1
        chunk = self.subject.config.act_steps
        shape = (len(action), chunk, -1) if chunk > 1 else action.shape
        action = np.asarray(action).reshape(shape)
        return action[0] if single else action


def load(run: Any, member: int = 0, step: int | None = None) -> Policy:
    path = run.path if isinstance(run, Run) else Path(run)
    trained = runs.load(Run(path), step)
    count = len(trained.subject.members.seed)
    if not 0 <= member < count:
        raise InputError(f"{path} has members 0 to {count - 1}, not {member}")
    return Policy(trained, member)
