"""What short calls cost on the CPU, next to PyTorch's own attention: what is left is mostly Python.

python benchmarks/short.py [--n 16 64 128]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from side_by_side import header

import regard
from regard import Causal, ColumnMass, Entropy, MaxScore, TopK, Window, attention, observe
from regard.stats import MeanDistance, SinkMass

ROWS = [Entropy(), MaxScore(), SinkMass(), MeanDistance()]
ROUNDS, CALLS = 15, 10


def race(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Least processor time of a call in microseconds, over rounds in which all take turns."""
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        for _ in range(CALLS):
            run()
    for _ in range(ROUNDS):
        for name, run in runs.items():
            start = time.process_time()
            for _ in range(CALLS):
                run()
            best[name] = min(best[name], 1e6 * (time.process_time() - start) / CALLS)
    return best


def contestants(n: int) -> dict[str, Callable[[], object]]:
    q, k, v = torch.randn(3, 1, 8, n, 64).unbind()
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    return {
        "SDPA, causal": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "SDPA, bool mask": lambda: F.scaled_dot_product_attention(q, k, v, allowed),
        "attention": lambda: attention(q, k, v),
        "attention, causal": lambda: attention(q, k, v, Causal()),
        "attention, window": lambda: attention(q, k, v, Causal() & Window(8)),
        "regard.sdpa, bool mask": lambda: regard.sdpa(q, k, v, allowed),
        "observe, entropy": lambda: observe(q, k, v, Causal(), stats=[Entropy()]),
        "observe, rows": lambda: observe(q, k, v, Causal(), stats=ROWS),
        "observe, rows, columns, top keys": lambda: observe(
            q, k, v, Causal(), stats=[*ROWS, ColumnMass(), TopK(4)]
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", nargs="+", type=int, default=[16, 64, 128])
    lengths = parser.parse_args().n
    torch.set_num_threads(1)
    torch.manual_seed(0)
    header("Short calls", f"processor time of a call, the least of {ROUNDS} interleaved rounds")
    for n in lengths:
        times = race(contestants(n))
        print(f"## 8 heads, n = {n}, d = 64\n\n| who | µs | time / SDPA, causal |\n| --- | ---: | ---: |")
        for name, spent in times.items():
            print(f"| {name} | {spent:.0f} | {spent / times['SDPA, causal']:.1f} |")
        print(flush=True)


if __name__ == "__main__":
    main()
