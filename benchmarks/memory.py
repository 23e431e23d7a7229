"""Peak memory against length, one head: the slope is what counts. Each case runs in a process of its own.

python benchmarks/memory.py [--quick]
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from pathlib import Path

import torch
from side_by_side import header

import regard
from regard import Causal, Window
from regard.stats import (
    ColumnMass,
    Decay,
    Entropy,
    HeadDivergence,
    Histogram,
    MaxScore,
    MeanDistance,
    NormWeighted,
    Pooled,
    ReceptiveWindow,
    SegmentMass,
    SinkMass,
    SinkRate,
    TopK,
    ValueWeighted,
    VerticalSlash,
)

DIM = 64


def all_statistics(n: int) -> list:
    return [
        *(Entropy(), MaxScore(), MeanDistance(), SinkMass(), SegmentMass.bins(10, n), ValueWeighted()),
        *(NormWeighted(torch.randn(1, DIM, DIM)), TopK(8), ColumnMass(), Decay(), ReceptiveWindow()),
        *(Pooled(max(1, n // 512), "both"), VerticalSlash(16), Histogram(), HeadDivergence(), SinkRate()),
    ]


def eager(q, k, v):
    weights = (q @ k.transpose(-1, -2) * DIM**-0.5).softmax(-1)
    return weights @ v, weights


CASES = {
    "eager with weights": lambda q, k, v: eager(q, k, v),
    "attention, causal": lambda q, k, v: regard.attention(q, k, v, Causal()),
    "attention, backend torch, causal": lambda q, k, v: regard.attention(q, k, v, Causal(), backend="torch"),
    "attention, causal window of 1024, with gradients": lambda q, k, v: torch.autograd.grad(
        regard.attention(
            q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), Causal() & Window(1024)
        ).sum(),
        (q, k, v),
    ),
    "observe, all statistics, causal": lambda q, k, v: regard.observe(
        q, k, v, Causal(), stats=all_statistics(q.shape[2])
    ),
}


def resident(field: str) -> int:
    """A line of /proc/self/status in bytes: VmRSS is memory in use, VmHWM its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise SystemExit("this benchmark reads /proc/self/status and needs Linux")


def measure(case: str, n: int) -> None:
    """Print the extra bytes one call needs at its peak, its result included."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, n, DIM) for _ in range(3))
    small = tuple(x[:, :, :256].clone() for x in (q, k, v))
    CASES[case](*small)  # libraries load their code and threads on the first call
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = resident("VmRSS")
    result = CASES[case](q, k, v)
    print(resident("VmHWM") - before)
    del result


def peak(case: str, n: int) -> int | None:
    command = [sys.executable, __file__, "--measure", case, str(n)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(run.stdout) if run.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--measure", nargs=2, metavar=("CASE", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure[0], int(args.measure[1]))
        return
    header("Peak extra memory, one head, d = 64, float32 (MiB)", "each case in a process of its own")
    lengths = (4096, 8192) if args.quick else (4096, 8192, 16384, 32768, 65536, 131072)
    print("| case | " + " | ".join(f"{n // 1024}k" for n in lengths) + " | slope |")
    print("| --- |" + " ---: |" * (len(lengths) + 1))
    for case in CASES:
        most = 16384 if case.startswith("eager") else lengths[-1]
        found = {n: peak(case, n) for n in lengths if n <= most}
        cells = [f"{found[n] / 2**20:.0f}" if found.get(n) else "–" for n in lengths]
        print(f"| {case} | " + " | ".join(cells) + f" | {slope(found):.2f} |", flush=True)
    print("\nslope: of log memory over log length, by least squares over the upper half of the lengths.")


def slope(found: dict[int, int | None]) -> float:
    """How memory grows: 1 is linear, 2 is the square of the length. Small lengths only show fixed buffers."""
    points = [(math.log(n), math.log(max(b, 1))) for n, b in found.items() if b]
    points = points[-max(2, len(points) // 2) :]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    across = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / across


if __name__ == "__main__":
    main()
