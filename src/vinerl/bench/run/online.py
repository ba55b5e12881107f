"""The online phase of a job."""

from fractions import Fraction

import numpy as np

from vinerl.bench.run import provenance
from vinerl.bench.run.jobs import Job
from vinerl.bench.run.runs import Subject
from vinerl.envs.live import Live
from vinerl.train import online
from vinerl.train.groups import Groups
from vinerl.train.online import Online
from vinerl.types import Params, Spec


def phase(job: Job, subject: Subject, among: Groups | None) -> Online:
    """Before its first step, with environments in processes that are to be closed."""
    assert job.task is not None
    live = Live(job.task.env, job.members, job.workers or provenance.cores())
    try:
        return Online(
            subject.agent_of(),
            subject.members,
            subject.spec,
            live,
            capacity=job.online_steps,
            horizon=job.config.act_steps,
            utd=Fraction(job.utd),
            balanced=job.balanced,
            see=subject.see,
            label=sparse if job.task.sparse else lambda reward: reward,
            among=among,
        )
    except BaseException:  # no memory for what it will keep, say
        live.close()
        raise


def sparse(reward: np.ndarray) -> np.ndarray:
    """As the rewards of such a task's data are made."""
    return np.where(reward != 0, -1.0, 0.0)


def replay_like(job: Job, spec: Spec, step: int) -> Params:
    """What a checkpoint of that step holds of the online phase, in shape; None before it."""
    count = step - job.steps
    return online.blank(spec, job.members, job.config.act_steps, count) if count > 0 else None
