"""`vinerl reproduce variance`: how far actions spread, and how noisy the actor's gradient is.

variance.jsonl   one object a line for each run, saved policy and seed; what is there is not
                 measured again
variance.md      what was measured, in words and numbers
variance.png     both along the training, and the gradient at each step of the sampler

The gradient is that of the agent's own loss, taken many times on one batch with other noises. A
run keeps the policies of its evaluations but the critic of its end alone, so all of its policies
meet that critic.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import vinerl
from vinerl import disk
from vinerl.bench.pictures.show import footnotes
from vinerl.bench.run import manifests, material, running, runs
from vinerl.bench.run.runs import Run
from vinerl.bench.studies import lines, trained
from vinerl.data.fold import Transitions
from vinerl.train import checkpoint, metrics, offline, stack
from vinerl.types import Array, Key, Params

DRAWS = 32  # of a gradient's noise
ACTIONS = 16  # in one state

Lines = list[dict[str, Any]]
Show = Callable[[str], Any]


def cost(given: Sequence[Path]) -> str:
    return (
        f"{trained.cost(given)}; then {DRAWS} gradients at every saved policy: about a minute a "
        "run of the default job"
    )


def reproduce(
    out: Path, given: Sequence[Path] = (), folder: Path | None = None, show: Show = print
) -> list[Path]:
    """Of every run, what is missing in `out`; then tell and draw everything."""
    chosen = trained.chosen(given, folder)
    out.mkdir(parents=True, exist_ok=True)
    raw, table = out / "variance.jsonl", out / "variance.md"
    found: Lines = []
    for name, run in zip(runs.names(chosen), chosen, strict=True):
        origin = {"version": vinerl.__version__, "manifest": runs.seal(run.manifest)}
        origin |= {"draws": DRAWS, "actions": ACTIONS}
        members = trained.members(run, name)
        there = lines.whole(lines.read(raw, origin), "step", len(members))
        if missing := [step for step in saved(run) if step not in there]:
            for new in measure(run, name, missing, show):
                lines.append(raw, origin, new)
        found += lines.named(lines.read(raw, origin), "step", members)
    disk.write(table, markdown(found).encode())
    show(markdown(found))
    return [raw, table, draw(found, chosen, out / "variance.png")]


def saved(run: Run) -> list[int]:
    """Steps whose policies are there."""
    cards = (run.path / "checkpoints").glob("policy-*.json")
    return sorted(int(card.stem.removeprefix("policy-")) for card in cards)


def measure(run: Run, name: str, steps: Sequence[int], show: Show) -> Iterator[Lines]:
    """The lines of each step."""
    manifest = run.manifest
    job = manifests.again(manifest, run.path, None)
    found = material.data_of(job)
    material.check_same(material.facts_of(found), manifest["data"])
    like = jax.eval_shape(lambda: running.start_of(job, found.data))
    end = checkpoint.load(run.checkpoint("state"), like)
    look, data = looker(running.agent_of(job, found.data)), jax.device_put(found.data)
    for step in steps:
        seen = jax.tree.map(np.asarray, look(end, runs.load(run, step).policies, data))
        show(f"{name}, step {step}: gradient noise {(seen['noise'] / seen['signal']).mean():.2f}")
        yield [
            {"run": name, "step": step, "seed": member["seed"]}
            | {k: metrics.strict(v[i].tolist()) for k, v in seen.items()}
            for i, member in enumerate(manifest["members"])
        ]


def looker(agent_of: stack.AgentOf) -> Callable[[offline.Stack, Params, Transitions], Any]:
    """From a run's last state and some policies of it [S, ...] to numbers, [S, ...].

    signal   norm of the mean gradient of what acts, over noises
    noise    root of its total variance: the distance of one gradient from that mean
    spread   standard deviation of actions in one state: 10%, 50% and 90% of the states are below
    """

    def one(end, policy, data):
        agent = agent_of(end.member)
        key_batch, key_noise, key_act = jax.random.split(stack.keys(end.member).diagnose, 3)
        batch = offline.draw(agent, data, key_batch)
        acting = {role: policy[role] for role in offline.acting_roles(agent)}
        params = end.state.params | acting
        state = end.state._replace(params=params)

        def gradient(key):
            return jax.grad(lambda moved: agent.loss(params | moved, state, batch, key)[0])(acting)

        draw = lambda key: agent.act(policy, batch.obs, key)
        actions = jax.lax.map(draw, jax.random.split(key_act, ACTIONS))
        each = actions.std(axis=0, ddof=1).mean(axis=-1)
        signal, noise = scatter(gradient, jax.random.split(key_noise, DRAWS))
        return {
            "signal": signal,
            "noise": noise,
            "spread": jnp.quantile(each, jnp.array([0.1, 0.5, 0.9])),
        }

    return jax.jit(jax.vmap(one, in_axes=(0, 0, None)))


def scatter(gradient: Callable[[Key], Params], keys: Key) -> tuple[Array, Array]:
    """Norm of the mean of gradients, and the root of their total variance."""
    drawn = jax.lax.map(gradient, keys)
    mean = jax.tree.map(lambda g: g.mean(axis=0), drawn)
    apart = jax.tree.map(lambda g, m: g - m, drawn, mean)
    return optax.tree.norm(mean), optax.tree.norm(apart) / jnp.sqrt(len(keys) - 1)


def column(found: Lines, run: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [N] and values [N, members, ...] of one run."""
    of_run = [line for line in found if line["run"] == run]
    steps = sorted({line["step"] for line in of_run})
    at = lambda step: [line[name] for line in of_run if line["step"] == step]
    return np.array(steps), np.array([at(step) for step in steps], float)


