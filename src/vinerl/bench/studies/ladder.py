"""`vinerl reproduce ladder`: how far up a ladder of bandits every agent gets.

ladder.jsonl   one object a line for each agent, bandit and seed: what it reached, actions it drew;
               what is there is not trained again
ladder.md      the values as tables
ladder.png     where the actions are
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import vinerl
from vinerl import disk
from vinerl.agents import AGENTS
from vinerl.bench.studies import bandits, lines
from vinerl.bench.studies.bandits import BANDITS, Bandit
from vinerl.data.fold import Transitions
from vinerl.train import offline, pretrain, stack
from vinerl.types import Spec

REACHED = 0.85  # of the optimum: more than any policy can have that sits on the second-best mode
SPEC = Spec(jax.ShapeDtypeStruct((1,), jnp.float32), action_dim=2)
RUNGS = tuple(BANDITS)

Ideal = Callable[[Bandit], float]


class Climber(NamedTuple):
    """A setting of an agent, and what is known of it beforehand."""

    agent: str
    fields: dict[str, Any]
    rung: str  # the highest that it must reach
    ideal: Ideal | None = None  # its value, where arithmetic has it
    begins: tuple[str, ...] = ("fresh",)  # "cloned": from an actor that flow matching has fitted


tilt = partial(bandits.tilted, inv_temp=20.0)
capped = partial(bandits.tilted, inv_temp=10.0, most=100.0)

# One value an agent, chosen from its formulas before anything was run: rewards are 0 to 1 here, and
# what tilts the data tilts it by exp(20 Q), or exp(10 Q) where a cap on the weights allows no more.
CLIMBERS = {
    "vine": Climber("vine", {"alpha": 1.0}, "one", partial(bandits.point, alpha=1.0)),
    "rebrac": Climber("rebrac", {"alpha": 0.1}, "one"),
    "fql": Climber("fql", {"alpha": 0.3}, "one"),
    "fawac": Climber("fawac", {"inv_temp": 10.0}, "five", capped),
    "ifql": Climber("ifql", {"draws": 32}, "rarest", partial(bandits.best_of, draws=32)),
    "qam": Climber("qam", {"inv_temp": 20.0}, "five", tilt),
    "qam-fql": Climber("qam-fql", {"inv_temp": 20.0, "alpha": 1.0}, "five"),
    "qam-edit": Climber("qam-edit", {"inv_temp": 20.0, "edit_scale": 0.1}, "five"),
    "dac": Climber("dac", {"alpha": 0.025}, "one", tilt),
    "qsm": Climber("qsm", {"inv_temp": 20.0, "alpha": 10.0}, "one"),
    "cgql": Climber("cgql", {"guidance": 0.1, "inv_temp": 200.0}, "one"),
    "cgql-m": Climber("cgql-m", {"guidance": 0.1, "inv_temp": 200.0, "noisy_weight": 0.1}, "five"),
    "cgql-l": Climber("cgql-l", {"guidance": 0.1, "inv_temp": 200.0}, "five"),
    "dsrl": Climber("dsrl", {"noise_scale": 1.5}, "five"),
    "fedit": Climber("fedit", {"edit_scale": 0.3}, "one"),
    "fbrac": Climber("fbrac", {"alpha": 0.1}, "one"),
    "bam": Climber("bam", {"inv_temp": 20.0}, "five", tilt),
}

BOTH = ("fresh", "cloned")
HELD = {"alpha": 0.1, "regulariser": "flow"}
TUNED = {
    "VINE": Climber("vine", HELD, "one", begins=BOTH),
    "Euler": Climber("vine", HELD | {"sampler": "euler"}, "one", begins=BOTH),
    "VINE, noise 0": Climber("vine", HELD | {"noise": 0.0}, "one", begins=BOTH),
}


@dataclass(frozen=True)
class Scale:
    """How much is learned and looked at; with agent, bandit and seed this makes a policy."""

    seeds: tuple[int, ...] = (0, 1)
    updates: int = 3000
    clone_updates: int = 3000
    rows: int = 10_000
    draws: int = 4096  # actions that are measured
    kept: int = 150  # of them, for the picture
    sizes: dict[str, Any] = field(
        default_factory=lambda: {
            "actor_hidden": (64, 64),
            "critic_hidden": (64, 64),
            "critic": "mlp",
            "critics": 2,
            "batch_size": 128,
            "lr": 1e-3,
            "lr_end": 0.05,
            "lr_steps": 3000,
        }
    )


Lines = list[dict[str, Any]]
Show = Callable[[str], Any]


def cost() -> str:
    runs = sum(len(c.begins) for c in (CLIMBERS | TUNED).values()) * len(RUNGS)
    return f"{runs} small runs of 2 seeds: about 20 minutes on two cores, 1 MB, no download"


def reproduce(out: Path, scale: Scale | None = None, show: Show = print) -> list[Path]:
    """Train what is missing in `out`, then tell and draw everything."""
    from vinerl.bench.studies import ladder_figure

    out.mkdir(parents=True, exist_ok=True)
    raw, table = out / "ladder.jsonl", out / "ladder.md"
    found = learn(raw, CLIMBERS | TUNED, scale or Scale(), show)
    disk.write(table, markdown(found).encode())
    show(markdown(found))
    return [raw, table, ladder_figure.draw(found, out / "ladder.png")]


def learn(path: Path, climbers: dict[str, Climber], scale: Scale, show: Show) -> Lines:
    """Every climber on every bandit, from the file or else trained and added to it."""
    found = []
    for i, (name, climber) in enumerate(climbers.items()):
        origin = origin_of(climber, scale)
        there = lines.read(path, origin)
        if not there:
            show(f"{i + 1}/{len(climbers)} {name}")
            lines.append(path, origin, climb(name, climber, scale))
            there = lines.read(path, origin)
        found += there
    return found


def origin_of(climber: Climber, scale: Scale) -> dict[str, Any]:
    """What a policy depends on besides bandit, start and seed, as JSON has it."""
    sizes = {k: list(v) if isinstance(v, tuple) else v for k, v in scale.sizes.items()}
    told = asdict(scale) | {"seeds": list(scale.seeds), "sizes": sizes}
    return {"version": vinerl.__version__, "agent": climber.agent, "fields": climber.fields} | told


def climb(name: str, climber: Climber, scale: Scale) -> Iterator[dict[str, Any]]:
    """All seeds side by side; one program for every bandit."""
    config, make = AGENTS[climber.agent]
    config = replace(config, **(scale.sizes | climber.fields))
    agent_of = stack.maker(make, config, SPEC)
    fresh = offline.start(agent_of, stack.members(config, scale.seeds))
    block, draw = offline.train_block(agent_of), drawer(agent_of, scale.draws)
    clone = cloner(agent_of, scale.clone_updates)
    for rung, bandit in BANDITS.items():
        data = jax.device_put(bandits.data(bandit, scale.rows))
        for begin in climber.begins:
            start = clone(fresh, data) if begin == "cloned" else fresh
            runs, _ = block(jax.tree.map(jnp.copy, start), data, scale.updates)  # it donates
            told = {"climber": name, "begin": begin, "rung": rung}
            for i, action in enumerate(np.asarray(draw(runs))):
                status = offline.STATUS[int(runs.status[i])]
                seen = {"seed": scale.seeds[i], "status": status}
                yield told | seen | measure(bandit, action, scale.kept)


def measure(bandit: Bandit, action: np.ndarray, kept: int) -> dict[str, Any]:
    """What drawn actions [N, 2] are worth, how they spread, how many are at the best peak."""
    best = np.linalg.norm(action - bandit.peaks[0], axis=1) < bandit.width
    return {
        "value": round(float(bandits.value(bandit, action).mean()), 4),
        "spread": round(float(action.std(axis=0).mean()), 4),
        "best": round(float(best.mean()), 4),
        "actions": np.round(action[:kept].astype(float), 3).tolist(),
    }


def drawer(agent_of: stack.AgentOf, draws: int) -> Callable[[offline.Stack], jax.Array]:
    """Actions [S, draws, 2] in the one state there is."""

    def one(run):
        agent = agent_of(run.member)
        key = stack.keys(run.member).evaluate
        return agent.act(agent.policy(run.state), bandits.state(draws), key)

    return jax.jit(jax.vmap(one))


def cloner(
    agent_of: stack.AgentOf, updates: int
) -> Callable[[offline.Stack, Transitions], offline.Stack]:
    """Gives a stack actors that flow matching has fitted to the data; all else is as it was."""

    def one(run, data):
        agent = agent_of(run.member)
        keys = jax.random.split(stack.keys(run.member).diagnose, updates)
        now, _ = pretrain.learn(agent, data, pretrain.begin(agent, run.state), keys)
        return run._replace(state=pretrain.end(agent, run.state, now))

    return jax.jit(jax.vmap(one, in_axes=(0, None)))


def mean(found: Lines, name: str, climber: str, rung: str, begin: str = "fresh") -> float:
    """A number's mean over the seeds."""
    of = {"climber": climber, "rung": rung, "begin": begin}
    return float(np.mean([line[name] for line in found if of.items() <= line.items()]))


