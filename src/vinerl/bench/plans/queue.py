"""What is to be measured next, and the measuring of it: results/queue.toml, a group a section.

[NAME]
tasks, agent, seeds, steps
run       further options of the run: eval_every, eval_episodes, final_episodes, ...
common    fields of the agent's config in all entries
grid      fields that tell the entries of a task apart
alpha     (or another float field) by domain: values that are stacked
data_seed of the data that are made, where it is not 0

An entry is one run: a task, a config, all seeds and values side by side. It is done when every one
of its members stands in the published results, evaluated at the end if it asks for that.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vinerl.bench.numbers import results
from vinerl.bench.numbers.results import Seed
from vinerl.bench.plans.entries import (
    KINDS,
    Entry,
    check,
    check_kinds,
    plain,
    read_toml,
    shared_name,
    twins,
)
from vinerl.bench.run import jobs, manifests, tasks
from vinerl.bench.run.progress import duration
from vinerl.errors import InputError
from vinerl.train import stack

SECTION = KINDS | {"data_seed": (int, "0, 1, 2, ...")}


def read(path: Path) -> list[Entry]:
    """Every entry in order, all of it checked before anything runs."""
    if not path.is_file():
        raise InputError(
            f"{path}: there is no such file. The queue comes with a clone of the repository: work "
            "in one, or say with --folder where its results are"
        )
    found: list[Entry] = []
    for group, section in read_toml(path).items():
        found += _entries(path, group, section)
    if same := twins(found):
        raise InputError(f"{path}: [{same[1].group}] {same[1].name} stands there twice")
    if shared := shared_name(found):
        raise InputError(f"{path}: two entries would share the folder {shared}")
    return found


def _entries(path: Path, group: str, section: dict[str, Any]) -> list[Entry]:
    if not isinstance(section, dict):
        raise InputError(f"{path}: {group} = {section!r} stands in no section")
    stacked = {name: of for name, of in section.items() if isinstance(of, dict)}
    stacked = {name: of for name, of in stacked.items() if name not in SECTION}
    rest = {name: value for name, value in section.items() if name not in stacked}
    check_kinds(f"{path}: [{group}]", rest, SECTION)
    if missing := sorted({"tasks", "seeds", "steps"} - set(section)):
        raise InputError(f"{path}: [{group}] has no {', '.join(missing)}")
    if (data_seed := section.get("data_seed", 0)) < 0:
        raise InputError(f"{path}: [{group}] data_seed = {data_seed}: expected 0, 1, 2, ...")
    found = []
    for task in section["tasks"]:
        domain = tasks.named(task).domain
        for one in section.get("grid", [{}]):
            common = dict(section.get("common", {}))
            for name, of in stacked.items():
                if domain not in of:
                    raise InputError(f"{path}: [{group}.{name}] has no values for {domain}")
                common[name] = of[domain]
            own = {name: value for name, value in one.items() if name != "agent"}
            entry = Entry(
                group,
                task,
                one.get("agent", section.get("agent", "vine")),
                tuple(section["seeds"]),
                section["steps"],
                section.get("run", {}),
                common,
                own,
                data_seed=data_seed,
            )
            try:
                check(entry)
            except InputError as error:
                raise InputError(f"{path}: [{group}] {error}") from error
            found.append(entry)
    return found


def missing(entry: Entry, published: Sequence[Seed]) -> list[dict[str, Any]]:
    """The members of an entry that no published seed answers."""
    job = entry.job
    run = {name: manifests.freeze(getattr(job, name)) for name in manifests.KEPT}
    same = {"task": entry.task, "steps": job.total, "pretrain": None, "online": None}
    same |= results.beside_training(run)
    there = [
        (seed.seed, seed.recipe["agent"])
        for seed in published
        if all(seed.recipe.get(name) == value for name, value in same.items())
        and results.data_seed(seed.recipe) == entry.data_seed
        and seed.recipe["protocol"]["normalise"] == job.normalise
        and (seed.facts["final"] or not job.final_episodes)
    ]
    every = stack.members(job.config, job.seeds)
    agent = {"name": jobs.portable(job.agent)} | results.own_file(job.agent_sha256)
    wanted = [manifests.member_of(every, i) for i in range(job.members)]
    frozen = {k: manifests.freeze(v) for k, v in vars(job.config).items() if k not in results.HOW}

    def answered(member):
        config = frozen | {k: v for k, v in member.items() if k in frozen}
        return (member["seed"], agent | {"config": config}) in there

    return [member for member in wanted if not answered(member)]


def left(entries: Sequence[Entry], published: Sequence[Seed]) -> list[Entry]:
    """What is missing of them."""
    absent = [(entry, missing(entry, published)) for entry in entries]
    return [rest(entry, members) for entry, members in absent if members]


def rest(entry: Entry, members: Sequence[dict[str, Any]]) -> Entry:
    """An entry with these of its members alone, or whole, where they are no stack by themselves."""
    lacking = lambda name, several: [x for x in several if any(m[name] == x for m in members)]
    there = {name: value for name, value in entry.fields.items() if name in members[0]}
    values = {name: lacking(name, several) for name, several in there.items()}
    seeds = tuple(lacking("seed", entry.seeds))
    fewer = {"seeds": seeds} if len(seeds) < len(entry.seeds) else {}
    fewer |= {name: few for name, few in values.items() if len(few) < len(there[name])}
    part = "-".join(f"{name}-{plain(few)}" for name, few in fewer.items())
    common, own = ({k: values.get(k, v) for k, v in of.items()} for of in (entry.common, entry.own))
    some = replace(entry, seeds=seeds, common=common, own=own, part=part)
    return some if some.members == len(members) < entry.members else entry


def status(entries: Sequence[Entry], published: Sequence[Seed]) -> list[tuple[str, ...]]:
    rows = [("group", "run", "members", "missing", "about")]
    for entry in entries:
        absent = missing(entry, published)
        cost = duration(rest(entry, absent).cost().seconds) if absent else "done"
        rows.append((entry.group, entry.name, str(entry.members), str(len(absent)), cost))
    return rows
