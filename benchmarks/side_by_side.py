"""How benchmarks here are run: contestants interleaved in one process, medians, ratios to a baseline."""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

import regard

__all__ = ["device_times", "header", "race", "table"]


INTERLEAVED = "times are medians of interleaved runs; ratios are taken within this run"


def header(title: str, how: str = INTERLEAVED) -> None:
    """The hardware, the versions, the command and how it was measured, so that a number can be judged."""
    print(f"# {title}\n")
    print(f"- machine: {cpu_name()}, {torch.get_num_threads()} threads, {platform.system()}")
    if torch.cuda.is_available():
        print(f"- gpu: {torch.cuda.get_device_name()}")
    versions = [f"regard {regard.__version__}", f"torch {torch.__version__}"]
    if torch.cuda.is_available() and find_spec("triton"):
        versions.append(f"triton {version('triton')}")
    print(f"- versions: {', '.join([*versions, f'Python {platform.python_version()}'])}")
    print(f"- command: python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}".rstrip())
    print(f"- {how}\n")


def cpu_name() -> str:
    """The processor as the system names it, with its widest vector unit."""
    name = platform.processor() or platform.machine()
    if platform.system() == "Linux":
        text = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
        names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("Model name")]
        name = names[0] if names else name
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def race(
    contestants: dict[str, Callable[[], object]],
    repeats: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each contestant; one warm-up each, then each once per round."""
    for run in contestants.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            start = clock()
            run()
            times[name].append(clock() - start)
    return {name: statistics.median(spent) for name, spent in times.items()}


def device_times(run: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of each run on the GPU; runs are queued without waiting, as a model queues its calls."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    torch.cuda.synchronize()
    for start, stop in events:
        start.record()
        run()
        stop.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(stop) for start, stop in events]


def table(case: str, seconds: dict[str, float], baseline: str) -> None:
    """One row per contestant: milliseconds, time relative to the baseline, speed relative to it."""
    print(f"## {case}\n")
    print("| who | ms | time / baseline | speed / baseline |\n| --- | ---: | ---: | ---: |")
    for name, spent in seconds.items():
        ratio = spent / seconds[baseline]
        mark = " (baseline)" if name == baseline else ""
        print(f"| {name}{mark} | {1e3 * spent:.1f} | {ratio:.3f} | {1 / ratio:.2f} |")
    print(flush=True)
