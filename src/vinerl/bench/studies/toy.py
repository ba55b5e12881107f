"""`vinerl reproduce toy`: what sampler and regulariser make of a policy with five modes.

toy.jsonl          every policy, one object a line: its setting, its numbers, its weights; what is
                   there is not trained again
toy.md             the numbers as a table
toy.png, toy.pdf   the figure
toy.html           a page to play with: one file that needs nothing else
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import vinerl
from vinerl import disk
from vinerl.bench.studies import pentagon
from vinerl.bench.studies.pentagon import REGULARISERS, Scale
from vinerl.errors import InputError

SEEDS = (0, 1)
ALPHAS = (1.0, 3.0, 10.0)
QUICK = Scale(
    hidden=(16, 16),
    clone_batch=125,
    clone_steps=200,
    clone_lr=1e-2,
    tune_batch=60,
    tune_steps=150,
    tune_lr=1e-2,
    draws=500,
)
NAMES = {
    "behaviour": "behaviour cloning",
    "endpoint": "endpoint",
    "flow": "flow matching",
    "teacher": "teacher on the same noise",
    "euler": "Euler",
    "ddpm": "DDPM",
    "vine": "VINE",
}


class Setting(NamedTuple):
    """One policy. Fine-tuning starts from the behaviour of its sampler."""

    policy: str  # "behaviour" or a regulariser
    sampler: str
    alpha: float  # weight of the regulariser; 0 for behaviour, which has none
    seed: int


class Group(NamedTuple):
    """Policies that one program trains, and the samplers that run each of them."""

    policy: str
    samplers: tuple[str, ...]
    members: list[tuple[float, int]]  # weight and seed

    def settings(self, member: tuple[float, int]) -> list[Setting]:
        return [Setting(self.policy, sampler, *member) for sampler in self.samplers]


Lines = dict[Setting, dict[str, Any]]
Show = Callable[[str], Any]


def cost() -> str:
    trained = sum(len(group.members) for group in groups(SEEDS))
    return f"{trained} small policies: a minute or two on two cores, 3 MB, no download"


def reproduce(out: Path, quick: bool = False, show: Show = print) -> list[Path]:
    """Train what is missing in `out`, then draw everything; `quick` only tries whether it runs."""
    from vinerl.bench.studies import toy_figure, toy_page

    scale, seeds = (QUICK, SEEDS[:1]) if quick else (Scale(), SEEDS)
    out.mkdir(parents=True, exist_ok=True)
    raw, table = out / "toy.jsonl", out / "toy.md"
    lines = learn(raw, scale, seeds, show)
    disk.write(table, markdown(lines).encode())
    figures = toy_figure.draw(scale, lines, [out / "toy.png", out / "toy.pdf"])
    page = toy_page.write(lines, out / "toy.html")
    show(markdown(lines))
    return [raw, table, *figures, page]


def groups(seeds: Sequence[int]) -> list[Group]:
    """Behaviour first, as the others start from it."""
    alone = [(0.0, seed) for seed in seeds]
    weighted = [(alpha, seed) for seed in seeds for alpha in ALPHAS]
    cloned = [Group("behaviour", samplers, alone) for samplers in (("euler", "vine"), ("ddpm",))]
    tuned = [Group(r, (s,), weighted) for r in REGULARISERS for s in ("euler", "vine")]
    return cloned + tuned


def learn(path: Path, scale: Scale, seeds: Sequence[int], show: Show) -> Lines:
    """Every policy of these seeds, from the file or else trained and added to it."""
    chosen = []
    for group in groups(seeds):
        lines = read(path, scale)
        missing = [m for m in group.members if not lines.keys() >= set(group.settings(m))]
        if missing:
            names = " and ".join(NAMES[sampler] for sampler in group.samplers)
            show(f"{NAMES[group.policy]}, {names}: {len(missing)} policies")
            append(path, scale, train(scale, group._replace(members=missing), lines))
        chosen += [setting for member in group.members for setting in group.settings(member)]
    lines = read(path, scale)
    return {setting: lines[setting] for setting in chosen}


def train(scale: Scale, group: Group, lines: Lines) -> Iterator[tuple[Setting, dict[str, Any]]]:
    """The group's members side by side, and each as it will be read again."""
    first = group.samplers[0]
    seeds = [seed for _, seed in group.members]
    if group.policy == "behaviour":
        learn_one = partial(pentagon.clone, scale, first)
        inputs = (stacked([pentagon.fresh(scale, seed) for seed in seeds]),)
    else:
        learn_one = partial(pentagon.tune, scale, group.policy, first)
        begun = [lines[Setting("behaviour", first, 0.0, seed)]["weights"] for seed in seeds]
        alphas = jnp.float32([alpha for alpha, _ in group.members])
        inputs = (stacked([pentagon.from_layers(layers) for layers in begun]), alphas)
    params, norms = jax.jit(jax.vmap(learn_one))(*inputs, jnp.uint32(seeds))
    for i, member in enumerate(group.members):
        layers = pentagon.to_layers(jax.tree.map(lambda x, i=i: x[i], params))
        for setting in group.settings(member):
            seen = pentagon.measure(
                scale, setting.sampler, pentagon.from_layers(layers), jnp.uint32(setting.seed)
            )
            numbers = seen | {"grad_max": norms[i].max()}
            numbers = {name: x.tolist() for name, x in numbers.items()}
            yield setting, numbers | {"weights": layers}


