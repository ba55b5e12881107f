"""Values chosen for a domain or a task. Everything else is an agent's default.

A protocol is the recipe around an algorithm: its critics, what the target makes of them, batch,
discount, length of action chunks. Each agent was tuned under one, and can be run under the other.
"""

from typing import Any, Literal, NamedTuple

from vinerl.bench.run import tasks
from vinerl.errors import InputError

Protocol = Literal["qam", "vine"]

DOMAINS = ("antmaze-large", "antmaze-giant", "humanoidmaze-medium", "humanoidmaze-large")
DOMAINS += ("scene-sparse", "puzzle-3x3-sparse", "cube-double", "cube-triple")


class Row(NamedTuple):
    """Fields of the agent and options of the run, and who chose each field."""

    agent: dict[str, Any]
    run: dict[str, Any]
    by: dict[str, str]


DEEP = {"critic_hidden": (512,) * 4, "critic_blocks": 2}
SHALLOW = {"critic_hidden": (512,) * 2, "critic_blocks": 4}

# The VINE paper's. The critic's depth is the paper's; how many branches go with it is floq's.
VINE = {"critic": "residual", "critics": 2, "target": "min"}
VINE |= {"batch_size": 512, "discount": 0.995, "horizon": 1}
VINE_CRITIC = (DEEP, DEEP, SHALLOW, SHALLOW, DEEP, DEEP, SHALLOW, SHALLOW)

# QAM's, under which all the baselines were run: ten plain critics, chunks of five for the arm.
QAM = {"critic": "mlp", "critics": 10, "critic_hidden": (512,) * 4, "target": "std"}
QAM |= {"batch_size": 256}
QAM_DISCOUNT = (0.99, 0.995, 0.995, 0.995, 0.99, 0.99, 0.99, 0.99)
QAM_RHO = (0.5, 0.5, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5)
QAM_HORIZON = (1, 1, 1, 1, 5, 5, 5, 5)

RUN: dict[Protocol, dict[str, Any]] = {
    "vine": {"steps": 1_000_000, "eval_every": 20_000},
    "qam": {"steps": 1_000_000, "eval_every": 50_000},
}
BY = {"vine": "the VINE paper's table", "qam": "QAM's published runs"}

# In the order of DOMAINS. An agent's name stands where a variant's own part was tuned to 0, which
# makes it that agent.
VALUES: dict[str, dict[str, tuple[float | str, ...]]] = {
    "vine": {"alpha": (10.0, 10.0, 30.0, 20.0, 300.0, 1000.0, 300.0, 300.0)},
    "rebrac": {
        "alpha": (0.01, 0.01, 0.01, 0.01, 0.03, 0.1, 0.01, 0.01),
        "noise": (0.0, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.2),
    },
    "fql": {"alpha": (3.0, 3.0, 30.0, 30.0, 300.0, 300.0, 300.0, 30.0)},
    "fawac": {"inv_temp": (6.4, 0.8, 6.4, 0.8, 6.4, 0.8, 0.8, 0.8)},
    "ifql": {"kappa": (0.9, 0.8, 0.7, 0.8, 0.9, 0.95, 0.9, 0.95)},
    "qam": {"inv_temp": (10.0, 3.0, 3.0, 3.0, 1.0, 3.0, 1.0, 3.0)},
    "qam-fql": {
        "inv_temp": (3.0, 3.0, 1.0, 0.3, 1.0, 3.0, 1.0, 10.0),
        "alpha": (30.0, 30.0, 30.0, 30.0, 300.0, "qam", "qam", 300.0),
    },
    "qam-edit": {
        "inv_temp": (1.0, 10.0, 3.0, 3.0, 1.0, 1.0, 1.0, 3.0),
        "edit_scale": (0.1, 0.1, 0.1, 0.1, "qam", 0.1, "qam", 0.1),
    },
    "dac": {"alpha": (0.3, 0.3, 1.0, 0.3, 1.0, 1.0, 3.0, 0.3)},
    "qsm": {
        "inv_temp": (10.0, 10.0, 10.0, 10.0, 3.0, 10.0, 1.0, 10.0),
        "alpha": (10.0, 10.0, 30.0, 30.0, 30.0, 30.0, 10.0, 10.0),
    },
    "cgql": {"guidance": (0.1, 0.1, 0.01, 0.01, 0.1, 0.1, 0.01, 0.1)},
    "cgql-m": {
        "guidance": (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.1),
        "noisy_weight": (0.1, 0.001, 0.1, 0.1, 0.1, 0.1, 0.001, 0.001),
    },
    "cgql-l": {
        "guidance": (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.1),
        "noisy_weight": (0.001, 0.001, 0.1, 0.1, 0.1, 0.001, 0.001, 0.001),
    },
    "dsrl": {"noise_scale": (0.8, 1.2, 0.6, 0.8, 0.4, 1.0, 1.0, 1.4)},
    "fedit": {"edit_scale": (0.2, 0.3, 0.5, 0.1, 0.2, 0.2, 0.2, 0.3)},
    "fbrac": {"alpha": (0.1, 0.1, 30.0, 10.0, 100.0, 0.03, 0.1, 0.03)},
    "bam": {"inv_temp": (30.0, 30.0, 10.0, 30.0, 10.0, 10.0, 10.0, 30.0)},
}

