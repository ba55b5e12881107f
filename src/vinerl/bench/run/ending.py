"""The end of a run, in words."""

from datetime import datetime

from vinerl.bench.run import runs
from vinerl.bench.run.progress import duration
from vinerl.bench.run.runs import Run
from vinerl.train import metrics


def tell(run: Run) -> None:
    """Every member of which there is something to say in a line, and where to look."""
    manifest, lines = run.manifest, run.metrics
    last = manifest["resumed"][-1]["at"] if manifest["resumed"] else manifest["started"]
    took = datetime.fromisoformat(manifest["ended"]) - datetime.fromisoformat(last)
    since = " since it was resumed" if manifest["resumed"] else ""
    print(f"\ndone in {duration(took.total_seconds())}{since}")
    at, loud = metrics.curve(lines, "eval/success")
    quiet = metrics.curve(lines, "eval/success_noise0")[1]
    for i, member in enumerate(manifest["members"]):
        parts = [f"success {loud[-1][i]:.2f}"] if len(loud) else []
        parts += [f"(without noise {quiet[-1][i]:.2f})"] if len(quiet) else []
        if member["status"] != "learning":
            parts.append(f"frozen at step {member['frozen_at']}: {member['status']}")
        if parts:
            print(" ".join([f"  {runs.title(member):<24}", *parts]))
    if len(loud):
        final = manifest["run"]["final_episodes"]
        count = final or manifest["run"]["eval_episodes"]
        for name, of in runs.groups(manifest["members"]).items():
            what = f"mean success {loud[-1][of].mean():.3f} at step {at[-1]}"
            print(" ".join(filter(None, (" ", name, what))) + f", {len(of)} x {count} episodes")
    pictures = [str(p) for p in sorted(run.path.glob("*.png"))]
    print("\nlook at " + "\n        ".join([*pictures, str(run.path / "manifest.json")]))
    if manifest["task"]:
        print(f"or run  vinerl evaluate {run.path} --video")
    else:
        print(f'or call vinerl.load("{run.path}"): from observations to actions, in NumPy')
