"""What attention takes of a GPU's power: time, clock, watts and energy of a call, side by side.

Under load such a device is at its limit of power, and lowers its clock: then time follows energy.
Zeros as inputs take little energy, and say how fast a kernel is when nothing holds it back.

python benchmarks/power_gpu.py [--n 65536] [--heads 4]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable

import torch
from gpu import case, contestants, sdpa
from side_by_side import header
from torch.nn.attention import SDPBackend

# Seconds that a contestant runs, and those of them that are not counted.
TURN, SETTLE = 1.3, 0.5
# Calls that are queued one after the other: otherwise the device rests between them.
QUEUED = 4
QUERY = "clocks.sm,power.draw.instant"


class Meter:
    """The device's clock in MHz and its power in W, several times a second, by nvidia-smi."""

    def __init__(self) -> None:
        command = [
            "nvidia-smi",
            f"--query-gpu={QUERY}",
            "--format=csv,noheader,nounits",
            "-i",
            "0",
            "-lms",
            "40",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.samples: list[tuple[float, float, float]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            clock, power = (float(x) for x in line.split(","))
            self.samples.append((time.perf_counter(), clock, power))

    def since(self, moment: float) -> tuple[float, float]:
        found = [(clock, power) for at, clock, power in self.samples if at > moment]
        if not found:
            raise SystemExit("nvidia-smi says nothing about this device's clock and power.")
        return statistics.mean(clock for clock, _ in found), statistics.mean(power for _, power in found)


def turn(run: Callable[[], object], meter: Meter) -> tuple[float, float, float]:
    """Milliseconds of a run after running for a while, MHz and W meanwhile."""
    run()
    torch.cuda.synchronize()
    begun, spent = time.perf_counter(), []
    while time.perf_counter() - begun < TURN:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(QUEUED):
            run()
        stop.record()
        stop.synchronize()
        if time.perf_counter() - begun > SETTLE:
            spent.append(start.elapsed_time(stop) / QUEUED)
    return statistics.median(spent), *meter.since(begun + SETTLE)


def compare(inputs: str, n: int, heads: int, meter: Meter) -> None:
    """One table of contestants on these inputs, one after the other."""
    torch.manual_seed(0)
    here = case(f"{inputs}, unmasked", n, 1, heads, 128, None)
    if inputs == "zeros":
        for x in (here.q, here.k, here.v):
            x.zero_()
    ours = contestants(here, {"forward", "rows", "everything"})
    runs = {"SDPA cuDNN": sdpa(here, SDPBackend.CUDNN_ATTENTION), **ours}
    print(f"## {here.name}\n\n| who | ms | MHz | W | J | time / cuDNN | energy / cuDNN |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    first: tuple[float, float] | None = None
    for name, run in runs.items():
        spent, clock, power = turn(run, meter)
        energy = spent * power / 1e3
        first = first or (spent, energy)
        ratios = f"{spent / first[0]:.2f} | {energy / first[1]:.2f}"
        print(f"| {name} | {spent:.2f} | {clock:.0f} | {power:.0f} | {energy:.2f} | {ratios} |")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=65536)
    parser.add_argument("--heads", type=int, default=4)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no NVIDIA GPU here, or PyTorch was built without CUDA.")
    if shutil.which("nvidia-smi") is None:
        parser.error("there is no nvidia-smi here, which says what a device takes.")
    header(
        "What attention takes of a GPU's power", f"each runs for {TURN} s, of which {SETTLE} s do not count"
    )
    meter = Meter()
    for inputs in ("normal", "zeros"):
        compare(inputs, options.n, options.heads, meter)
    meter.process.terminate()


if __name__ == "__main__":
    main()
