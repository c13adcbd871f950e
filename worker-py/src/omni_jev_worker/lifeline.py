"""Ends this process when its supervisor is gone, from the first moment on.

With ``OMNI_JEV_LIFELINE=stdin`` standard input is a pipe that the supervisor holds open. Its end
of file means that the supervisor is gone, whatever killed it. On Linux the kernel is asked for a
parent-death signal as well (``prctl(2)``, ``PR_SET_PDEATHSIG``), which also works while this
process is stuck in native code that never releases the interpreter's lock.

Without the variable standard input is ignored, so that a worker started by hand or by ``nohup``
keeps running.
"""

import os
import sys
import threading

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def hold() -> bool:
    """Start watching the supervisor; say whether there is one to watch.

    Exits the process at once when the supervisor is already gone.
    """
    if os.environ.get("OMNI_JEV_LIFELINE") != "stdin":
        return False
    threading.Thread(target=_exit_at_end_of_file, name="lifeline", daemon=True).start()
    if sys.platform == "linux":
        _ask_for_parent_death_signal()
    if not _parent_is_the_supervisor():
        # The signal is only sent for a death after the call, so a parent that died before it
        # shows as another parent here.
        os._exit(0)
    return True


def _exit_at_end_of_file() -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        # A closed descriptor tells the same story: nobody holds the other end for us.
        pass
    # Not sys.exit: no other thread, atexit handler or open request may delay it.
    os._exit(0)


def _ask_for_parent_death_signal() -> None:
    import ctypes

    # A refusal (an exotic sandbox) leaves the pipe as the only lifeline, which is enough.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def _parent_is_the_supervisor() -> bool:
    expected = os.environ.get("OMNI_JEV_SUPERVISOR_PID", "")
    return not expected.isdigit() or os.getppid() == int(expected)
