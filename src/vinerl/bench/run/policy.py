"""A trained policy as a function of NumPy arrays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from vinerl.bench.run import runs
from vinerl.bench.run.runs import Run, Trained
from vinerl.errors import InputError
from vinerl.train import stack
from vinerl.types import Array, Params

Weights = Literal["float32", "bfloat16"]


class Policy:
    """obs -> action: one observation or a batch, raw as the environment gives it.

    Actions are in [-1, 1] or, if the data's were rescaled, where the data's were. An agent that
    acts in chunks returns the chunk, [h, A], to be executed in order. The first observation of a
    shape is checked and waits for the compiler; all later ones go straight to the program.

    horizon  environment steps that the actions of one call are for: h, 1 without chunks
    """

    def __init__(
        self,
        trained: Trained,
        member: int,
        weights: Weights = "float32",
        seed: int = 0,
        **fixed: Any,
    ):
        pick = lambda tree: jax.tree.map(lambda x: x[member], tree)
        self.subject = trained.subject
        self.params = jax.device_put(_rounded(pick(trained.policies), weights))
        chosen = pick(self.subject.members)
        self.horizon = self.subject.config.act_steps
        self.key, self.calls = stack.keys(chosen, seed).evaluate, 0
        self._act = self.subject.agent_of(**fixed)(chosen).act
        self._leaves, self._tree = jax.tree.flatten(self.subject.spec.obs)
        self._programs: dict[tuple, Callable[..., Array]] = {}

    def __call__(self, obs: Any) -> np.ndarray:
        """Every call draws fresh noise; with one seed, the same calls give the same actions."""
        try:
            found = self._tree.flatten_up_to(obs)
            leaves = [_cast(x, s.dtype) for x, s in zip(found, self._leaves, strict=True)]
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            trained = f"the policy was trained on {self.subject.spec.obs}"
            raise InputError(f"an observation with other parts; {trained} ({error})") from error
        shapes = tuple(x.shape for x in leaves)
        if shapes not in self._programs:
            self._programs[shapes] = self._compile(leaves)
        action = self._programs[shapes](self.params, leaves, np.uint32(self.calls))
        self.calls += 1
        action = np.asarray(action)
        if not np.isfinite(action).all():
            raise InputError(
                "the policy's action is NaN or infinite: the observation is, too, or the training "
                "of this member diverged (vinerl list says which are frozen)"
            )
        return action

    def _compile(self, leaves: list[np.ndarray]) -> Callable[..., Array]:
        """(params, leaves, calls) -> action, for observations of these shapes."""
        found, known = ([x.shape for x in each] for each in (leaves, self._leaves))
        batches = {a[: max(len(a) - len(b), 0)] for a, b in zip(found, known, strict=True)}
        batch = batches.pop()
        if batches or len(batch) > 1 or found != [batch + shape for shape in known]:
            raise InputError(
                f"observation of shape {self._tree.unflatten(found)}, the policy was trained on "
                f"{self._tree.unflatten(known)}; a batch has one more axis in front, everywhere"
            )
        single = not batch

        def program(params, leaves, calls):
            obs = self._tree.unflatten(x[None] if single else x for x in leaves)
            key = jax.random.fold_in(self.key, calls)
            action = self._act(params, self.subject.see(obs), key)
            if self.horizon > 1:
                action = action.reshape(len(action), self.horizon, -1)
            return action[0] if single else action

        return jax.jit(program).lower(self.params, leaves, np.uint32(0)).compile()


def load(
    run: Any,
    member: int = 0,
    step: int | None = None,
    weights: Weights = "float32",
    seed: int = 0,
    agent: str | None = None,
    **asked: Any,
) -> Policy:
    """`asked` are noise, stop_at and best_of, where they are to be others than the run's."""
    run = run if isinstance(run, Run) else Run(Path(run))
    if weights not in get_args(Weights):
        raise InputError(f"weights={weights!r}: one of {', '.join(get_args(Weights))}")
    if not 0 <= seed < 2**32:
        raise InputError(f"seed={seed}: expected a number from 0 to 2**32-1")
    trained = runs.load(run, step, agent)
    count = len(trained.subject.members.seed)
    if not 0 <= member < count:
        raise InputError(f"{run.path} has members 0 to {count - 1}, not {member}")
    trained, fixed = runs.otherwise(run, trained, **asked)
    return Policy(trained, member, weights, seed, **fixed)


def _cast(x: Any, dtype: np.dtype) -> np.ndarray:
    """A picture is taken as bytes alone: of floats from 0 to 1 a cast would make black."""
    found = np.asarray(x)
    if dtype == np.uint8 and found.dtype != np.uint8:
        whole = found.dtype.kind in "iu"
        if not whole or found.min(initial=0) < 0 or found.max(initial=0) > 255:
            raise InputError(
                f"a part of the observation is {found.dtype}{', outside of 0 to 255' * whole}, "
                "where the policy was trained on uint8: give the picture as it is in the data"
            )
    return found.astype(dtype, copy=False)


def _rounded(params: Params, weights: Weights) -> Params:
    """With kernels of that type; biases and the arithmetic stay as they were trained."""
    dtype = jnp.dtype(weights)
    cast = lambda path, x: x.astype(dtype) if path[-1].key == "kernel" else x
    return jax.tree_util.tree_map_with_path(cast, params)
