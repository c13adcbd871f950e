"""Start of the process: the lifeline first, then everything else."""

# The order is the point: a supervisor that dies while the rest imports must not leave this
# process behind, so nothing heavier than `os` and `threading` comes before `hold()`.
from omni_jev_worker import lifeline

if __name__ == "__main__":
    lifeline.hold()

import faulthandler
import os
import sys

from omni_jev_worker import cli


def start() -> None:
    """Run the worker and end the process with its exit code."""
    # SIGABRT then shows every thread's stack, which is how a hung worker explains itself.
    faulthandler.enable()
    code = cli.main(sys.argv[1:])
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    # Not sys.exit: the interpreter's own end would run into a thread that is inside torch.
    os._exit(code)


if __name__ == "__main__":
    start()
