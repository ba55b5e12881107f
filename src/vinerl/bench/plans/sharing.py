"""Several processes on one GPU: a share of its memory for each, and NVIDIA's MPS where it is there.

MPS lets their kernels run at the same time. Its daemon is started for the work and stopped after
it; one that a killed process has left behind is used again, and stopped. One that another process
works with is used, too, and left to that process.
"""

import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from vinerl.bench.run import provenance
from vinerl.errors import InputError
from vinerl.owner import Owner

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
PATIENCE = 10.0  # seconds: it ends once nobody uses it, and need not be waited for
MEMORY = 0.9  # of the GPU's, for all processes together
CHOSEN = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
CHOSEN += ("XLA_PYTHON_CLIENT_PREALLOCATE",)  # whoever sets one of these has chosen already


@contextmanager
def shared(jobs: int) -> Iterator[None]:
    """For processes that are started meanwhile, so many at once."""
    if jobs == 1:
        yield
        return
    before = dict(os.environ)
    if not any(name in os.environ for name in CHOSEN):
        os.environ[CHOSEN[0]] = f"{MEMORY / jobs:.2f}"
    mine = shutil.which(CONTROL) and provenance.wants_gpu() and FOLDERS[0] not in os.environ
    try:
        with _daemon() if mine else nullcontext():
            yield
    finally:
        for name in {*CHOSEN, *FOLDERS} - set(before):
            os.environ.pop(name, None)


def by_mps() -> bool:
    """Whether processes that are started now share the GPU through MPS."""
    return FOLDERS[0] in os.environ


@contextmanager
def _daemon() -> Iterator[None]:
    folder = Path(tempfile.gettempdir()) / f"vinerl-mps-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ |= dict.fromkeys(FOLDERS, str(folder))
    with ExitStack() as ours:
        with suppress(InputError):  # another process has it
            ours.enter_context(Owner(folder))
            _tell("-d")  # fails where it is running already
            ours.callback(_tell, said="quit\n")
        yield


def _tell(*flags: str, said: str = "") -> None:
    """Its output is not read: the daemon would hold the pipe."""
    nowhere = subprocess.DEVNULL
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [CONTROL, *flags],
            input=said,
            text=True,
            stdout=nowhere,
            stderr=nowhere,
            timeout=PATIENCE,
        )
