"""Value gradients through flow policies.

run = vinerl.train(task="pointmaze-medium-navigate-singletask-task1-v0", seeds=(0, 1))
policy = vinerl.load(run.path)
action = policy(obs)
"""

from typing import TYPE_CHECKING, Any

# `vinerl.train` is the function below; the package of that name is imported first, so that
# importing one of its modules later does not put it back in the function's place.
import vinerl.train  # noqa: F401

if TYPE_CHECKING:
    from vinerl.bench.run.policy import Policy, Weights
    from vinerl.bench.run.runs import Run

__version__ = "0.1.0"
__all__ = ["load", "train"]


def train(agent: str = "vine", **options: Any) -> "Run":
    """Train as the command `vinerl train AGENT` does, and return the run.

    Options are the command's (task, data, seeds, steps, eval_every, out, ...); any other name is a
    field of the agent's config (alpha=3.0, or alpha=(1.0, 3.0) for a stack).
    """
    from vinerl.bench.run import jobs, running

    return running.train(jobs.resolve(jobs.request(agent, options)))


def load(
    run: Any,
    member: int = 0,
    step: int | None = None,
    weights: "Weights" = "float32",
    *,
    noise: float | None = None,
    stop_at: int | None = None,
    best_of: int | None = None,
    seed: int = 0,
    agent: str | None = None,
) -> "Policy":
    """The policy of one member of a run: `policy(obs)` takes and gives NumPy arrays.

    The actions of one call are for `policy.horizon` environment steps. `noise` (0.0 acts without),
    `stop_at` and `best_of` are those of `vinerl evaluate`; without them it acts as the run did.

    step     of the checkpoint, else the newest
    weights  "bfloat16" keeps the kernels in half the memory; on a CPU it makes no action faster
    seed     of the noise: loaded twice with one seed, a policy acts the same, call by call
    agent    "FILE.py:NAME": where an agent of your own is now, if not where the run found it
    """
    from vinerl.bench.run import policy

    asked = {"noise": noise, "stop_at": stop_at, "best_of": best_of}
    return policy.load(run, member, step, weights, seed, agent, **asked)
