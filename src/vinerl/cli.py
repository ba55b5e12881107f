"""The command line. Only the command that is called is imported, so --help is quick."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from vinerl import __version__
from vinerl.errors import DeviceError, InputError, WorkerError

COMMANDS = {
    "train": "train an agent offline; without arguments: VINE learns a maze on this machine",
    "resume": "go on with a run that was stopped, or lengthen it",
    "evaluate": "run a trained policy in its environment, with --video for a film",
    "list": "the runs below a folder",
    "compare": "runs side by side, and what differs between them",
    "plot": "draw a run's pictures again",
    "data": "make a dataset, get the official one, check a file, draw it",
    "controllers": "train what walks the ant through the mazes",
    "results": "the table of all published seeds; publish a run",
    "queue": "what is to be measured next, and measure it",
    "sweep": "run a grid on this machine or a cluster, and tabulate it",
    "reproduce": "a study (toy, ladder, curves, ...), or a group of the queue",
    "report": "one page with every published number and where it comes from",
    "doctor": "check versions, device, rendering, disk, and train ten steps",
}

HELP = """usage: vinerl COMMAND ...

{commands}

vinerl COMMAND --help says more. A run is a folder (./runs/NAME unless --out says otherwise).
"""


def main(args: Sequence[str] | None = None) -> None:
    """Run one command; what the user can put right is said in a line and exits with 2."""
    args = list(sys.argv[1:] if args is None else args)
    if not args or args[0] in ("-h", "--help"):
        print(HELP.format(commands="\n".join(f"  {k:<11} {v}" for k, v in COMMANDS.items())))
        return
    if args[0] == "--version":
        print(__version__)
        return
    try:
        if args[0] not in COMMANDS:
            raise InputError(f"unknown command {args[0]!r}; there are {', '.join(COMMANDS)}")
        import_module("vinerl.bench.commands.training").COMMANDS[args[0]](args[1:])
    except InputError as error:
        print(f"vinerl: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except DeviceError as error:
        print(f"vinerl: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except WorkerError as error:
        told = {"train": "\nvinerl resume RUN goes on from there"}
        told |= dict.fromkeys(("data", "sweep", "resume"), "\nthe same command goes on from there")
        print(f"vinerl: {error}{told.get(args[0], '')}", file=sys.stderr)
        raise SystemExit(1) from None
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except OSError as error:
        if error.filename is None:
            raise
        print(f"vinerl: {error.filename}: {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
