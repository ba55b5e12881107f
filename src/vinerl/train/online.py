"""Learning on in the environment, after a dataset.

Every member acts in an environment of its own and learns from what it did there and from the
dataset, which all share. Rounds alternate: some environment steps with the policy as it is, then
the updates that belong to them. `Online` is such a round as a block of training.

Of every own step both observations are kept, side by side, so an end needs no row of its own:

transition |  0    1    2  |  3    4        row + 1 is the next observation, as in a dataset
row        |  0    2    4  |  6    8
terminal   |  0    0    1  |  0    0        ends by the task have mask 0, a time limit keeps 1
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vinerl.data.fold import Transitions, fold
from vinerl.envs.live import Live
from vinerl.errors import InputError
from vinerl.rl.learner import Agent
from vinerl.train import evaluate, groups, offline
from vinerl.train.groups import Groups
from vinerl.train.offline import Stack
from vinerl.train.stack import AgentOf, Member
from vinerl.types import Array, Batch, Key, Metrics, Obs, Params, Spec

COLUMNS = ("row", "action", "reward", "mask", "terminal")  # with an entry a step
NOISES = 2**31 - 1  # the stream of acting here; an evaluation's is its step


class Mixed(NamedTuple):
    """What a member draws from."""

    data: Transitions  # the dataset, shared
    own: Transitions  # what it did itself; [S, ...] in a stack


AXES = Mixed(None, 0)  # pyright: ignore[reportArgumentType]


def draw(agent: Agent, mixed: Mixed, key: Key) -> Batch:
    """A minibatch from anywhere in both, every start as likely as any other."""
    old, new = (windows(part, agent.config.horizon) for part in mixed)
    place = jax.random.randint(key, (agent.config.batch_size,), 0, old + new)
    return _batch(agent, mixed, place >= old, jnp.where(place < old, place, 0), place - old)


def draw_balanced(agent: Agent, mixed: Mixed, key: Key) -> Batch:
    """Half a minibatch from each, as soon as there is anything own to draw."""
    size = agent.config.batch_size
    old, new = (windows(part, agent.config.horizon) for part in mixed)
    keys = jax.random.split(key)
    starts = [
        jax.random.randint(key, (size,), 0, jnp.maximum(count, 1))
        for key, count in zip(keys, (old, new), strict=True)
    ]
    return _batch(agent, mixed, (jnp.arange(size) < size // 2) & (new > 0), *starts)


def windows(data: Transitions, horizon: int) -> Array:
    """How many starts there are to draw from."""
    return jnp.maximum(data.count - horizon + 1, 0)


def _batch(agent: Agent, mixed: Mixed, is_own: Array, old: Array, new: Array) -> Batch:
    """Rows from `old` of the dataset or, where `is_own`, from `new` of a member's own steps."""
    cfg = agent.config
    given = fold(mixed.data, old, cfg.horizon, cfg.discount, cfg.chunk)
    done = fold(mixed.own, jnp.maximum(new, 0), cfg.horizon, cfg.discount, cfg.chunk)
    choose = jax.vmap(lambda own, x, y: jax.tree.map(partial(jnp.where, own), x, y))
    return choose(is_own, done, given)


def room(spec: Spec, members: int, capacity: int, action_dim: int) -> Transitions:
    """No steps yet and place for `capacity`, [S, ...], on the host."""
    zeros = lambda *shape: np.zeros((members, *shape), np.float32)
    obs = jax.tree.map(lambda x: np.zeros((members, 2 * capacity, *x.shape), x.dtype), spec.obs)
    row = np.tile(2 * np.arange(capacity, dtype=np.int32), (members, 1))
    ends = np.zeros((members, capacity), np.int32)
    flat = zeros(capacity), zeros(capacity), ends
    return Transitions(
        obs, row, zeros(capacity, action_dim), *flat, count=np.zeros(members, np.int32)
    )


def part(own: Transitions, begin: int, end: int) -> Transitions:
    """The steps from `begin` to `end` of every member."""
    obs = jax.tree.map(lambda x: x[:, 2 * begin : 2 * end], own.obs)
    columns = {name: getattr(own, name)[:, begin:end] for name in COLUMNS}
    return own._replace(obs=obs, **columns)