# The default job, sized for two CPU cores and a few minutes. Only VINE's alpha was chosen for it.
SMALL = {
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
}
SMALL_RUN = {"steps": 6000, "eval_every": 1000, "seeds": (0, 1, 2), "normalise": "standard"}
SMALL_RUN |= {"episodes": 400}


def home(agent: str) -> Protocol:
    """The protocol that an agent's values were tuned under."""
    return "vine" if agent == "vine" else "qam"


def check(protocol: str | None, task: tasks.Task | None) -> None:
    """A protocol is known by name, and has values for the domain."""
    if protocol not in (None, *RUN):
        raise InputError(f"--protocol {protocol}: there are {', '.join(RUN)}")
    if protocol and (not task or task.domain not in DOMAINS):
        raise InputError(
            f"--protocol {protocol}: it has values for the tasks of {', '.join(DOMAINS)}, and none "
            f"for {task.name if task else '--data'}; give the fields one by one (--agent.FIELD)"
        )


def row(agent: str, task: tasks.Task | None, protocol: Protocol | None = None) -> Row | None:
    """What is chosen for an agent on a task; the default job's run options are for any agent."""
    if task is None:
        return None
    if task.name == tasks.DEFAULT:
        own = {"alpha": 1.0} if agent == "vine" else {"critics": 2}
        fields = SMALL | own if agent in VALUES else {}
        return Row(fields, SMALL_RUN, dict.fromkeys(fields, "us, for the default job"))
    if task.domain not in DOMAINS:
        return None
    place, under = DOMAINS.index(task.domain), protocol or home(agent)
    recipe, by = around(under, place), BY[under]
    if agent not in VALUES:
        return Row(recipe, RUN[under], dict.fromkeys(recipe, by)) if protocol else None
    own = VALUES[agent].items()
    values = {n: several[place] for n, several in own if not isinstance(several[place], str)}
    tuned = BY[home(agent)] + ("" if under == home(agent) else "; value tuned elsewhere")
    return Row(
        recipe | values, RUN[under], dict.fromkeys(recipe, by) | dict.fromkeys(values, tuned)
    )


def around(protocol: Protocol, place: int) -> dict[str, Any]:
    """The fields of a protocol in the domain at that place."""
    if protocol == "vine":
        return VINE | VINE_CRITIC[place]
    per_domain = {"discount": QAM_DISCOUNT, "rho": QAM_RHO, "horizon": QAM_HORIZON}
    return QAM | {name: several[place] for name, several in per_domain.items()}


def plain(agent: str, task: tasks.Task | None) -> dict[str, str]:
    """A variant's own parts that were tuned away on a task, and the agent that it then is."""
    if not task or task.domain not in DOMAINS:
        return {}
    place, values = DOMAINS.index(task.domain), VALUES.get(agent, {}).items()
    return {own: x for own, several in values if isinstance(x := several[place], str)}


def refuse_plain(agent: str, task: tasks.Task | None, fields: dict[str, Any]) -> None:
    """A variant whose own part was tuned away is another agent, and is asked for by that name."""
    for own, other in plain(agent, task).items():
        if own not in fields:
            raise InputError(
                f"the tuned {agent} on {task and task.domain} has {own} 0, which is plain {other}: "
                f"train {other}, or give --agent.{own.replace('_', '-')} a value"
            )
