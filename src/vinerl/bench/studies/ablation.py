"""`vinerl reproduce ablation`: what sampler and regulariser are worth, from what is published.

ablation.jsonl   one object a line: every seed at every alpha
ablation.md      each combination at its best alpha, and differences of samplers and of
                 regularisers, seed by seed
ablation.png     all of it against alpha
success.png      success alone

The combinations are the runs of the queue whose grid names a sampler and that are evaluated on the
way. Where some were cut off, all are compared once more after the last evaluation that each of them
has. Nothing is trained here: `vinerl reproduce ablation-sampler` does that.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vinerl import disk
from vinerl.bench.numbers import results, stats, summary
from vinerl.bench.numbers.results import Cell, Seed
from vinerl.bench.numbers.stats import Estimate
from vinerl.bench.numbers.summary import Row
from vinerl.bench.plans import queue
from vinerl.bench.plans.entries import Entry
from vinerl.bench.run import jobs, manifests
from vinerl.train import metrics

SETTING = ("data", "simulator", "protocol")  # of a recipe
MEASURES = {
    "success": "success",
    "spread": "spread of actions",
    "first": "gradient at the first estimate",
    "gradient": "largest gradient norm",
    "estimate": "largest estimate",
}


class Variant(NamedTuple):
    """A run of the queue: a sampler, a regulariser, what else is changed, and cells by alpha."""

    sampler: str
    regulariser: str
    other: str
    cells: dict[float, Cell | None]  # None: missing

    @property
    def there(self) -> dict[float, Cell]:
        return {alpha: cell for alpha, cell in self.cells.items() if cell}

    def filled(self, other: "Variant") -> "Variant":
        """What is missing taken from another."""
        return self._replace(cells={a: cell or other.cells[a] for a, cell in self.cells.items()})

    def evaluated(self) -> "Variant":
        """Without what was not evaluated on its way."""
        kept = {
            alpha: cell if cell and on_the_way(cell) else None for alpha, cell in self.cells.items()
        }
        return self._replace(cells=kept)

    def until(self, step: int) -> "Variant":
        cut = lambda cell: cell and Cell(cell.recipe, [until(seed, step) for seed in cell.seeds])
        return self._replace(cells={alpha: cut(cell) for alpha, cell in self.cells.items()})

    @property
    def best(self) -> float | None:
        """The alpha of the highest success at the end; of equals, of the higher curve."""
        mean = lambda seed: np.mean([*seed.facts["curve"]["success"], seed.score])
        height = lambda cell: np.mean([mean(seed) for seed in cell.seeds])
        of = {alpha: (cell.scores.mean(), height(cell)) for alpha, cell in self.there.items()}
        return max(of, key=lambda alpha: of[alpha]) if of else None


class Block(NamedTuple):
    """What is compared: one group's runs of one task."""

    group: str
    task: str
    steps: int
    variants: list[Variant]
    of: int | None = None  # steps that were asked for, where runs that were cut off are compared

    @property
    def shared(self) -> str:
        """What else is changed in all of it."""
        others = {variant.other for variant in self.variants}
        return others.pop() if len(others) == 1 else ""


class Gap(NamedTuple):
    """A difference of two variants in success, over the seeds that both have."""

    what: str  # VINE less Euler, endpoint less flow
    under: str  # what both have: a regulariser or a sampler, and what else is changed
    at: str
    seeds: int
    difference: Estimate
    chance: float  # of one as large, were every seed's sign a coin's


def cost(folder: Path) -> str:
    found = blocks(folder)
    cells = [cell for b in found if not b.of for v in b.variants for cell in v.cells.values()]
    there = sum(cell is not None for cell in cells)
    return (
        f"nothing is trained: {there} of {len(cells)} cells are published and compared, in seconds"
    )


def reproduce(folder: Path, out: Path) -> list[Path]:
    from vinerl.bench.studies import ablation_figure, ablation_page

    found = blocks(folder)
    out.mkdir(parents=True, exist_ok=True)
    raw, page = out / "ablation.jsonl", out / "ablation.md"
    told = (json.dumps(line, allow_nan=False) + "\n" for line in lines(found))
    disk.write(raw, "".join(told).encode())
    text = ablation_page.markdown(found)
    disk.write(page, text.encode())
    print(text)
    drawn = list(filter(gaps, found))
    if not drawn:
        return [raw, page]
    pictures = [ablation_figure.draw(drawn, out / "ablation.png")]
    return [raw, page, *pictures, ablation_figure.draw_success(drawn, out / "success.png")]


def about_success(entry: Entry) -> bool:
    return "sampler" in entry.own and entry.job.eval_every > 0


