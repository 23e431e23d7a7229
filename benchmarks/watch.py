"""Watching a model: time and peak memory next to unobserved SDPA and to eager with its attentions.

python benchmarks/watch.py [--n 512 2048] [--model bundled] [--no-eager]

Without options everything is measured, in about 15 minutes on two quiet cores; eager attention at 4096 tokens
of the 135M shape wants 19 GiB. With options, a slice of it: slices of one quiet machine may be put together.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from memory import resident
from side_by_side import header

from regard import ColumnMass, Decay, Pooled, TopK
from regard.models import bundled, watch
from regard.stats import Entropy, MaxScore, MeanDistance, SinkMass

EAGER = "eager, output_attentions"
ROWS = [Entropy(), MaxScore(), MeanDistance(), SinkMass()]


def everything(n: int) -> list:
    return [*ROWS, ColumnMass(), Decay(), Pooled(max(1, n // 256), "both"), TopK(8)]


def small_llama() -> Any:
    """The shape of a 135M model with random weights: 30 layers, 9 query and 3 key/value heads of 64."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


MODELS: dict[str, Callable[[], Any]] = {"bundled": lambda: bundled()[0], "135M": small_llama}


def unobserved(model: Any, ids: torch.Tensor) -> None:
    model.set_attn_implementation("sdpa")
    model(ids, logits_to_keep=1)


def eager(model: Any, ids: torch.Tensor) -> None:
    model.set_attn_implementation("eager")
    model(ids, output_attentions=True, logits_to_keep=1)


def watched(stats: Callable[[int], list]) -> Callable[[Any, torch.Tensor], None]:
    def run(model: Any, ids: torch.Tensor) -> None:
        model.set_attn_implementation("sdpa")
        with watch(model, stats=stats(ids.shape[1])):
            model(ids, logits_to_keep=1)

    return run


CASES: dict[str, Callable[[Any, torch.Tensor], None]] = {
    "sdpa, unobserved": unobserved,
    "watch, row statistics": watched(lambda n: ROWS),
    "watch, everything": watched(everything),
    EAGER: eager,
}


@torch.no_grad()
def measure(name: str, case: str, n: int) -> None:
    """Print the seconds of a call, the median of several if short, and the extra bytes at its peak."""
    model = MODELS[name]()
    ids = torch.randint(1, 4000, (1, n), generator=torch.Generator().manual_seed(0))
    CASES[case](model, ids[:, :128])
    Path("/proc/self/clear_refs").write_text("5")
    before, times = resident("VmRSS"), []
    while len(times) < 5 and sum(times) < 10:
        start = time.perf_counter()
        CASES[case](model, ids)
        times.append(time.perf_counter() - start)
    print(statistics.median(times), resident("VmHWM") - before)


def run(name: str, case: str, n: int) -> tuple[float, float] | None:
    """A case in a process of its own, so that its peak is its own; None where it cannot run."""
    command = [sys.executable, __file__, "--measure", name, case, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    seconds, extra = done.stdout.split()[-2:]
    return float(seconds), float(extra)


def compare(name: str, n: int, cases: list[str]) -> None:
    """One table: every case of one model at one length, next to the unobserved one."""
    print(f"## {name}, {n} tokens\n\n| who | s | time / unobserved | extra MiB |")
    print("| --- | ---: | ---: | ---: |", flush=True)
    baseline = None
    for case in cases:
        print(f"  {name}, {n} tokens: {case} ...", end="\r", file=sys.stderr, flush=True)
        found = None if case == EAGER and n > 4096 else run(name, case, n)
        if found is None:
            print(f"| {case} | does not run here | | |", flush=True)
            continue
        baseline = baseline or found[0]
        print(f"| {case} | {found[0]:.2f} | {found[0] / baseline:.2f} | {found[1] / 2**20:.0f} |", flush=True)
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], help="lengths")
    parser.add_argument("--model", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument("--no-eager", action="store_true", help="leave out what needs the whole map")
    parser.add_argument("--measure", nargs=3, metavar=("MODEL", "CASE", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.measure[0], args.measure[1], int(args.measure[2]))
        return
    header(
        "Watching a model on the CPU, one forward pass, float32",
        "one process a case; ratios are taken within this run",
    )
    cases = [case for case in CASES if not (args.no_eager and case == EAGER)]
    for name in args.model:
        for n in args.n:
            compare(name, n, cases)


if __name__ == "__main__":
    main()
