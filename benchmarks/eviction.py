"""Scores that cache eviction needs, from statistics and from eager attention's matrix: time and peak memory.

python benchmarks/eviction.py [--quick]

Both give attention's output and the score. Eager attention makes the matrix that scores are sums of, as
policies written for `output_attentions=True` do; where it needs more memory than --limit it is not run. The
cases are families of queries and keys as real layers have them (families.py); the worst is in the table.
Each memory figure comes from a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from families import inputs
from memory import resident
from side_by_side import header, race
from torch.nn.functional import scaled_dot_product_attention as sdpa

import regard
from regard import Causal
from regard.stats import ColumnMass, ColumnMax, Statistic, WindowedMass

HEADS, DIM, LAST = 8, 64, 32
FAMILIES = ("random", "rotary locality", "sink 10", "stripes")
SCORES: dict[str, Statistic] = {
    "H2O: mass": ColumnMass(),
    f"SnapKV: mass of {LAST} queries": ColumnMass(last=LAST),
    "KVzip: maximum": ColumnMax(),
    "mass in 8 windows": WindowedMass(1),
}


def statistic(name: str, n: int) -> Statistic:
    return WindowedMass(-(-n // 8)) if name == "mass in 8 windows" else SCORES[name]


def ours(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> object:
    seen = regard.observe(q, k, v, Causal(), stats=[statistic(name, q.shape[2]).named("it")])
    return seen.out, seen.it


def eager(name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> object:
    """From the whole matrix; for the last queries fused attention and their rows, as SnapKV's code has it."""
    n = q.shape[2]
    if name.startswith("SnapKV"):
        return sdpa(q, k, v, is_causal=True), _weights(q[:, :, -LAST:], k).sum(-2)
    weights = _weights(q, k)
    out = weights @ v
    if name.startswith("KVzip"):
        return out, weights.amax(-2)
    if name == "mass in 8 windows":
        return out, torch.stack([part.sum(-2) for part in weights.split(-(-n // 8), -2)], 2)
    return out, weights.sum(-2)


def _weights(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    rows, n = q.shape[2], k.shape[2]
    scores = q @ k.mT * DIM**-0.5
    hidden = torch.ones(rows, n, dtype=torch.bool).triu_(n - rows + 1)
    return scores.masked_fill_(hidden, -torch.inf).softmax(-1)


def needed(name: str, n: int) -> int:
    """Bytes eager holds at its peak: scores and weights."""
    return 2 * 4 * HEADS * n * (LAST if name.startswith("SnapKV") else n)


def made(family: str, n: int) -> tuple[torch.Tensor, ...]:
    return inputs(family, (1, HEADS, n, DIM), torch.float32)


def measure(who: str, name: str, n: int) -> None:
    """Print the extra bytes at the peak of one call."""
    run: Callable[..., object] = ours if who == "ours" else eager
    given = made("random", n)
    run(name, *(x[:, :, :256].clone() for x in given))
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    result = run(name, *given)
    print(resident("VmHWM") - before)
    del result


def peak(who: str, name: str, n: int) -> float:
    command = [sys.executable, __file__, "--measure", who, name, str(n)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--limit", type=float, default=8.0, help="GiB that eager may take")
    parser.add_argument("--measure", nargs=3, metavar=("WHO", "NAME", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure[0], args.measure[1], int(args.measure[2]))
        return
    header(f"Eviction scores, {HEADS} heads, d = {DIM}, causal, float32")
    print("| tokens | score | eager, ms | ours, ms | ours / eager, worst family | eager, MiB | ours, MiB |")
    print("| ---: | --- | ---: | ---: | --- | ---: | ---: |")
    for n in (1024, 2048) if args.quick else (1024, 2048, 4096, 8192, 16384, 32768):
        for name in SCORES:
            fits = needed(name, n) <= args.limit * 2**30
            worst, cells = 0.0, ["", "", ""]
            # Where eager attention does not fit there is no ratio whose worst family could be looked for.
            for family in FAMILIES if fits else FAMILIES[:1]:
                given = made(family, n)
                contestants = {"ours": partial(ours, name, *given)}
                if fits:
                    contestants["eager"] = partial(eager, name, *given)
                spent = race(contestants, repeats=5 if fits else 1)
                ratio = spent["ours"] / spent["eager"] if fits else spent["ours"]
                if ratio > worst:
                    worst = ratio
                    theirs = f"{1e3 * spent['eager']:.1f}" if fits else "does not fit"
                    shown = f"{ratio:.2f} ({family})" if fits else f"– ({family})"
                    cells = [theirs, f"{1e3 * spent['ours']:.1f}", shown]
            memory = [f"{peak('eager', name, n):.0f}" if fits else f"{needed(name, n) / 2**20:.0f} needed"]
            memory.append(f"{peak('ours', name, n):.0f}")
            print(f"| {n:,} | {name} | " + " | ".join([*cells, *memory]) + " |", flush=True)


if __name__ == "__main__":
    main()