def stacked(trees: list) -> Any:
    """[S, ...] of S trees [...]."""
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def origin(scale: Scale) -> dict[str, Any]:
    """What else a policy depends on, as JSON has it."""
    return {"version": vinerl.__version__, **asdict(scale), "hidden": list(scale.hidden)}


def append(path: Path, scale: Scale, made: Iterator[tuple[Setting, dict[str, Any]]]) -> None:
    """The whole file anew, so that a group is in it or not."""
    rows = [s._asdict() | found | {"origin": origin(scale)} for s, found in made]
    text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    disk.write(path, (path.read_bytes() if path.exists() else b"") + text.encode())


def read(path: Path, scale: Scale) -> Lines:
    """The policies of this scale; lines of another, or of another version, are left alone."""
    if not path.exists():
        return {}
    found = {}
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        try:
            line = json.loads(text)
            setting = Setting(*(line[field] for field in Setting._fields))
            if line["origin"] == origin(scale):
                found[setting] = line
        except (ValueError, TypeError, KeyError) as error:
            how = "remove this line, and its policy is trained again"
            raise InputError(f"{path}: line {number} is damaged ({error!r}); {how}") from error
    return found


COLUMNS = {"spread": ".2f", "near": ".2f", "value": ".2f", "grad_max": ".0f", "reach": ".1f"}


def average(lines: Lines, name: str, policy: str, sampler: str, alpha: float) -> float:
    """A number's mean over the seeds."""
    of = Setting(policy, sampler, alpha, 0)
    return float(np.mean([line[name] for s, line in lines.items() if s._replace(seed=0) == of]))


def markdown(lines: Lines) -> str:
    """A row a policy and sampler; of fine-tuned ones, numbers at each weight."""
    weights = " / ".join(f"{alpha:g}" for alpha in ALPHAS)
    rows = [
        f"Mean of {len({s.seed for s in lines})} seeds; after fine-tuning at weights {weights}.",
        "",
        f"| policy | sampler | spread of actions | share within {pentagon.WIDTH:g} of a mode "
        "| value | largest gradient norm | farthest on the way |",
        "|---|---|---|---|---|---|---|",
    ]
    for policy, sampler in dict.fromkeys((s.policy, s.sampler) for s in lines):
        alphas = (0.0,) if policy == "behaviour" else ALPHAS
        cells = [
            " / ".join(format(average(lines, name, policy, sampler, a), form) for a in alphas)
            for name, form in COLUMNS.items()
        ]
        rows.append(f"| {NAMES[policy]} | {NAMES[sampler]} | {' | '.join(cells)} |")
    points = {alpha: pentagon.collapsed(alpha) for alpha in ALPHAS}
    said = [
        f"{alpha:g} at ({p[0]:.2f}, {p[1]:.2f}), worth {pentagon.value(p):.2f}"
        for alpha, p in points.items()
    ]
    rows += [
        "",
        f"By arithmetic the endpoint term leaves one point: with weight {'; '.join(said)}.",
    ]
    return "\n".join(rows) + "\n"