def blocks(folder: Path) -> list[Block]:
    rows = summary.rows(results.read(folder))
    found: list[Block] = []
    for block, entries in sections(folder, rows, about_success):
        found += [block, *so_far(block, entries, rows)]
    return found


def sections(
    folder: Path, rows: Sequence[Row], chosen: Callable[[Entry], bool]
) -> Iterator[tuple[Block, list[Entry]]]:
    """Sections of the queue, a block a task, with what of them has ended."""
    entries = filter(chosen, queue.read(folder / "queue.toml"))
    about = lambda entry: (entry.group, entry.task, entry.steps)
    there = alike(rows)
    for key, several in groupby(entries, about):
        of = list(several)
        yield Block(*key, [_variant(entry, there, entry.steps) for entry in of]), of


def so_far(block: Block, entries: Sequence[Entry], rows: Sequence[Row]) -> list[Block]:
    """All of a block after the last evaluation that each has, if runs of it were cut off and that
    compares any."""
    shorter = lambda row: row.steps < block.steps and cut_off(row.cell)
    kept = alike([r for r in rows if r.steps == block.steps or shorter(r)], lengths=False)
    variants = [_variant(entry, kept, block.steps) for entry in entries]
    for steps in sorted({row.steps for row in kept} - {block.steps}, reverse=True):
        others = [_variant(entry, kept, steps) for entry in entries]
        variants = [one.filled(other) for one, other in zip(variants, others, strict=True)]
    variants = [variant.evaluated() for variant in variants]
    cells = [cell for variant in variants for cell in variant.there.values()]
    shared = set[int].intersection(*map(on_the_way, cells)) if cells else set[int]()
    if not shared or not any(map(cut_off, cells)):
        return []
    step = max(shared)
    variants = [variant.until(step) for variant in variants]
    found = block._replace(steps=step, variants=variants, of=block.steps)
    return [found] if gaps(found) else []


def on_the_way(cell: Cell) -> set[int]:
    """Steps after which all of its seeds were evaluated."""
    return set.intersection(*(set(seed.facts["curve"]["step"]) for seed in cell.seeds))


def cut_off(cell: Cell) -> bool:
    """Whether none of its runs came to the evaluation at the end."""
    ended = any(seed.facts["final"] for seed in cell.seeds)
    return bool(cell.recipe["protocol"]["final_episodes"]) and not ended


def until(seed: Seed, step: int) -> Seed:
    """As it was at an evaluation on its way; what is kept of its last line alone stays."""

    def cut(series: dict[str, list]) -> dict[str, list]:
        count = sum(at <= step for at in series["step"])
        return {name: values[:count] for name, values in series.items()}

    told = seed.facts["metrics"]
    told = told | {name: cut(of) for name, of in told.items() if isinstance(of, dict)}
    facts = {"curve": cut(seed.facts["curve"]), "metrics": told, "final": None}
    return seed._replace(facts=seed.facts | facts)


def alike(rows: Sequence[Row], lengths: bool = True) -> list[Row]:
    """Of each task, data seed and perhaps length those on the same data under the same protocol:
    where most seeds are.

    What another dataset does to a cell is not what its sampler does.
    """
    about = lambda recipe: (recipe["task"], lengths and recipe["steps"], results.data_seed(recipe))
    where = lambda row: about(row.cell.recipe)
    setting = lambda row: json.dumps([row.cell.recipe[name] for name in SETTING], sort_keys=True)
    seeds = Counter[tuple[Any, str]]()
    for row in rows:
        seeds[where(row), setting(row)] += len(row.cell.seeds)
    most = {place: how for (place, how), _ in reversed(seeds.most_common())}
    return [row for row in rows if most[where(row)] == setting(row)]


def _variant(entry: Entry, rows: Sequence[Row], steps: int) -> Variant:
    """With the seeds that the queue asks for: more of them at one alpha would favour or harm it."""
    config = vars(jobs.resolve(entry.request).config)
    alphas = config["alpha"] if isinstance(config["alpha"], tuple) else (config["alpha"],)
    other = {k: v for k, v in entry.own.items() if k not in ("sampler", "regulariser", "alpha")}
    words = ", ".join(f"{name} {value}" for name, value in other.items())
    asked = {k: manifests.freeze(v) for k, v in config.items() if k not in results.HOW}

    def cell(alpha: float) -> Cell | None:
        agent = {"name": entry.agent, "config": asked | {"alpha": alpha}}
        wanted = {"task": entry.task, "steps": steps, "agent": agent}
        found = [row.cell for row in rows if wanted.items() <= row.cell.recipe.items()]
        found = [cell for cell in found if results.data_seed(cell.recipe) == entry.data_seed]
        plain = [cell for cell in found if not {"pretrain", "online"} & set(cell.recipe)]
        asked_for = [Cell(c.recipe, [s for s in c.seeds if s.seed in entry.seeds]) for c in plain]
        most = max(asked_for, key=lambda cell: len(cell.seeds), default=None)
        return most if most and most.seeds else None

    cells = {alpha: cell(alpha) for alpha in alphas}
    return Variant(config["sampler"], config["regulariser"], words, cells)


