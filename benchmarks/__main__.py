"""python -m benchmarks SUBJECT [options]"""

import os
import sys
from importlib import import_module

from vinerl.errors import InputError

SUBJECTS = {
    "update": "a gradient step of a stack, the peers' way, and what the device can do",
    "agents": "a gradient step of every agent",
    "trace": "the kernels of a gradient step, from a profile",
    "precision": "how far gradients are from float32's",
    "act": "asking a policy for actions",
    "evaluate": "episodes a second, beside the bare simulator",
    "load": "a dataset from disk to the device, beside np.load",
    "data": "making datasets, beside the bare simulator",
    "roofline": "a picture of what `update` measured",
}

STEPPED = ("data", "evaluate")  # a simulator, in this process

HELP = """usage: python -m benchmarks SUBJECT ...

{subjects}

python -m benchmarks SUBJECT --help says more. One JSON line a case, a table at the end on stderr.
"""


def main(args: list[str]) -> None:
    if not args or args[0] in ("-h", "--help"):
        print(HELP.format(subjects="\n".join(f"  {k:<9} {v}" for k, v in SUBJECTS.items())))
        return
    try:
        if args[0] not in SUBJECTS:
            raise InputError(f"unknown subject {args[0]!r}; there are {', '.join(SUBJECTS)}")
        if args[0] in STEPPED:  # one BLAS thread, as in a worker; NumPy asks when it is imported
            os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        import_module(f"benchmarks.{args[0]}").main(args[1:])
    except InputError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main(sys.argv[1:])
