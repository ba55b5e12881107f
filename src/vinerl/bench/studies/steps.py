"""`vinerl reproduce ablation-steps`: acting with what the sampler has after k of its K steps.

steps.jsonl   one object a line for each run, k and seed: every episode; what is there is not run
              again
paths.jsonl   a line a run and seed: actions after 1 .. K steps in one state, from the same noises
steps.md      success at each k
steps.png     the same, and the paths
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import vinerl
from vinerl import disk
from vinerl.bench.numbers.stats import bootstrap
from vinerl.bench.pictures.show import footnotes
from vinerl.bench.run import evaluation, provenance, runs, tasks
from vinerl.bench.run.evaluation import LANES, Evaluator
from vinerl.bench.run.runs import Run, Subject, Trained
from vinerl.bench.studies import lines, trained
from vinerl.envs.pool import Pool
from vinerl.errors import InputError
from vinerl.train import evaluate, stack
from vinerl.types import Obs, Params

KS = (1, 4, 6, 8, 10)
EPISODES = 50
DRAWS = 60  # paths of a member
STREAM = 1  # of starts and noises

Lines = list[dict[str, Any]]
Show = Callable[[str], Any]


def cost(given: Sequence[Path]) -> str:
    return (
        f"{trained.cost(given)}; then {EPISODES} episodes of every seed with {len(KS)} lengths of "
        "the sampler: about 2 minutes a run of three seeds on the default job"
    )


def reproduce(
    out: Path,
    given: Sequence[Path] = (),
    folder: Path | None = None,
    episodes: int = EPISODES,
    show: Show = print,
) -> list[Path]:
    """Of every run, what is missing in `out`; then tell and draw everything."""
    chosen = trained.chosen(given, folder)
    out.mkdir(parents=True, exist_ok=True)
    raw, ways, said = out / "steps.jsonl", out / "paths.jsonl", out / "steps.md"
    found: Lines = []
    drawn: Lines = []
    for name, run in zip(runs.names(chosen), chosen, strict=True):
        loaded = runs.load(run)
        origin = origin_of(run, loaded, episodes)
        look(run, name, loaded, raw, ways, origin, show)
        members = trained.members(run, name)
        found += lines.named(lines.read(raw, origin), "k", members)
        drawn += lines.named(lines.read(ways, origin), "run", members)
    disk.write(said, markdown(found).encode())
    show(markdown(found))
    return [raw, ways, said, draw(found, drawn, footnotes(chosen), out / "steps.png")]


def origin_of(run: Run, loaded: Trained, episodes: int) -> dict[str, Any]:
    told = {"manifest": runs.seal(run.manifest), "step": loaded.step, "episodes": episodes}
    return {"version": vinerl.__version__, "stream": STREAM} | told


def lengths(run: Run, subject: Subject) -> list[int]:
    """The k to look at, the last being K."""
    config: Any = subject.config
    if not hasattr(config, "stop_at"):
        name = run.manifest["agent"]["name"]
        raise InputError(f"{run.path}: {name} has no stop_at, it cannot act after k steps")
    return [*(k for k in KS if k < config.flow_steps), config.flow_steps]


def look(
    run: Run,
    name: str,
    loaded: Trained,
    raw: Path,
    ways: Path,
    origin: dict[str, Any],
    show: Show,
) -> None:
    """Add what the files do not have yet."""
    count = len(run.manifest["members"])
    there = lines.whole(lines.read(raw, origin), "k", count)
    missing = [k for k in lengths(run, loaded.subject) if k not in there]
    drawn = lines.whole(lines.read(ways, origin), "run", count)
    if not missing and drawn:
        return
    if not (task := run.manifest["task"]):
        raise InputError(f"{run.path} was trained on a file and has no environment to run in")
    subject, seeds = loaded.subject, [m["seed"] for m in run.manifest["members"]]
    episodes = origin["episodes"]
    slots = len(seeds) * min(LANES, episodes)
    evaluator = Evaluator(subject, Pool(tasks.named(task).env, slots, provenance.cores()))
    try:
        for k in missing:
            act = evaluate.acting(subject.agent_of(stop_at=k))
            reports = evaluator.reports(act, loaded.policies, STREAM, episodes)
            success = evaluation.successes(reports)
            show(f"{name}, {k} steps: success {success.mean():.3f}")
            each = [[bool(r.success) for r in member] for member in reports]
            told = zip(seeds, success.tolist(), each, strict=True)
            new = [{"seed": s, "success": x, "each": e} for s, x, e in told]
            lines.append(raw, origin, [{"run": name, "k": k} | line for line in new])
        first = evaluator.pool.reset([0], evaluate.start_seeds(STREAM, 1))
    finally:
        evaluator.close()
    if not drawn:
        obs = jax.tree.unflatten(jax.tree.structure(subject.spec.obs), first)
        every = np.round(np.asarray(paths(subject, loaded.policies, obs), float), 4)
        told = zip(seeds, every.tolist(), strict=True)
        lines.append(ways, origin, [{"run": name, "seed": s, "path": path} for s, path in told])


def paths(subject: Subject, policies: Params, obs: Obs, draws: int = DRAWS) -> jax.Array:
    """What every member would do after 1 .. K steps in one state [1, ...], [S, K, draws, A].

    Stopped anywhere, a sampler goes the same way on the same key, so critics choose nothing here.
    Actions are in the box.
    """
    config: Any = subject.config
    seen = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), draws, axis=0), subject.see(obs))
    makers = [subject.agent_of(stop_at=k, best_of=1) for k in range(1, config.flow_steps + 1)]

    def one(member, policy):
        key = stack.keys(member).evaluate
        return jnp.stack([make(member).act(policy, seen, key) for make in makers])

    return jax.jit(jax.vmap(one))(subject.members, policies)


def table(found: Lines) -> Iterator[tuple[str, list[int], np.ndarray]]:
    """Of every run: the k that were looked at, [N], and success [N, members]."""
    for name in dict.fromkeys(line["run"] for line in found):
        of_run = [line for line in found if line["run"] == name]
        ks = sorted({line["k"] for line in of_run})
        yield name, ks, np.array([[x["success"] for x in of_run if x["k"] == k] for k in ks])


def markdown(found: Lines) -> str:
    rows = [
        "Success when acting with what the sampler has after k steps (for VINE an estimate of the "
        "action, for Euler a point on the way from noise to it); mean over seeds and 95% bootstrap "
        "interval.",
    ]
    for name, ks, success in table(found):
        cells = [_cell(at_k) for at_k in success]
        head = " | ".join(f"k = {k}" for k in ks)
        rows += ["", f"| run ({success.shape[1]} seeds) | {head} |", "|---" * (len(ks) + 1) + "|"]
        rows += [f"| {name} | {' | '.join(cells)} |"]
    return "\n".join(rows) + "\n"


def _cell(success: np.ndarray) -> str:
    low, high = bootstrap(success)
    return f"{success.mean():.2f} [{low:.2f}, {high:.2f}]"


def draw(found: Lines, drawn: Lines, foot: Sequence[str], path: Path) -> Path:
    """Success and distance by k; beside them the first seed's paths of every run."""
    from vinerl.bench.pictures.plots import GRID, STYLE, band, looks, plt, save

    names = list(dict.fromkeys(line["run"] for line in drawn))
    with plt.rc_context(STYLE):
        width = 2 + len(names)
        figure, grid = plt.subplots(1, width, figsize=(3.1 * width, 3.3), **GRID)
        for (name, ks, success), how in zip(table(found), looks(len(names)), strict=True):
            band(grid[0, 0], np.array(ks), success, name, *how)
        for name, how in zip(names, looks(len(names)), strict=True):
            every = np.array([line["path"] for line in drawn if line["run"] == name])
            apart = np.linalg.norm(every - every[:, -1:], axis=-1).mean(axis=2)
            band(grid[0, 1], np.arange(1, apart.shape[1] + 1), apart.T, name, *how)
        for axes, name in zip(grid[0, 2:], names, strict=True):
            _paths(axes, np.array(next(x["path"] for x in drawn if x["run"] == name)))
            axes.set_title(f"{name}: $a_1 \\ldots a_K$ in the first state", loc="left")
        grid[0, 0].set_title("success after k steps", loc="left")
        grid[0, 0].set(ylim=(-0.03, 1.03), xlabel="k")
        grid[0, 0].legend(frameon=False)
        grid[0, 1].set_title("distance of $a_k$ from $a_K$, first state", loc="left")
        grid[0, 1].set(xlabel="k", ylim=(0, None))
        words = "Stopping the sampler early: mean and 95% bootstrap interval over seeds"
        return save(figure, path, foot, words, dpi=120)


def _paths(axes, path: np.ndarray) -> None:
    """[K, draws, A] in the first two coordinates, darker towards the end."""
    from vinerl.bench.pictures.plots import COLOURS, plt

    shade = plt.get_cmap("viridis_r")(np.linspace(0.05, 1, len(path)))
    axes.plot(*path[:, :, :2].transpose(2, 0, 1), color="#999999", lw=0.4, alpha=0.4)
    for colour, points in zip(shade, path, strict=True):
        axes.scatter(*points[:, :2].T, s=6, color=colour, lw=0)
    axes.scatter(*path[-1, :, :2].T, s=14, facecolor="none", edgecolor=COLOURS[1], lw=0.7)
    axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal")
