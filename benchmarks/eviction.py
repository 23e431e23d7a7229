"""Scores that cache eviction needs, from statistics and from eager attention's matrix: time and peak memory.

python benchmarks/eviction.py [--quick] [--lengths 16384,32768]

Both give attention's output and the score. Eager attention makes the matrix that scores are sums of, as
policies written for `output_attentions=True` do; where it needs more memory than --limit it is not run. The
cases are families of queries and keys as real layers have them (families.py); the worst is in the table.
Times are CPU time of one thread, so that other programs on the machine hardly count. Up to 8,192 tokens they
are medians of five interleaved runs, beyond that, and where eager does not fit, one run. Each memory figure
comes from a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
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
LENGTHS = "1024,2048,4096,8192,16384,32768"
# Longer texts are measured once.
RACED = 8192
HOW = "times are CPU time of one thread, medians of interleaved runs up to 8,192 tokens, then one run"
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
    """Print the extra bytes at the peak of one call, and its seconds of CPU time."""
    run: Callable[..., object] = ours if who == "ours" else eager
    given = made("random", n)
    run(name, *(x[:, :, :256].clone() for x in given))
    Path("/proc/self/clear_refs").write_text("5")
    before, start = resident("VmRSS"), time.process_time()
    result = run(name, *given)
    print(resident("VmHWM") - before, time.process_time() - start)
    del result


def measured(who: str, name: str, n: int) -> tuple[float, float]:
    """MiB and seconds of one call, in a process of its own."""
    command = [sys.executable, __file__, "--measure", who, name, str(n)]
    space, spent = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(space) / 2**20, float(spent)


def raced(name: str, n: int) -> tuple[float, float, str]:
    """Seconds of eager and ours in the family where ours is slowest against eager."""
    found: list[tuple[float, float, str]] = []
    for family in FAMILIES:
        given = made(family, n)
        contestants = {"ours": partial(ours, name, *given), "eager": partial(eager, name, *given)}
        spent = race(contestants, repeats=5, clock=time.process_time)
        found.append((spent["eager"], spent["ours"], family))
    return max(found, key=lambda each: each[1] / each[0])


def row(name: str, n: int, limit: float) -> str:
    """One row of the table."""
    fits = needed(name, n) <= limit * 2**30
    space, spent = measured("ours", name, n)
    if not fits:
        theirs, ratio, room = "does not fit", "–", f"{needed(name, n) / 2**20:.0f} needed"
    else:
        theirs_space, theirs_spent = measured("eager", name, n)
        family = "random, one run"
        if n <= RACED:
            theirs_spent, spent, family = raced(name, n)
        theirs, ratio = f"{1e3 * theirs_spent:.1f}", f"{spent / theirs_spent:.2f} ({family})"
        room = f"{theirs_space:.0f}"
    return f"| {n:,} | {name} | {theirs} | {1e3 * spent:.1f} | {ratio} | {room} | {space:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--lengths", default=LENGTHS, help="tokens, with commas between")
    parser.add_argument("--limit", type=float, default=8.0, help="GiB that eager may take")
    parser.add_argument("--measure", nargs=3, metavar=("WHO", "NAME", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.measure:
        measure(args.measure[0], args.measure[1], int(args.measure[2]))
        return
    header(f"Eviction scores, {HEADS} heads, d = {DIM}, causal, float32", HOW)
    print("| tokens | score | eager, ms | ours, ms | ours / eager, worst family | eager, MiB | ours, MiB |")
    print("| ---: | --- | ---: | ---: | --- | ---: | ---: |")
    for n in (1024, 2048) if args.quick else map(int, args.lengths.split(",")):
        for name in SCORES:
            print(row(name, n, args.limit), flush=True)


if __name__ == "__main__":
    main()
