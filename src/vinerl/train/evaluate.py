"""Rollouts of policies in real environments, all members of a stack in one call.

An episode is named by its evaluation and its number, which fix its start (the same for all members,
so that they can be compared), and by its member's seed, which with these fixes every noise. So it
is the same episode on any number of workers and in any company.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from vinerl.envs.pool import Pool, Report
from vinerl.train.offline import Stack
from vinerl.train.stack import AgentOf, Member, keys
from vinerl.types import Array, Obs, Params

# (obs [S, N, ...], episode [S, N], time [S, N]) -> actions [S, N, A]
Act = Callable[[Obs, np.ndarray, np.ndarray], Array]


def policies(agent_of: AgentOf) -> Callable[[Stack], Params]:
    """What acting needs of every member, [S, ...]: a fraction of the state, kept and sent alone."""
    policy = lambda member, state: agent_of(member).policy(state)
    return jax.jit(lambda stack: jax.vmap(policy)(stack.member, stack.state))


def acting(agent_of: AgentOf) -> Callable[[Member, Params, Array, Obs, Array, Array], Array]:
    """One compiled call for all members and their N observations each.

    The noise of an action depends on the member's seed, the evaluation, the episode and the time.
    """

    def one(member, policy, evaluation, obs, episodes, times):
        agent = agent_of(member)
        key = jax.random.fold_in(keys(member).evaluate, evaluation)

        def row(obs, episode, time):
            key_time = jax.random.fold_in(jax.random.fold_in(key, episode), time)
            return agent.act(policy, jax.tree.map(lambda x: x[None], obs), key_time)[0]

        return jax.vmap(row)(obs, episodes, times)

    return jax.jit(jax.vmap(one, in_axes=(0, 0, None, 0, 0, 0)))


def start_seeds(evaluation: int, episodes: int) -> list[int]:
    """Environment seeds: the same for all members, others at every evaluation."""
    draw = lambda i: np.random.SeedSequence([evaluation, i]).generate_state(1)[0]
    return [int(draw(i)) for i in range(episodes)]


def rollouts(
    act: Act,
    pool: Pool,
    members: int,
    seeds: Sequence[int],
    horizon: int,
    tree: Any,
    see: Callable[[Obs], Obs] = lambda obs: obs,
) -> list[list[Report]]:
    """One episode from every seed for each member; `tree` is the structure of an observation.

    horizon  steps in an action chunk, executed open loop before the policy is asked again
    see      from observations of the environment to those of the policy
    """
    lanes = pool.slots // members  # environments of one member; an episode stays in its lane
    queues = [list(range(len(seeds))) for _ in range(members)]
    reports: list[dict[int, Report]] = [{} for _ in range(members)]
    episode = np.zeros((members, lanes), np.int32)
    time = np.zeros((members, lanes), np.int32)
    busy = np.zeros((members, lanes), bool)
    obs: list[np.ndarray] = []
    structure = jax.tree.structure(tree)

    while True:
        idle = []
        for m, n in np.argwhere(~busy).tolist():
            if queues[m]:
                episode[m, n], time[m, n], busy[m, n] = queues[m].pop(0), 0, True
                idle.append((m, n))
        if not busy.any():
            return [[done[i] for i in sorted(done)] for done in reports]
        if idle:
            slots = [m * lanes + n for m, n in idle]
            first = pool.reset(slots, [seeds[int(episode[place])] for place in idle])
            if not obs:
                shape = lambda x: (members, lanes, *x.shape[1:])
                obs = [np.zeros(shape(x), x.dtype) for x in first]
            _put(obs, idle, first)

        seen = jax.tree.unflatten(structure, obs)
        actions = np.asarray(act(see(seen), episode, time))
        chunks = actions.reshape(members * lanes, horizon, -1)
        going = np.flatnonzero(busy.ravel()).tolist()
        after, over = pool.step(going, chunks[going])
        _put(obs, [divmod(slot, lanes) for slot in going], after)
        time += busy
        for slot, report in over.items():
            m, n = divmod(slot, lanes)
            reports[m][int(episode[m, n])] = report
            busy[m, n] = False


def _put(obs: list[np.ndarray], places: Sequence[Sequence[int]], rows: list[np.ndarray]) -> None:
    m, n = np.transpose(places)
    for all_of_them, some in zip(obs, rows, strict=True):
        all_of_them[m, n] = some
