"""What observing costs on the CPU, next to SDPA and to eager attention that keeps its weights.

python benchmarks/observe_cpu.py [--quick] [--lengths 1024 8192]
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from side_by_side import header, race, table
from torch import Tensor

from regard import (
    Causal,
    ColumnMass,
    Decay,
    Entropy,
    MaxScore,
    Pooled,
    TopK,
    attention,
    explain_dispatch,
    observe,
)
from regard.stats import (
    HeadDivergence,
    Histogram,
    MeanDistance,
    NormWeighted,
    ReceptiveWindow,
    SegmentMass,
    SinkMass,
    SinkRate,
    ValueWeighted,
    VerticalSlash,
)

HEADS, DIM = 4, 64
ROWS = [Entropy(), MaxScore(), SinkMass(), MeanDistance()]


def everything(n: int) -> list:
    """Row statistics, column mass, decay, an overview of 256 x 256 blocks (mean and max), the top 8 keys."""
    return [*ROWS, ColumnMass(), Decay(), Pooled(max(1, n // 256), "both"), TopK(8)]


def sixteen(n: int) -> list:
    """One of each statistic there is; HeadDivergence compares all pairs of heads, in a pass of its own."""
    more = [
        SegmentMass.bins(10, n),
        ValueWeighted(),
        NormWeighted(torch.randn(HEADS, DIM, DIM)),
        VerticalSlash(16),
    ]
    return [*everything(n), *more, ReceptiveWindow(), Histogram(), HeadDivergence(), SinkRate()]


def eager(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """What people do today: the output and the weights, with the whole matrix."""
    scores = q @ k.transpose(-1, -2) * DIM**-0.5
    if causal:
        n = q.shape[2]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    weights = scores.softmax(-1)
    return weights @ v, weights


def compare(n: int, causal: bool, repeats: int, small: bool) -> None:
    q, k, v = (torch.randn(1, HEADS, n, DIM) for _ in range(3))
    mask = Causal() if causal else None
    contestants = {
        "SDPA": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        "regard, streaming, unobserved": lambda: attention(q, k, v, mask, backend="torch"),
        "regard.observe, row statistics": lambda: observe(q, k, v, mask, stats=ROWS),
        "regard.observe, everything": lambda: observe(q, k, v, mask, stats=everything(n)),
    }
    if small:
        contestants["regard.observe, all sixteen statistics"] = lambda: observe(
            q, k, v, mask, stats=sixteen(n)
        )
        contestants["eager with weights"] = lambda: eager(q, k, v, causal)
    seconds = race(contestants, repeats)
    kind = "causal" if causal else "unmasked"
    table(f"{kind}, n = {n}, {HEADS} heads, d = {DIM}, float32", seconds, "SDPA")
    rows = seconds["regard.observe, row statistics"] / seconds["regard, streaming, unobserved"]
    print(f"row statistics / unobserved streaming: {rows:.2f}")
    if small:
        ahead = seconds["eager with weights"] / seconds["regard.observe, everything"]
        print(f"eager with weights / everything: {ahead:.2f}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 8192, 32768])
    args = parser.parse_args()
    torch.manual_seed(0)
    header("Observed attention on the CPU")
    some = torch.zeros(1, HEADS, 8, DIM)
    print(f"The second pass is done by {explain_dispatch(some, some, some).second_pass}.\n")
    for n in (1024, 2048) if args.quick else args.lengths:
        for causal in (False, True):
            repeats = 3 if args.quick or n > 8192 else 7
            compare(n, causal, repeats, small=n <= 8192)


if __name__ == "__main__":
    main()
