"""Cells on a Ray cluster: one a task, which begins again on another node where its own has died.

All nodes see the sweep's folder and the datasets under the same paths. Nothing reports to Ray's
makers, and without an address nothing listens beyond this machine.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from vinerl.bench.plans.crew import Submit
from vinerl.errors import InputError, WorkerError

LOCAL = ("127.0.0.1", "localhost")


@contextmanager
def nodes(address: str) -> Iterator[Submit]:
    """Of the cluster at HOST:PORT, or of one that lives on this machine as long as we do."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if not address or address.rpartition(":")[0] in LOCAL:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # what keeps Ray on the loopback
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError("--ray needs an extra package: pip install 'vinerl[cluster]'") from error
    alone = {} if address else {"include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, **alone)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise InputError(f"--ray {address}: no cluster to be had there ({error})") from error
    try:
        # Ray hides GPUs from tasks that do not ask for one.
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=-1)
        yield lambda work, *given: task(work).remote(*given).future()
    except ray.exceptions.RayTaskError:
        raise  # a fault of ours, to be seen whole
    except ray.exceptions.RayError as error:
        raise WorkerError(f"--ray {address}: the cluster failed ({error})") from error
    finally:
        ray.shutdown()
