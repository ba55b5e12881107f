"""Published seeds made by hand."""

from pathlib import Path
from typing import Any

from vinerl import disk
from vinerl.bench.numbers import results
from vinerl.bench.run import jobs, manifests

PROVENANCE = {
    "run": "r",
    "manifest": "m" * 64,
    "data_sha256": "d" * 64,
    "commit": "c" * 40,
    "source_sha256": "s" * 64,
    "versions": {"jax": "0.11.2", "mujoco": "3.2.7"},
    "exact": "not bit-exact",
    "device": "NVIDIA H200",
    "started": "2026-01-01",
    "ended": "2026-01-02",
}


def publish(
    folder: Path,
    agent: str,
    task: str,
    steps: int,
    scores: dict[int, float],
    way: dict[int, float] | None = None,
    fields: dict[str, Any] | None = None,
    metrics: dict[str, Any] | None = None,
    ended: bool = True,
    **recipe: Any,
) -> None:
    """A file for each seed with its score at the end, or of the last evaluation if it was cut off;
    on the way all of them had the same."""
    job = jobs.resolve(jobs.Request(agent=agent, task=task, fields=fields or {}))
    frozen = {k: manifests.freeze(v) for k, v in vars(job.config).items() if k not in results.HOW}
    whole = {
        "task": task,
        "data": {"origin": "official", "sha256": "d" * 64},
        "simulator": {"mujoco": "3.2.7", "ogbench": "1.2.2"},
        "protocol": {"eval_episodes": 10, "final_episodes": 50, "normalise": job.normalise},
        "agent": {"name": agent, "config": frozen},
        "steps": steps,
    } | recipe
    for seed, score in scores.items():
        curve = dict(way or {}) | ({} if ended else {steps: score})
        final = {"step": steps, "success": score, "success_noise0": score}
        facts = {
            "schema": results.SCHEMA,
            "recipe": whole,
            "seed": seed,
            "status": {"status": "learning"},
            "curve": {"step": list(curve), "success": list(curve.values())},
            "final": final if ended else None,
            "metrics": metrics or {},
            "provenance": PROVENANCE,
        }
        path = folder / "seeds" / results.where(whole) / f"seed-{seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_sealed(path, facts)
