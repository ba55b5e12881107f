"""Values chosen for a domain or a task. Everything else is an agent's default."""

from typing import Any, NamedTuple

from vinerl.bench import tasks

DEEP = {"critic_hidden": (512,) * 4, "critic_blocks": 2}
SHALLOW = {"critic_hidden": (512,) * 2, "critic_blocks": 4}


class Row(NamedTuple):
    """Fields of the agent and options of the run, and who chose them."""

    agent: dict[str, Any]
    run: dict[str, Any]
    by: str


def _paper(alpha: float, critic: dict[str, Any]) -> Row:
    run = {"steps": 1_000_000, "eval_every": 20_000}
    return Row({"alpha": alpha} | critic, run, "the VINE paper's table")


# The critic's depth is the paper's; how many branches go with it is floq's pairing.
VINE = {
    "antmaze-large": _paper(10.0, DEEP),
    "antmaze-giant": _paper(10.0, DEEP),
    "humanoidmaze-medium": _paper(30.0, SHALLOW),
    "humanoidmaze-large": _paper(20.0, SHALLOW),
    "scene-sparse": _paper(300.0, DEEP),
    "puzzle-3x3-sparse": _paper(1000.0, DEEP),
    "cube-double": _paper(300.0, SHALLOW),
    "cube-triple": _paper(300.0, SHALLOW),
    # Sized for two CPU cores and a few minutes.
    tasks.DEFAULT: Row(
        {
            "alpha": 0.4,
            "lr": 1e-3,
            "lr_end": 0.05,
            "lr_steps": 6000,
            "batch_size": 256,
            "discount": 0.99,
            "horizon": 10,
            "chunk": False,
            "actor_hidden": (128,) * 3,
            "critic_hidden": (128,) * 2,
            "critic_blocks": 1,
        },
        {
            "steps": 6000,
            "eval_every": 1000,
            "seeds": (0, 1, 2),
            "normalise": "standard",
            "episodes": 200,
        },
        "us, for the default job",
    ),
}

TUNED: dict[str, dict[str, Row]] = {"vine": VINE}


def row(agent: str, task: tasks.Task | None) -> Row | None:
    """The most particular row there is; the default job's run options are for any agent."""
    if task is None:
        return None
    rows = TUNED.get(agent, {})
    default = VINE[tasks.DEFAULT]._replace(agent={}) if task.name == tasks.DEFAULT else None
    return rows.get(task.name) or rows.get(task.domain) or default
