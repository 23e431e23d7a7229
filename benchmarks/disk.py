"""Recording to disk: what it costs a forward pass, and how much of the disk's own speed writing has.

python benchmarks/disk.py [--n 2048] [--layers 4] [--megabytes 256] [--folder .]

`dd` writes as many bytes with `conv=fsync`, in turns with us; figures are medians of the rounds. Several
files are written at once, as layers are; SHA-256 alone, of as many parts at once, is the bound that checksums
set.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from side_by_side import header
from transformers import LlamaConfig, LlamaForCausalLM

from regard.models import watch
from regard.models.backlog import WORKERS
from regard.models.buffers import Buffers
from regard.models.tensor_file import write_tensors

ROUNDS = 5


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleaved(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each call's seconds, over rounds in which all take turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            found[name].append(timed(call))
    return {name: statistics.median(times) for name, times in found.items()}


def dd(path: Path, size: int) -> None:
    blocks = -(-size // 2**20)
    options = ["if=/dev/zero", f"of={path}", "bs=1M", f"count={blocks}", "conv=fsync", "status=none"]
    subprocess.run(["dd", *options], check=True)


def model_of(layers: int) -> Any:
    """The width of a 1B model with random weights, and as many layers as asked."""
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=65536,
    )
    return LlamaForCausalLM(config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--folder", default=".")
    args = parser.parse_args()
    header(
        "Recording to disk",
        f"medians of {ROUNDS} interleaved rounds; `dd` with conv=fsync in the same rounds",
    )
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(dir=args.folder) as name, torch.no_grad():
        folder = Path(name)
        parts = [torch.randn((args.megabytes << 18) // WORKERS) for _ in range(WORKERS)]
        size = sum(x.nbytes for x in parts)
        buffers = Buffers()

        def at_once(work: Callable[[int], object]) -> Callable[[], object]:
            return lambda: list(pool.map(work, range(WORKERS)))

        with ThreadPoolExecutor(WORKERS) as pool:
            times = interleaved(
                {
                    "dd": lambda: dd(folder / "dd", size),
                    "regard": at_once(lambda i: write_tensors({"x": parts[i]}, folder / f"{i}", buffers)),
                    "SHA-256 alone": at_once(lambda i: hashlib.sha256(parts[i].numpy().data)),
                }
            )
        print(
            f"## Writing {size / 1e6:.0f} MB and their checksums, {WORKERS} files\n\n"
            "| who | GB/s | of dd's |\n| --- | ---: | ---: |"
        )
        for who, seconds in times.items():
            print(f"| {who} | {size / seconds / 1e9:.2f} | {times['dd'] / seconds:.2f} |")
        del parts
        model, ids = model_of(args.layers), torch.randint(1024, (1, args.n))

        def run(store: Path | None, watched: bool = True) -> None:
            with watch(model, store=store) if watched else nullcontext():
                model(ids, use_cache=False, logits_to_keep=1)
            if store is not None:
                shutil.rmtree(store)

        with watch(model) as recording:
            model(ids, use_cache=False, logits_to_keep=1)
        held = recording.nbytes
        times = interleaved(
            {
                "unobserved": lambda: run(None, watched=False),
                "recorded in memory": lambda: run(None),
                "recorded to disk": lambda: run(folder / "x.regard"),
                "dd of as many bytes": lambda: dd(folder / "dd", held),
            }
        )
        print(f"\n## {args.layers} layers, {args.n} tokens, row statistics: {held / 1e6:.0f} MB\n")
        print("| what | seconds | / unobserved |\n| --- | ---: | ---: |")
        for what, seconds in times.items():
            print(f"| {what} | {seconds:.2f} | {seconds / times['unobserved']:.2f} |")


if __name__ == "__main__":
    main()
