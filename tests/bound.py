"""A command that ends with the process that started it, however that ends: `python bound.py PARENT COMMAND…`.

On Linux the kernel sends it SIGKILL when the parent dies, even of SIGKILL. That is arranged here and not by a
function that `subprocess` calls after its fork, which is not safe in a process with threads. Other systems
have no such thing: there only a run that ends in order stops what it has started.
"""

from __future__ import annotations

import os
import sys

__all__ = ["end_with"]

PR_SET_PDEATHSIG, SIGKILL = 1, 9


def end_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent dies; end it now if that has happened."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit("the process that wanted this one has ended")


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
