"""What an algorithm is, and the one gradient step they all share."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import isinf
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from vinerl import kernels
from vinerl.types import Array, Batch, Key, Metrics, Obs, Params, Spec


@dataclass(frozen=True)
class AgentConfig:
    """Hyperparameters every algorithm has.

    A `float` field can be stacked: it may reach an agent as a traced value, so it is computed
    with and never branched on. Every other field is static. Runs and results outlive a version:
    the default of a new field is what was done before there was one.
    """

    lr: float = 3e-4  # Adam's step size
    lr_end: float = 1.0  # share of lr that is left after lr_steps, reached linearly
    lr_steps: int = 1_000_000  # gradient steps until then
    batch_size: int = 256  # transitions in a gradient step
    discount: float = 0.99  # gamma, per environment step
    tau: float = 0.005  # share of the weights that target networks take over a step
    horizon: int = 1  # h, environment steps in one transition
    chunk: bool = True  # act h steps at once; otherwise an n-step return
    actor_hidden: tuple[int, ...] = (512,) * 4  # widths of the actor's layers
    critic_hidden: tuple[int, ...] = (512,) * 4  # widths of the critic's layers
    critics: int = 10  # critics in the ensemble
    critic: Literal["mlp", "residual"] = "mlp"  # a plain stack of layers, or branches
    critic_blocks: int = 2  # residual: branches, each of the critic_hidden layers
    critic_layout: Literal["branches", "pre-norm"] = "branches"  # residual: readings of the paper
    target: Literal["std", "min"] = "std"  # of the critics: mean less rho std, or minimum
    rho: float = 0.5  # target std: how many standard deviations below the mean
    target_every: int = 1  # gradient steps between target updates
    best_of: int = 1  # actions drawn to act, of which the critics choose one
    max_grad_norm: float = float("inf")  # clip to it, over all networks together
    # Weights are float32. A GPU multiplies float32 as TF32, unless it is asked for in full.
    precision: Literal["float32", "bfloat16", "full-float32"] = "float32"  # of hidden layers
    fused: bool | None = None  # learn with kernels of our own, in bfloat16; None: on a single GPU

    @property
    def dtype(self) -> Any:
        return jnp.dtype(self.precision.removeprefix("full-"))

    @property
    def act_steps(self) -> int:
        """Environment steps that one action stands for."""
        return self.horizon if self.chunk else 1


SMALL = 2**16  # numbers of a parameter that may be read twice


class State(NamedTuple):
    """Everything that changes during training; parameters are by role."""

    params: Params
    targets: Params
    optimizer: optax.OptState
    step: Array


class Agent(NamedTuple):
    """An algorithm: its networks, what it minimises and how it acts.

    networks: role -> (module, example inputs without batch axis)
    targets:  roles that keep a slow copy in `State.targets`
    loss:     (params, state, batch, key) -> (scalar, metrics); differentiated in `params`
              alone, so `state.params` are the same values held constant
    policy:   state -> the parameters that acting needs, by role; a role that is also one of
              `networks` and no critic makes actions, and must keep getting gradient
    act:      (policy, obs [B, ...], key) -> action [B, A] in [-1, 1]
    diagnose: (state, batch, key) -> metrics that cost too much for every step
    """

    config: AgentConfig
    networks: Mapping[str, tuple[nn.Module, tuple]]
    targets: tuple[str, ...]
    loss: Callable[[Params, State, Batch, Key], tuple[Array, Metrics]]
    policy: Callable[[State], Params]
    act: Callable[[Params, Obs, Key], Array]
    diagnose: Callable[[State, Batch, Key], Metrics] = lambda state, batch, key: {}
    actor_every: int = 1  # steps between those in which what makes actions is to get gradient


Make = Callable[[Any, Spec], Agent]  # from a config and what the data look like to an agent


def optimizer(config: AgentConfig) -> optax.GradientTransformation:
    """Adam up to its step size, which depends on the step.

    Clipping waits for the gradients of all networks, so without a limit there is none.
    """
    limit = config.max_grad_norm
    unlimited = isinstance(limit, float) and isinf(limit)  # no float of a member: a number here
    clip = optax.identity() if unlimited else optax.clip_by_global_norm(limit)
    return optax.chain(clip, optax.scale_by_adam())


def learning_rate(config: AgentConfig, step: Array) -> Array:
    done = jnp.minimum(step / config.lr_steps, 1.0)
    return config.lr * (1 - (1 - config.lr_end) * done)


def init(agent: Agent, key: Key) -> State:
    keys = jax.random.split(key, len(agent.networks))
    examples = lambda inputs: jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), inputs)
    params = {
        name: module.init(k, *examples(inputs))
        for k, (name, (module, inputs)) in zip(keys, agent.networks.items(), strict=True)
    }
    targets = jax.tree.map(jnp.copy, {name: params[name] for name in agent.targets})
    return State(params, targets, optimizer(agent.config).init(params), jnp.zeros((), jnp.int32))


def exactly(config: AgentConfig) -> AbstractContextManager[Any]:
    """While tracing: products, those of a backward pass too, as precise as asked for."""
    full = config.precision == "full-float32"
    return jax.default_matmul_precision("float32") if full else nullcontext()


def gradient(agent: Agent, state: State, batch: Batch, key: Key) -> tuple[Params, Metrics]:
    """Of the loss, by role."""
    with exactly(agent.config), kernels.chosen(agent.config.fused):
        return jax.grad(agent.loss, has_aux=True)(apart(state.params), state, batch, key)


def apart(params: Params) -> Params:
    """The same values, small ones of which a GPU's compiler takes for others.

    Where biases or last layers are both learned and held constant, it would make one kernel of what
    either use needs of them, and the two passes would wait for each other.
    """
    if jax.default_backend() != "gpu":
        return params
    small = lambda x: jax.lax.optimization_barrier(x) if x.size < SMALL else x
    return jax.tree.map(small, params)


def update(agent: Agent, state: State, batch: Batch, key: Key) -> tuple[State, Metrics]:
    cfg = agent.config
    grads, metrics = gradient(agent, state, batch, key)
    updates, opt_state = optimizer(cfg).update(grads, state.optimizer, state.params)
    lr = learning_rate(cfg, state.step)
    params = jax.tree.map(lambda p, u: p - lr * u, state.params, updates)
    # Targets mix in the weights from before this step, as the published baselines do.
    online = {name: state.params[name] for name in agent.targets}
    due = (state.step + 1) % cfg.target_every == 0
    targets = optax.incremental_update(online, state.targets, cfg.tau * due)
    norms = {f"grad_norm/{name}": optax.tree.norm(g) for name, g in grads.items()}
    return State(params, targets, opt_state, state.step + 1), metrics | norms
