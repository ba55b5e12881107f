"""How far the gradients of VINE's update are from float32's, layer by layer: |g - g32| / |g32|.

python -m benchmarks precision --train-steps 2000 --plot precision.png
python -m benchmarks precision --task TASK --data FILE --set precision=bfloat16 --set fused=true
python -m benchmarks precision --small --batches 10        a rehearsal on a CPU

The reference multiplies float32 in full. Beside it stand bfloat16 as XLA has it, TF32 (what JAX
makes of float32 on a GPU; on a CPU it is the reference) and one with the fields that --set names.
All have the same weights, batches and keys: medians over batches, and the worst of them. `size` is
|g32|.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import lines, material
from vinerl.bench.run import running, tasks
from vinerl.data.fold import Transitions
from vinerl.errors import InputError
from vinerl.rl import learner
from vinerl.rl.learner import Agent, State
from vinerl.train import metrics, offline
from vinerl.types import Array, Batch, Key, Params

REFERENCE = {"precision": "full-float32"}
VARIANTS = {"bfloat16": {"precision": "bfloat16", "fused": False}}
VARIANTS |= {"tf32": {"precision": "float32"}}
COLUMNS = ("weights", "variant", "actor", "actor_worst", "critic", "critic_worst", "worst_layer")

Batches = Sequence[tuple[Batch, Key]]  # with the key of an update
Gradients = Callable[[State, Batch, Key], dict[str, Params]]


def main(args: list[str]) -> None:
    given = options().parse_args(args)
    data = jax.device_put(data_of(given))
    fields = VARIANTS | ({" ".join(given.set): material.settings(given.set)} if given.set else {})
    made = lambda fields: agent(given, REFERENCE | fields, data)
    reference, others = made({}), {name: made(of) for name, of in fields.items()}
    for name, other in others.items():
        if shapes(other) != shapes(reference):
            raise InputError(f"--set {name}: its weights are not those of the reference")
    said = lines.Lines("precision", given)
    exact, rough = gradients(reference), {name: gradients(of) for name, of in others.items()}
    batches = drawn(reference, data, given.batches)
    for steps in dict.fromkeys([0, given.train_steps]):
        state = trained(reference, data, steps)
        weights = f"after {steps} steps" if steps else "fresh"
        for name, grads in rough.items():
            work = partial(compare, exact, grads, state, batches)
            said.case({"weights": weights, "variant": name}, work)
    said.show(COLUMNS)
    rows = [row for row in said.rows if "layers" in row]
    if given.plot and rows:
        print(draw(rows, given.plot, given.batches), file=sys.stderr)


def options() -> argparse.ArgumentParser:
    parser = lines.parser("precision", __doc__)
    parser.add_argument("--task", default=material.TASK, help="whose values, and whose rewards")
    parser.add_argument("--data", type=Path, help="of the task (else random, of antmaze sizes)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a field of a variant"
    )
    parser.add_argument("--train-steps", type=int, default=0, help="look again after so many")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--small", action="store_true", help="tiny networks, little data")
    parser.add_argument("--plot", type=Path, help="a picture of it, too")
    return parser


def data_of(given: argparse.Namespace) -> Transitions:
    if given.data:
        arrays, _ = tasks.read(given.data, drop_bad_rows=False)
        return tasks.load(arrays, given.data, tasks.named(given.task), box=None)
    rows = material.SMALL_ROWS if given.small else material.ROWS
    return material.random_data(rows, material.OBS, material.ACTION)


def agent(given: argparse.Namespace, fields: dict[str, Any], data: Transitions) -> Agent:
    config, make = material.agent("vine", fields, given.small, given.task)
    return make(config, running.spec_of(data, config))


def shapes(agent: Agent) -> State:
    return jax.eval_shape(lambda key: learner.init(agent, key), jax.random.key(0))


def trained(agent: Agent, data: Transitions, steps: int) -> State:
    """After so many of its own updates."""
    key_init, key_train = jax.random.split(jax.random.key(0))

    @jax.jit
    def train(data):
        step = lambda _, state: offline.train_step(agent, data, key_train, state)[0]
        return jax.lax.fori_loop(0, steps, step, learner.init(agent, key_init))

    state = train(data)
    if not jnp.isfinite(optax.tree.norm(state.params)):
        raise InputError(f"--train-steps {steps}: by then the weights are not finite; take fewer")
    return state


def drawn(agent: Agent, data: Transitions, count: int) -> Batches:
    draw = jax.jit(lambda data, key: offline.draw(agent, data, key))
    keys = jax.random.split(jax.random.key(1), (count, 2))
    return [(draw(data, key_batch), key_update) for key_batch, key_update in keys]


def gradients(agent: Agent) -> Gradients:
    return jax.jit(lambda *inputs: by_layer(learner.gradient(agent, *inputs)[0]))


def by_layer(grads: Params) -> dict[str, Params]:
    """Every network as a whole, then every array of its weights."""
    name = lambda path: "/".join(part.key for part in path if part.key != "params")
    return grads | {name(path): g for path, g in jax.tree_util.tree_leaves_with_path(grads)}


@jax.jit
def errors(grads: dict[str, Params], wanted: dict[str, Params]) -> dict[str, tuple[Array, Array]]:
    """Of every layer, |g - wanted| / |wanted| and |wanted|."""
    apart = jax.tree.map(jnp.subtract, grads, wanted)
    norms = {
        layer: (optax.tree.norm(apart[layer]), optax.tree.norm(wanted[layer])) for layer in wanted
    }
    return {layer: (far / size, size) for layer, (far, size) in norms.items()}


def compare(exact: Gradients, rough: Gradients, state: State, batches: Batches) -> lines.Row:
    both = lambda *at: jax.device_get(errors(rough(state, *at), exact(state, *at)))
    return summary([both(batch, key) for batch, key in batches])


def summary(seen: Sequence[dict[str, tuple[Array, Array]]]) -> lines.Row:
    """Over batches; of networks as wholes beside one another, of layers below `layers`."""
    layers = {}
    for layer in seen[0]:
        error, size = np.array([one[layer] for one in seen], float).T
        numbers = {"median": np.median(error), "worst": error.max(), "size": np.median(size)}
        layers[layer] = {name: metrics.strict(float(x)) for name, x in numbers.items()}
    whole = {layer: of for layer, of in layers.items() if "/" not in layer}
    rank = lambda layer: np.inf if layers[layer]["worst"] is None else layers[layer]["worst"]
    return {
        **{role: of["median"] for role, of in whole.items()},
        **{f"{role}_worst": of["worst"] for role, of in whole.items()},
        "worst_layer": max(layers, key=rank),
        "layers": layers,
    }


def draw(rows: Sequence[lines.Row], path: Path, batches: int) -> Path:
    from vinerl.bench.pictures.plots import COLOURS, GRID, STYLE, plt, save

    weights, variants = (list(dict.fromkeys(row[name] for row in rows)) for name in COLUMNS[:2])
    layers = list(rows[0]["layers"])
    place = lambda value: value or np.nan  # 0 has no place on a log scale
    with plt.rc_context(STYLE):
        size = (2 + 3.4 * len(weights), 1 + 0.17 * len(layers))
        figure, grid = plt.subplots(1, len(weights), figsize=size, sharex=True, sharey=True, **GRID)
        for row in rows:
            axes, i = grid[0, weights.index(row["weights"])], variants.index(row["variant"])
            y = np.arange(len(layers)) + (i + 0.5) / len(variants) * 0.8 - 0.4
            found = [row["layers"][layer] for layer in layers]
            median, worst = ([place(of[name]) for of in found] for name in ("median", "worst"))
            look = {"color": COLOURS[i % len(COLOURS)]}
            axes.hlines(y, median, worst, lw=1, **look)
            axes.plot(median, y, "o", ms=3, label=row["variant"], **look)
        for axes, title in zip(grid[0], weights, strict=True):
            axes.set(xscale="log", xlabel="|g - g32| / |g32|")
            axes.xaxis.set_minor_formatter("")
            axes.set_title(f"{title} weights" if title == "fresh" else title, loc="left")
        grid[0, 0].set_yticks(range(len(layers)), layers, fontsize=6)
        grid[0, 0].set_ylim(len(layers) - 0.4, -0.6)
        figure.legend(
            *grid[0, 0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=len(variants),
            frameon=False,
            fontsize=7,
        )
        device = jax.devices()[0].device_kind
        head = (
            f"Error of the gradient, {device}, {batches} batches: median, and a line to the worst"
        )
        return save(figure, path, head=head, dpi=120)
