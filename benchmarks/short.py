"""What short calls cost on the CPU, next to PyTorch's own attention: what is left is mostly Python.

python benchmarks/short.py [--n 16 64 128] [--masks 1024] [--batch 2048]

Each mask is raced against SDPA with the same mask as a bool tensor, and `observe` of many texts of 4 tokens
against SDPA; these ratios are medians of rounds in which the two take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from side_by_side import header

import regard
from regard import Causal, ColumnMass, Decay, Entropy, MaxScore, TopK, Window, attention, observe
from regard.masks import (
    BigBird,
    Chunk,
    Dense,
    Documents,
    Longformer,
    Mask,
    RandomBlocks,
    Strided,
    Where,
)
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


def masks(n: int, heads: int) -> dict[str, Mask]:
    return {
        "Causal() & Window": Causal() & Window(n // 8),
        "Chunk": Chunk(n // 8),
        "Documents": Causal() & Documents(ids=torch.arange(n) // (n // 5)),
        "Longformer": Longformer(n // 8, 2),
        "Strided": Strided(7),
        "RandomBlocks, blocks of 16": RandomBlocks(16, 3, n),
        "RandomBlocks, blocks of 64": RandomBlocks(64, 2, n),
        "BigBird, blocks of 16": BigBird(16, n),
        "BigBird, blocks of 64": BigBird(64, n),
        "Where": Where(lambda b, h, q, k: (q - k) % 3 == 0),
        "Where, window by head": Where(lambda b, h, q, k: (k <= q) & (q - k < 32 * (h + 1))),
        "Where, stride by head": Where(lambda b, h, q, k: (k <= q) & ((q - k) % (h + 1) == 0)),
        "Dense, 2-d": Dense(torch.rand(n, n) < 0.5),
        "Dense, by head": Dense(torch.rand(1, heads, n, n) < 0.5),
    }


def ratio(theirs: Callable[[], object], ours: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Milliseconds of theirs, and how many times as long ours takes: processor time, medians over rounds."""
    times: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        start = time.process_time()
        theirs()
        middle = time.process_time()
        ours()
        times.append((middle - start, time.process_time() - middle))
    # In the first round caches are filled.
    times = times[1:]
    return 1e3 * statistics.median(a for a, _ in times), statistics.median(b / a for a, b in times)


def race_masks(n: int, heads: int) -> None:
    q, k, v = torch.randn(3, 1, heads, n, 64).unbind()
    print(f"## masks, {heads} heads, n = {n}, d = 64\n")
    print("| mask | SDPA, ms | time / SDPA |\n| --- | ---: | ---: |")
    for name, mask in masks(n, heads).items():
        allowed = mask.bind(1, heads).dense(n)
        took, times = ratio(
            lambda allowed=allowed: F.scaled_dot_product_attention(q, k, v, allowed),
            lambda mask=mask: attention(q, k, v, mask),
            25,
        )
        print(f"| {name} | {took:.1f} | {times:.2f} |", flush=True)
    print()


def race_batch(batch: int, n: int = 4, heads: int = 16) -> None:
    q, k, v = torch.randn(3, batch, heads, n, 64).unbind()
    ids = torch.randint(2, (batch, n)).sort(1).values
    mask = Documents(ids=ids)
    allowed = mask.dense(n)
    print(f"## 2-d Documents, batch {batch}, {heads} heads, n = {n}, d = 64\n")
    print("| statistics | SDPA, ms | time / SDPA |\n| --- | ---: | ---: |")
    for stats in ([Entropy()], [ColumnMass()], [Decay()], [*ROWS, ColumnMass(), Decay(), TopK(2)]):
        took, times = ratio(
            lambda: F.scaled_dot_product_attention(q, k, v, allowed),
            lambda stats=stats: observe(q, k, v, mask, stats=stats),
            5,
        )
        names = ", ".join(statistic.name for statistic in stats)
        print(f"| {names} | {took:.0f} | {times:.2f} |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", nargs="+", type=int, default=[16, 64, 128])
    parser.add_argument("--masks", nargs="*", type=int, default=[1024], help="lengths of the race of masks")
    parser.add_argument("--batch", nargs="*", type=int, default=[2048], help="batches of short texts")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    header("Short calls", f"processor time of a call, the least of {ROUNDS} interleaved rounds")
    for n in args.n:
        times = race(contestants(n))
        print(f"## 8 heads, n = {n}, d = 64\n\n| who | µs | time / SDPA, causal |\n| --- | ---: | ---: |")
        for name, spent in times.items():
            print(f"| {name} | {spent:.0f} | {spent / times['SDPA, causal']:.1f} |")
        print(flush=True)
    for n in args.masks:
        for heads in (8, 1):
            race_masks(n, heads)
    for batch in args.batch:
        race_batch(batch)


if __name__ == "__main__":
    main()
