"""CPU times for comparisons, robust against other work on the machine."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median

import torch

__all__ = ["Clock", "machine", "medians", "threads"]

Clock = Callable[[Mapping[str, Callable[[], object]]], dict[str, float]]


def medians(
    tasks: Mapping[str, Callable[[], object]], rounds: int = 5, at_least: float = 0.5
) -> dict[str, float]:
    """The median CPU time of each task. The tasks run in turns, so that all run under the same conditions.

    There are at least `rounds` rounds, and up to 99 while the total is below `at_least` seconds.

    >>> sorted(medians({"nothing": lambda: None, "little": lambda: sum(range(9))}, at_least=0.0))
    ['little', 'nothing']
    """
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()
    begun = time.perf_counter()
    for done in range(99):
        if done >= rounds and time.perf_counter() - begun > at_least:
            break
        for name, task in tasks.items():
            # Use CPU time: claims are measured on one thread, and time of other processes must not count.
            start = time.process_time()
            task()
            times[name].append(time.process_time() - start)
    return {name: median(values) for name, values in times.items()}


def machine() -> str:
    """A description of the machine; claims are measured on one thread.

    >>> "one thread" in machine()
    True
    """
    chip = platform.processor() or platform.machine()
    return f"{chip}, one thread on {os.cpu_count()} cores, PyTorch {torch.__version__}"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within the block, run PyTorch on `count` threads.

    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
