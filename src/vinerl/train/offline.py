"""Offline training: one compiled block for a whole stack.

agent_of = stack.maker(make, cfg, spec)  # from a member to its agent
runs = offline.start(agent_of, stack.members(cfg, seeds=(0, 1, 2)))
block = offline.train_block(agent_of)
runs, metrics = block(runs, data, 1000)

Logging, evaluation and checkpoints happen between blocks. The length of a block is an argument,
so choosing it compiles nothing; a run keeps to one length, and a resumed one repeats itself.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vinerl.data.fold import Transitions, fold
from vinerl.rl import learner
from vinerl.rl.learner import Agent, State
from vinerl.train.stack import AgentOf, Member, keys
from vinerl.types import Array, Batch, Key, Metrics

STATUS = ("learning", "not finite", "no gradient")
COUNTED = "batch/weight"  # of a step: the share of its rows that count, for `freeze` alone


class Stack(NamedTuple):
    """Runs side by side, between two blocks; every leaf is [S, ...]."""

    member: Member
    state: State  # after the last good block
    status: Array  # index into STATUS; a member that is not learning stays at its state.step


Block = Callable[[Stack, Any, int], tuple[Stack, Metrics]]  # with Transitions, as a rule
Draw = Callable[[Agent, Any, Key], Batch]  # a minibatch of what a member learns from


def start(agent_of: AgentOf, members: Member) -> Stack:
    def one(member):
        state = learner.init(agent_of(member), keys(member).init)
        return Stack(member, state, jnp.zeros((), jnp.int32))

    return jax.jit(jax.vmap(one))(members)


def draw(agent: Agent, data: Transitions, key: Key) -> Batch:
    """A minibatch from anywhere in the data."""
    cfg = agent.config
    starts = jax.random.randint(key, (cfg.batch_size,), 0, data.count - cfg.horizon + 1)
    return fold(data, starts, cfg.horizon, cfg.discount, cfg.chunk)


def train_step(
    agent: Agent, data: Any, key: Key, state: State, draw: Draw = draw
) -> tuple[State, Metrics]:
    """Randomness depends on `key` and `state.step` alone, so a checkpoint holds no key."""
    key_batch, key_update = jax.random.split(jax.random.fold_in(key, state.step))
    # Behind a barrier it is gathered once, and not again wherever it is used.
    batch = jax.lax.optimization_barrier(draw(agent, data, key_batch))
    state, metrics = learner.update(agent, state, batch, key_update)
    return state, metrics | {COUNTED: batch.weight.mean()}


def train_block(agent_of: AgentOf, draw: Draw = draw, axes: Any = None) -> Block:
    """`steps` updates of every member, and what was seen in them, [S].

    A metric is its mean over the block; one named ..._max is its largest value, and every gradient
    norm comes with that too. Each agent has a grad_norm/actor: where no network has that name, it
    is of those that act, together. `axes` says what of the data is each member's own, as in
    `jax.vmap`.
    """

    def one(stack, data, steps):
        agent = agent_of(stack.member)
        roles, key = acting_roles(agent), keys(stack.member).train

        def step(state):
            state, metrics = train_step(agent, data, key, state, draw)
            norms = jnp.array([metrics[f"grad_norm/{role}"] for role in roles])
            return state, ({"grad_norm/actor": jnp.linalg.norm(norms)} if roles else {}) | metrics

        def body(_, carry):
            state, seen = carry
            state, metrics = step(state)
            return state, {name: merge(name, seen[name], m) for name, m in largest(metrics)}

        _, shapes = jax.eval_shape(step, stack.state)
        zero = {name: blank(name) for name, _ in largest(shapes)}
        state, seen = jax.lax.fori_loop(0, steps, body, (stack.state, zero))
        seen = {n: m if n.endswith("_max") else m / steps for n, m in seen.items()}
        counted = seen.pop(COUNTED) > 0
        return freeze(agent, stack, state, seen, counted), seen

    def largest(metrics):
        yield from metrics.items()
        norms = [name for name in metrics if name.startswith("grad_norm/")]
        yield from ((f"{name}_max", metrics[name]) for name in norms)

    def blank(name):
        return jnp.float32(-jnp.inf if name.endswith("_max") else 0.0)

    def merge(name, seen, metric):
        return jnp.maximum(seen, metric) if name.endswith("_max") else seen + metric

    mapped = jax.vmap(one, in_axes=(0, axes, None))
    return jax.jit(mapped, donate_argnums=0, compiler_options=compiler_options())


def compiler_options() -> dict[str, Any] | None:
    """On a GPU, kernels that do not wait for one another run at once: a fifth less time a step.

    Products that share weights are left apart: kernels of our own need them so, and to cut them
    out of a merged one takes longer than it saves. On a CPU, the library that JAX 0.10 multiplies
    with takes twice the time for stacks, so XLA's own products are used; 0.11 has a better one.
    """
    if jax.default_backend() == "gpu":
        return {
            "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
            "xla_gpu_dot_merger_threshold_mb": 0,
        }
    if jax.default_backend() == "cpu" and jax.__version_info__ < (0, 11):
        return {"xla_cpu_experimental_ynn_fusion_type": ""}
    return None


def freeze(agent: Agent, stack: Stack, state: State, seen: Metrics, counted: Array) -> Stack:
    """One member after a block: the new state or, once it has gone bad, the last good one.

    No gradient tells nothing in a block so short that the actor was not to move in it, or none of
    whose rows `counted`, since every chunk crosses an episode's end.
    """
    telling = [m for n, m in seen.items() if n.startswith("grad_norm/") or n.endswith("/loss")]
    finite = jnp.stack([jnp.isfinite(x).all() for x in jax.tree.leaves((state, telling))]).all()
    norms = [seen[f"grad_norm/{role}_max"] for role in acting_roles(agent)]
    still = jnp.stack([jnp.zeros((), bool), *(norm == 0 for norm in norms)]).any()
    due = state.step // agent.actor_every > stack.state.step // agent.actor_every
    now = jnp.where(finite, jnp.where(still & due & counted, 2, 0), 1)
    status = jnp.where(stack.status == 0, now, stack.status)
    state = jax.tree.map(lambda new, old: jnp.where(status == 0, new, old), state, stack.state)
    return Stack(stack.member, state, status)


def acting_roles(agent: Agent) -> list[str]:
    """The networks that make actions: what `policy` returns, critics apart."""
    policy = jax.eval_shape(lambda key: agent.policy(learner.init(agent, key)), jax.random.key(0))
    return [role for role in policy if role in agent.networks and role != "critic"]


def diagnose(agent_of: AgentOf) -> Callable[[Stack, Transitions], Metrics]:
    """Every member's costly metrics on one batch of its own, [S, ...]; for now and then."""

    def one(stack, data):
        agent, key = agent_of(stack.member), keys(stack.member).diagnose
        key_batch, key_noise = jax.random.split(jax.random.fold_in(key, stack.state.step))
        with learner.exactly(agent.config):
            return agent.diagnose(stack.state, draw(agent, data, key_batch), key_noise)

    return jax.jit(jax.vmap(one, in_axes=(0, None)))