@partial(jax.jit, donate_argnums=0)
def put(own: Transitions, new: Transitions) -> Transitions:
    """`own` with the steps of `new` after those that it has."""
    at = own.count[0]
    write = lambda at, x, y: jax.lax.dynamic_update_slice_in_dim(x, y, at, axis=1)
    obs = jax.tree.map(partial(write, 2 * at), own.obs, new.obs)
    columns = {name: write(at, getattr(own, name), getattr(new, name)) for name in COLUMNS}
    return Transitions(obs, **columns, count=own.count + new.row.shape[1])


def start_seed(seed: int, episode: int) -> int:
    """Of a member's environment: its own in every episode, and none of an evaluation's."""
    return int(np.random.SeedSequence([seed, episode, 1]).generate_state(1)[0])


def blank(spec: Spec, members: int, horizon: int, capacity: int) -> Params:
    """What `Online` saves, with nothing in it: steps, and what is left of each action chunk."""
    wide = spec.action_dim // horizon
    chunk = np.zeros((members, horizon, wide), np.float32)
    steps = room(spec, members, capacity, wide)._asdict()
    return {"steps": steps, "chunk": chunk, "left": np.zeros(members, np.int32)}


class Online:
    """A block of training in which every member first takes `steps` steps in its environment.

    capacity  environment steps there will be
    horizon   steps in an action chunk, executed open loop; it ends with the episode
    utd       updates for each environment step; a round must have a whole number of them
    see       from observations of the environment to those of the policy, which are kept
    label     from rewards of the environment to those of the dataset
    among     groups in which the members learn
    """

    def __init__(
        self,
        agent_of: AgentOf,
        members: Member,
        spec: Spec,
        live: Live,
        *,
        capacity: int,
        horizon: int = 1,
        utd: Fraction = Fraction(1),
        balanced: bool = False,
        see: Callable[[Obs], Obs] = lambda obs: obs,
        label: Callable[[np.ndarray], np.ndarray] = lambda reward: reward,
        among: Groups | None = None,
    ):
        self.members, self.spec, self.live, self.utd = members, spec, live, utd
        self.horizon, self.see, self.label = horizon, see, label
        self.seeds = np.asarray(members.seed).tolist()
        self.policies, self.act = evaluate.policies(agent_of), evaluate.acting(agent_of)
        block = offline.train_block(agent_of, draw_balanced if balanced else draw, AXES)
        self.block = groups.in_turn(block, among, AXES)
        empty = blank(spec, len(self.seeds), horizon, capacity)
        self.chunk, self.left = empty["chunk"], empty["left"]
        self.rows = Transitions(**empty["steps"])
        self.own = jax.tree.map(jnp.array, self.rows)  # a copy on the device, to learn from
        self.obs = [x[:, 0] for x in self._leaves()]

    def __call__(self, stack: Stack, data: Transitions, steps: int) -> tuple[Stack, Metrics]:
        begin = self.count
        self.collect(self.policies(stack), steps)
        stack, seen = self.block(stack, Mixed(data, self.own), int(steps * self.utd))
        reward = self.rows.reward[:, begin : self.count].mean(axis=1)
        seen |= {"online/reward": jnp.array(reward)}
        return stack, seen | {"online/rows_max": self.own.count.astype(jnp.float32)}

    @property
    def count(self) -> int:
        """Environment steps so far."""
        return int(self.rows.count[0])

    def collect(self, policies: Params, steps: int) -> None:
        """`steps` steps of every member with these policies."""
        begin, everyone = self.count, range(len(self.seeds))
        if begin == 0:
            self._reset(everyone)
        for t in range(begin, begin + steps):
            action = self._action(policies, t)
            said = self.live.step(everyone, action)
            before, self.obs = self.obs, self._seen(said.obs)
            over = said.terminated | said.truncated
            for x, now, after in zip(self._leaves(), before, self.obs, strict=True):
                x[:, 2 * t], x[:, 2 * t + 1] = now, after
            self.rows.action[:, t], self.rows.reward[:, t] = action, self.label(said.reward)
            self.rows.mask[:, t], self.rows.terminal[:, t] = ~said.terminated, over
            self.rows.count[:] = t + 1
            if over.any():
                self._reset(np.flatnonzero(over).tolist())
        self.own = put(self.own, part(self.rows, begin, self.count))

    def _action(self, policies: Params, t: int) -> np.ndarray:
        """The next of each member's chunk, [S, A]; a new chunk where there is none left."""
        empty = self.left == 0
        if empty.any():
            obs = jax.tree.unflatten(jax.tree.structure(self.spec.obs), self.obs)
            lane = jax.tree.map(lambda x: x[:, None], obs)
            time = jnp.full((len(empty), 1), t)  # tells all actions apart, of any episode
            stream, episode = jnp.int32(NOISES), jnp.zeros_like(time)
            drawn = self.act(self.members, policies, stream, lane, episode, time)
            self.chunk[empty] = np.asarray(drawn).reshape(self.chunk.shape)[empty]
            self.left[empty] = self.horizon
        self.left -= 1
        chosen = self.chunk[np.arange(len(empty)), self.horizon - 1 - self.left]
        return np.nan_to_num(chosen, posinf=1.0, neginf=-1.0)  # of who has diverged: standing still

    def _reset(self, members: Sequence[int]) -> None:
        """New episodes; what is left of a chunk is not executed in them."""
        ended = self.rows.terminal[:, : self.count].sum(axis=1)
        seeds = [start_seed(self.seeds[m], int(ended[m])) for m in members]
        first = self._seen(self.live.reset(members, seeds))
        self.obs = [x.copy() for x in self.obs]
        for now, new in zip(self.obs, first, strict=True):
            now[list(members)] = new
        self.left[list(members)] = 0

    def _seen(self, leaves: list[np.ndarray]) -> list[np.ndarray]:
        tree = jax.tree.structure(self.spec.obs)
        cast = lambda x, like: np.asarray(x, like.dtype)
        raw = map(cast, leaves, jax.tree.leaves(self.spec.obs))
        return [np.asarray(x) for x in jax.tree.leaves(self.see(tree.unflatten(raw)))]

    def save(self) -> Params:
        """All that a resumed run cannot work out again."""
        kept = jax.tree.map(np.copy, part(self.rows, 0, self.count))
        return {"steps": kept._asdict(), "chunk": self.chunk.copy(), "left": self.left.copy()}

    def restore(self, saved: Params) -> None:
        """Go on from there; a simulator's state is its seed and the actions since the reset."""
        steps = Transitions(**saved["steps"])
        count = int(steps.count[0])
        for x, kept in zip(*map(jax.tree.leaves, (part(self.rows, 0, count), steps)), strict=True):
            x[...] = kept
        self.own = jax.tree.map(jnp.array, self.rows)
        self._reset(range(len(self.seeds)))
        self.chunk, self.left = saved["chunk"].copy(), saved["left"].copy()
        for m in range(len(self.seeds)):
            self._repeat(m)

    def _repeat(self, m: int) -> None:
        """The unfinished episode of a member once more, up to where it was."""
        ends = np.flatnonzero(self.rows.terminal[m, : self.count])
        begin = int(ends[-1]) + 1 if len(ends) else 0
        for t in range(begin, self.count):
            self._check(m, t, 2 * t)
            said = self.live.step([m], self.rows.action[m, t][None])
            for now, new in zip(self.obs, self._seen(said.obs), strict=True):
                now[m] = new[0]
            self._check(m, t, 2 * t + 1)

    def _leaves(self) -> list[np.ndarray]:
        """Of the observations that are kept, [S, 2 capacity, ...]."""
        return jax.tree.leaves(self.rows.obs)

    def _check(self, m: int, t: int, row: int) -> None:
        for now, kept in zip(self.obs, self._leaves(), strict=True):
            if not np.array_equal(now[m], kept[m, row], equal_nan=now.dtype.kind == "f"):
                raise InputError(
                    f"seed {self.seeds[m]}: its environment does not repeat environment step {t}, "
                    "so the unfinished episode cannot be taken up. Use the simulator and the "
                    "machine that this run began with, or begin it again."
                )
