"""python -m vinerl.bench.plans.leash COMMAND ...: vinerl, asked to stop when its input ends.

Whoever starts it holds the other end of a pipe. However that process goes, killed or done, the
pipe closes with it, and what it started does not run on unseen.
"""

import os
import runpy
import signal
import threading


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_watch, daemon=True).start()
    runpy.run_module("vinerl", run_name="__main__")