def measures(cell: Cell) -> dict[str, np.ndarray]:
    """Of every seed [S]: infinite for what was not finite, NaN for what the agent does not tell."""
    told = [seed.facts["metrics"] for seed in cell.seeds]
    series = lambda name: [_finite(of.get(name, {}).get("value", [])) or [np.nan] for of in told]
    step = [_finite(of.get("grad_norm/step", [0, np.nan])) for of in told]
    return {
        "success": cell.scores,
        "spread": np.array([values[-1] for values in series("actor/spread")]),
        "first": np.array([values[1] for values in step]),  # a_0 is noise
        "gradient": np.array([max(values) for values in series("grad_norm/actor_max")]),
        "estimate": np.array([max(values) for values in series("actor/estimate_max")]),
    }


def _finite(values: Sequence[float | None]) -> list[float]:
    return [np.inf if value is None else float(value) for value in values]


def lines(found: Sequence[Block]) -> Iterator[dict[str, Any]]:
    for block in found:
        for variant in block.variants:
            for alpha, cell in variant.there.items():
                about = {"group": block.group, "task": block.task, "steps": block.steps}
                about |= {"of": block.of} if block.of else {}
                about |= {"sampler": variant.sampler, "regulariser": variant.regulariser}
                about |= {"other": variant.other, "alpha": alpha}
                seen = measures(cell)
                for i, seed in enumerate(cell.seeds):
                    each = {name: metrics.strict(float(x[i])) for name, x in seen.items()}
                    yield about | {"seed": seed.seed} | each


def gaps(block: Block) -> list[Gap]:
    """Samplers under every regulariser, then regularisers under every sampler."""
    of = {(v.sampler, v.regulariser, v.other): v for v in block.variants}
    found: list[Gap] = []
    for (sampler, regulariser, other), euler in of.items():
        if sampler == "euler" and (vine := of.get(("vine", regulariser, other))):
            found += _gaps("VINE less Euler", kind(regulariser, other), vine, euler)
    for (sampler, regulariser, other), variant in of.items():
        endpoint = of.get((sampler, "endpoint", other))
        if regulariser != "endpoint" and endpoint:
            found += _gaps(f"endpoint less {regulariser}", kind(sampler, other), endpoint, variant)
    return found


def kind(name: str, other: str) -> str:
    """A sampler's or regulariser's name, with what else is changed."""
    return ", ".join(filter(None, (name, other)))


def _gaps(what: str, under: str, one: Variant, other: Variant) -> Iterator[Gap]:
    """At the best alphas of both, and over all that both have."""
    at: list[tuple[str, list[float], list[float]]] = []
    if one.best is not None and other.best is not None:
        at.append((f"best: {one.best:g} and {other.best:g}", [one.best], [other.best]))
    both = [alpha for alpha in one.there if alpha in other.there]
    if len(both) > 1:
        at.append((f"mean of {', '.join(f'{alpha:g}' for alpha in both)}", both, both))
    for words, alphas, alphas_of_other in at:
        apart = _paired(one, alphas, other, alphas_of_other)
        if len(apart):
            difference = Estimate(apart.mean(), *stats.bootstrap(apart))
            yield Gap(what, under, words, len(apart), difference, coin(apart))


def _paired(
    one: Variant, alphas: Sequence[float], other: Variant, alphas_of_other: Sequence[float]
) -> np.ndarray:
    """Differences in success of the seeds that both have, which share start and batches."""
    a, b = _by_seed(one, alphas), _by_seed(other, alphas_of_other)
    return np.array([a[seed] - b[seed] for seed in a if seed in b])


def _by_seed(variant: Variant, alphas: Sequence[float]) -> dict[int, float]:
    """Mean success over alphas of the seeds that have them all."""
    each = [{s.seed: s.score for s in variant.there[alpha].seeds} for alpha in alphas]
    common = sorted(set.intersection(*map(set, each)))
    return {seed: float(np.mean([of[seed] for of in each])) for seed in common}


def coin(differences: np.ndarray) -> float:
    """How often a mean as far from 0 comes out when every sign [S] is a coin's; 2 / 2^S at best."""
    signs = np.array(list(product((-1, 1), repeat=len(differences))))
    drawn = np.abs(signs @ differences)
    return float(np.mean(drawn >= np.abs(differences.sum()) - 1e-9))