def missed(climber: Climber, rung: str, reached: float) -> bool:
    return reached < REACHED and RUNGS.index(rung) <= RUNGS.index(climber.rung)


def markdown(found: Lines) -> str:
    there = {line["climber"] for line in found}
    agents = {name: c for name, c in CLIMBERS.items() if name in there}
    tuned = {name: c for name, c in TUNED.items() if name in there}
    seeds = len({line["seed"] for line in found})
    rows = [
        f"Mean value of the actions drawn, the optimum being 1; mean of {seeds} seeds. In brackets "
        "what arithmetic says of the ideal policy; **bold**: the agent had to get to "
        f"{REACHED:g} and did not.",
        "",
        f"| agent | must reach | {' | '.join(RUNGS)} |",
        "|---|---|---|---|---|",
        "| (the data) | | "
        + " | ".join(f"{bandits.behaviour(BANDITS[r]):.2f}" for r in RUNGS)
        + " |",
    ]
    rows += [_row(found, name, climber) for name, climber in agents.items()]
    if tuned:
        rows += ["", *_tuning(found, tuned)]
    return "\n".join(rows) + "\n"


def _row(found: Lines, name: str, climber: Climber) -> str:
    cells = []
    for rung in RUNGS:
        value = mean(found, "value", name, rung)
        text = f"**{value:.2f}**" if missed(climber, rung, value) else f"{value:.2f}"
        cells.append(text + (f" ({climber.ideal(BANDITS[rung]):.2f})" if climber.ideal else ""))
    return f"| {name} | {climber.rung} | {' | '.join(cells)} |"


def _tuning(found: Lines, tuned: dict[str, Climber]) -> Sequence[str]:
    """Value and spread from a fresh actor and from a cloned one."""
    cell = lambda *of: f"{mean(found, 'value', *of):.2f} ({mean(found, 'spread', *of):.2f})"
    heads = [f"{rung}, {begin}" for rung in RUNGS for begin in BOTH]
    body = [
        f"| {name} | " + " | ".join(cell(name, r, begin) for r in RUNGS for begin in BOTH) + " |"
        for name in tuned
    ]
    return [
        "VINE's loss with flow matching as its regulariser, from a fresh actor and from one that "
        "flow matching has fitted to the data first: value, and spread of the actions in brackets.",
        "",
        f"| sampler | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
        *body,
    ]
