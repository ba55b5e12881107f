"""Runs in words: a list, and side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vinerl.bench.numbers.stats import area, bootstrap
from vinerl.bench.run.jobs import portable
from vinerl.bench.run.runs import Run, folder, groups, names, seal, title
from vinerl.errors import InputError
from vinerl.train import metrics

ASIDE = ("started", "ended", "workers", "data.path", "hardware.platform")  # mean little


def listing(below: Path) -> str:
    found = sorted(below.glob("**/manifest.json"))
    if not found:
        raise InputError(f"no runs below {below}")
    rows = [("run", "agent", "members", "step", "success", "remarks")]
    for path in found:
        run = Run(path.parent)
        try:
            manifest, lines = run.manifest, run.metrics
        except InputError as error:
            rows.append((str(run.path), "-", "-", "-", "-", str(error)))
            continue
        last = lines[-1]["step"] if lines else 0
        agent, members = portable(manifest["agent"]["name"]), str(len(manifest["members"]))
        rows.append((str(run.path), agent, members, str(last), score(run), remarks(run)))
    return table(rows)


def score(run: Run, name: str = "eval/success") -> str:
    """Means and intervals over seeds where it was told last, and that step."""
    steps, values = metrics.curve(run.metrics, name)
    return f"{intervals(run, values[-1])} at {steps[-1]}" if len(steps) else "-"


def last_three(run: Run) -> str:
    """The same for the mean of the last three evaluations."""
    steps, values = metrics.curve(run.metrics, "eval/success")
    return intervals(run, values[-3:].mean(axis=0)) if len(steps) > 2 else "-"


def area_of(run: Run) -> str:
    """Mean success over the evaluations on the way, from the first to the last."""
    steps, values = metrics.curve(run.metrics, "eval/success")
    return f"{intervals(run, area(steps, values))} to {steps[-1]}" if len(steps) > 1 else "-"


def intervals(run: Run, scores: np.ndarray) -> str:
    """Mean and 95% interval over seeds, for each setting of a stack."""
    parts = []
    for name, of in groups(run.manifest["members"]).items():
        low, high = bootstrap(scores[of])
        parts.append(f"{name} {np.mean(scores[of]):.3f} [{low:.3f}, {high:.3f}]".strip())
    return "; ".join(parts)


def remarks(run: Run) -> str:
    """What a reader of the number must know."""
    manifest = run.manifest
    origin = manifest["data"]["origin"]
    said = [f"{len(frozen(manifest))} frozen"] if frozen(manifest) else []
    said += [f"{origin} data"] if origin != "official" else []
    made, used = mujoco(manifest)
    said += [f"data of MuJoCo {made}, run under {used}"] if made and made != used else []
    edited = any("agent_sha256" in x for x in manifest.get("resumed", []))
    said += ["its agent's file was changed on the way"] if edited else []
    said += ["not finished"] if not manifest["ended"] else []
    return ", ".join(said)


def frozen(manifest: dict[str, Any]) -> list[str]:
    """Members that did not learn to the end, and why."""
    bad = [m for m in manifest["members"] if m["status"] != "learning"]
    return [f"{title(m)} at {m['frozen_at']}: {m['status']}" for m in bad]


def mujoco(manifest: dict[str, Any]) -> tuple[str | None, str]:
    """The version the data were made with, where that is known, and all that the run went under."""
    again = [x["versions"]["mujoco"] for x in manifest.get("resumed", []) if "versions" in x]
    used = dict.fromkeys([manifest["versions"]["mujoco"], *again])
    return manifest["data"]["card"].get("versions", {}).get("mujoco"), " and ".join(used)


def footnotes(runs: Sequence[Run]) -> list[str]:
    """What stands below a picture: which runs it shows, and what they were made from and with."""
    found: dict[str, list[str]] = {}
    for run in runs:
        found.setdefault(_made_of(run), []).append(folder(run))
    return [f"{', '.join(dict.fromkeys(paths))}: {facts}" for facts, paths in found.items()]


def _made_of(run: Run) -> str:
    manifest, lines = run.manifest, run.metrics
    asked = manifest["run"]["steps"] + manifest["run"].get("online_steps", 0)
    done = lines[-1]["step"] if lines else 0
    made, used = mujoco(manifest)
    seeds = dict.fromkeys(str(m["seed"]) for m in manifest["members"])
    said = [f"{manifest['data']['origin']} data"]
    said += [f"MuJoCo {used}" + (f" (data {made})" if made and made != used else "")]
    said += [f"{asked} steps" if done == asked else f"{done} of {asked} steps"]
    said += [f"seeds {' '.join(seeds)}", f"commit {short_commit(manifest)}"]
    return ", ".join(said + [f"frozen: {member}" for member in frozen(manifest)])


def short_commit(manifest: dict[str, Any]) -> str:
    head, *dirty = manifest["commit"].split("-")
    return "-".join([head[:7], *dirty])


def comparison(runs: Sequence[Run]) -> str:
    """Scores, which runs they are of, and every entry of the manifests that is not the same."""
    manifests = [run.manifest for run in runs]
    rows = [("", *names(runs)), ("success", *map(score, runs)), ("remarks", *map(remarks, runs))]
    if any(map(frozen, manifests)):
        rows.append(("frozen", *("; ".join(frozen(m)) or "-" for m in manifests)))
    told = [("without noise", *(score(run, "eval/success_noise0") for run in runs))]
    told.append(("last three evaluations", *map(last_three, runs)))
    told.append(("area under the curve", *map(area_of, runs)))
    if any(score(run) == "-" for run in runs):  # of data without an environment this is all
        how = {"mean Q": "critic/q", "distance to the data": "actor/bc"}
        told += [(words, *(score(run, name) for run in runs)) for words, name in how.items()]
    rows += [row for row in told if {*row[1:]} != {"-"}]
    rows.append(("data", *(f"{m['data']['sha256'][:12]} {m['data']['origin']}" for m in manifests)))
    rows.append(("MuJoCo", *(mujoco(m)[1] for m in manifests)))
    rows.append(("commit", *map(short_commit, manifests)))
    rows.append(("manifest", *(seal(m)[:12] for m in manifests)))
    flat = [flatten(manifest) for manifest in manifests]
    for key in dict.fromkeys(key for entries in flat for key in entries):
        values = [entries.get(key, "-") for entries in flat]
        if key not in ASIDE and not key.startswith("members") and len(set(map(str, values))) > 1:
            rows.append((key, *(short(v) for v in values)))
    return table(rows)


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """A manifest as dotted names."""
    if not isinstance(tree, dict):
        return {prefix: tree}
    parts = (flatten(v, f"{prefix}.{k}" if prefix else k) for k, v in tree.items())
    return {name: value for part in parts for name, value in part.items()}


def short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 32 else f"{text[:12]}..{text[-12:]}"


def table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    line = lambda row: "  ".join(f"{x:<{w}}" for x, w in zip(row, widths, strict=True)).rstrip()
    return "\n".join(map(line, rows))
