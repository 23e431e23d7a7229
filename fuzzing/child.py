"""Work on hostile input in a process of its own, which may crash, eat memory or never end."""

from __future__ import annotations

import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable

from regard.errors import RegardError

__all__ = ["survives"]

# What reading a few kilobytes may take. Processor time, so that a slow machine has as much of it.
CPU_S = 60
MEMORY = 2 << 30
FINE, WRONG = 0, 17


def survives(work: Callable[[], None]) -> None:
    """Run in a fork: it must end by itself, in bounded memory, well or with one of our errors."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # A process with threads forks a child that uses none of them.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        _work_and_exit(work, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        raise AssertionError(f"the process was ended by {name}; SIGXCPU or SIGKILL: it never ended by itself")
    assert os.WEXITSTATUS(status) == FINE, said or f"exit status {os.WEXITSTATUS(status)}"


def _work_and_exit(work: Callable[[], None], write: int) -> None:
    """Never returns: as a second driver this process would go on for ever."""
    status = WRONG
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
        limit = _in_use() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                work()
                status = FINE
            except RegardError as error:
                status = FINE if str(error).strip() else WRONG
    except BaseException:
        os.write(write, traceback.format_exc().encode()[-4000:])
    finally:
        os._exit(status)


def _in_use() -> int:
    """The address space of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
