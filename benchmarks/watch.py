"""Watching a model: time and peak memory next to unobserved SDPA and to eager with its attentions.

python benchmarks/watch.py [--n 512 2048] [--model bundled] [--no-eager] [--no-generation]

Without options everything is measured, in about ten minutes on two quiet cores. With options, a slice of it:
slices of one quiet machine may be put together. Eager attention runs where its maps fit in 20 GiB.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
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
# Rounds of all cases, each once; no new one is begun after so many seconds.
ROUNDS, SECONDS = 60, 25
# Tokens that are generated after a prompt of so many.
WRITTEN, PROMPT = 64, 1024
EAGER_ROOM = 20 * 2**30
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
# Layers and query heads.
SHAPES = {"bundled": (8, 8), "135M": (30, 9)}


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


def generate(model: Any, ids: torch.Tensor) -> None:
    """Read a prompt and write what comes next, token by token."""
    model.generate(ids, max_new_tokens=WRITTEN, min_new_tokens=WRITTEN, do_sample=False, pad_token_id=0)


def watched_generation(model: Any, ids: torch.Tensor) -> None:
    """With row statistics and the heaviest keys of every token written."""
    with watch(model) as recording:
        generate(model, ids)
    assert recording.layers[0].rows == ids.shape[1] + WRITTEN - 1


CASES: dict[str, Callable[[Any, torch.Tensor], None]] = {
    "sdpa, unobserved": unobserved,
    "watch, row statistics": watched(lambda n: ROWS),
    "watch, everything": watched(everything),
    EAGER: eager,
}
GENERATION: dict[str, Callable[[Any, torch.Tensor], None]] = {
    "generate, unobserved": generate,
    "generate under watch": watched_generation,
}
EVERY = {**CASES, **GENERATION}


@torch.no_grad()
def measure(name: str, n: int, cases: list[str]) -> None:
    """Print the processor time of each case, a list by rounds, and the extra bytes at its peak, as JSON."""
    model = MODELS[name]()
    ids = torch.randint(1, 4000, (1, n), generator=torch.Generator().manual_seed(0))
    for case in cases:
        EVERY[case](model, ids[:, :128])
    times: dict[str, list[float]] = {case: [] for case in cases}
    peaks: dict[str, int] = {}
    begun = time.perf_counter()
    while len(times[cases[0]]) < ROUNDS and time.perf_counter() - begun < SECONDS:
        for case in cases:
            before = 0 if case in peaks else settled()
            start = time.process_time()
            EVERY[case](model, ids)
            times[case].append(time.process_time() - start)
            peaks.setdefault(case, resident("VmHWM") - before)
    # In the first round memory was fetched anew for every case; it counts where there is no other.
    print(json.dumps({case: (times[case][1:] or times[case], peaks[case]) for case in cases}))


def settled() -> int:
    """Give memory that others left behind back to the system, forget their peak; the bytes still in use."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def run(name: str, n: int, cases: list[str]) -> dict[str, tuple[list[float], int]]:
    """Cases interleaved in a process of their own; empty where they cannot run."""
    command = [sys.executable, __file__, "--measure", name, str(n), *cases]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {} if done.returncode else json.loads(done.stdout.splitlines()[-1])


def fits(name: str, n: int) -> bool:
    """Whether eager attention has room for all its maps, and for three more of one layer while it runs."""
    layers, heads = SHAPES[name]
    free = re.findall(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return (layers + 3) * heads * n * n * 4 < min(EAGER_ROOM, int(free[0]) * 1024)


def compare(name: str, n: int, with_eager: bool) -> None:
    """One table: every case of one model at one length, next to the unobserved one."""
    print(f"## {name}, {n} tokens\n")
    table(name, n, [case for case in CASES if case != EAGER], [EAGER] if with_eager else [])


def table(name: str, n: int, *groups: list[str]) -> None:
    """Rows of seconds and bytes; each group of cases has a process of its own."""
    print("| who | s | time / unobserved | extra MiB |\n| --- | ---: | ---: | ---: |", flush=True)
    baseline = 1.0
    for cases in groups:
        found = run(name, n, cases) if cases != [EAGER] or fits(name, n) else {}
        for case in cases:
            if case not in found:
                print(f"| {case} | does not run here | | |", flush=True)
                continue
            seconds, extra = statistics.median(found[case][0]), found[case][1]
            baseline = seconds if case == cases[0] != EAGER else baseline
            row = f"| {case} | {seconds:.3f} | {seconds / baseline:.2f} | {extra / 2**20:.0f} |"
            print(row, flush=True)
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, nargs="*", default=[512, 1024, 2048, 4096, 8192], help="lengths")
    parser.add_argument("--model", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument("--no-eager", action="store_true", help="leave out what needs the whole map")
    parser.add_argument("--no-generation", action="store_true", help="leave out generated text")
    parser.add_argument("--measure", nargs="+", metavar="MODEL N CASES", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        name, n, *cases = args.measure
        measure(name, int(n), cases)
        return
    header(
        "Watching a model on the CPU, one forward pass, float32",
        "times are medians of processor time over interleaved runs in one process, eager in its own; ratios "
        "are taken within this run; extra MiB is the peak of a run above what there was before",
    )
    for name in args.model:
        for n in args.n:
            compare(name, n, not args.no_eager)
        if not args.no_generation:
            print(f"## {name}, {WRITTEN} tokens written after {PROMPT}\n")
            table(name, PROMPT, list(GENERATION))


if __name__ == "__main__":
    main()