def markdown(found: Lines) -> str:
    rows = [
        f"On one batch of a run, its actor's gradient was taken {DRAWS} times with other noises: "
        "*noise* is how far one of them lies from their mean, *signal* the norm of that mean. "
        f"*Spread* is the standard deviation of {ACTIONS} actions in one state: the median state, "
        "and those below which 10% and 90% lie. Policies of every save, with the critic of the "
        "run's end; means over seeds.",
        "",
        "| run | step | spread | signal | noise | noise / signal |",
        "|---|---|---|---|---|---|",
    ]
    for run in dict.fromkeys(line["run"] for line in found):
        told = {name: column(found, run, name)[1] for name in ("spread", "signal", "noise")}
        for i, step in enumerate(column(found, run, "signal")[0]):
            low, middle, high = told["spread"][i].mean(axis=0)
            signal, noise = told["signal"][i], told["noise"][i]
            rows.append(
                f"| {run} | {step} | {middle:.3f} [{low:.3f}, {high:.3f}] | {signal.mean():.3g} "
                f"| {noise.mean():.3g} | {(noise / signal).mean():.2f} |"
            )
    return "\n".join(rows) + "\n"


def _groups(names: Sequence[str]) -> dict[str, list[int]]:
    """The members of each name."""
    return {name: [i for i, other in enumerate(names) if other == name] for name in names}


def draw(found: Lines, chosen: Sequence[Run], path: Path) -> Path:
    from vinerl.bench.pictures.plots import GRID, STYLE, band, looks, plt, save

    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(1, 4, figsize=(13, 3.1), **GRID)
        spread, noise, ratio, arriving = grid[0]
        parts = [
            (run, name, of)
            for run, own in zip(chosen, runs.names(chosen), strict=True)
            for name, of in _groups(trained.members(run, own)).items()
        ]
        for (run, name, of), (colour, stroke) in zip(parts, looks(len(parts)), strict=True):
            x, y = column(found, name, "spread")
            spread.fill_between(x, *y[:, :, [0, 2]].mean(axis=1).T, color=colour, alpha=0.12, lw=0)
            band(spread, x, y[:, :, 1], name, colour, stroke)
            (_, signals), (_, noises) = (column(found, name, n) for n in ("signal", "noise"))
            band(noise, x, noises, name, colour, stroke)
            band(ratio, x, noises / signals, name, colour, stroke)
            _, norms = metrics.curve(run.metrics, "grad_norm/step")
            if len(norms):
                last = norms[-1][of].T
                last = np.where(last > 0, last, np.nan)  # 0 has no place on a log scale
                band(arriving, np.arange(len(last)), last, name, colour, stroke)
        spread.set_title("spread of actions in one state", loc="left")
        noise.set_title("noise of the actor's gradient", loc="left")
        ratio.set_title("noise / signal", loc="left")
        arriving.set_title("gradient arriving at $a_k$, at the end", loc="left")
        for axes in (spread, noise, ratio):
            axes.set(xlabel="gradient steps", ylim=(0, None))
        arriving.set(xlabel="k", yscale="log")
        spread.legend(frameon=False)
        words = (
            f"{DRAWS} gradients on one batch with other noises, at every saved policy with the "
            "critic of the end; wide band of the spread: 10% to 90% of the states"
        )
        return save(figure, path, footnotes(chosen), words, dpi=120)
