"""What first calls wait for on a GPU: kernels that are not compiled yet, and lengths that are new.

python benchmarks/first_gpu.py [--section compiling lengths]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from gpu import ROWS, everything
from side_by_side import header
from torch import Tensor
from torch.autograd import grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard import Causal, ColumnMass, Entropy, TopK, attention, observe

QUESTIONS = {
    "entropy": [Entropy()],
    "row statistics": ROWS,
    "top-8": [TopK(8)],
    "column mass": [ColumnMass()],
    "everything": everything(4096),
}
PEERS = {
    "SDPA, as PyTorch chooses": None,
    "SDPA cuDNN": [SDPBackend.CUDNN_ATTENTION],
    "SDPA flash": [SDPBackend.FLASH_ATTENTION],
}


def compiling_section() -> None:
    """The first call of a process, with nothing compiled and with everything."""
    print("## The first call of a process, in seconds, 16 causal heads of 4096 tokens, d = 128\n")
    print("| regard.observe | nothing compiled, one kernel at a time | several | all compiled before |")
    print("| --- | ---: | ---: | ---: |")
    for name in QUESTIONS:
        with TemporaryDirectory() as one, TemporaryDirectory() as several:
            spent = [_first(name, one, 1), _first(name, several, None), _first(name, several, None)]
        print(f"| {name} | " + " | ".join(f"{seconds:.1f}" for seconds in spent) + " |", flush=True)
    print(flush=True)


def _first(name: str, cache: str, at_once: int | None) -> float:
    """Seconds of the first call in a process of its own, with what is compiled in that folder."""
    command = [sys.executable, __file__, "--child", name, *(["--at-once", str(at_once)] if at_once else [])]
    ran = subprocess.run(
        command, env={**os.environ, "TRITON_CACHE_DIR": cache}, capture_output=True, text=True, check=True
    )
    return float(ran.stdout)


def child(name: str, at_once: int | None) -> None:
    """Print the seconds of a first call; the device and its libraries are there."""
    from regard.engine.triton.launch import precompile

    precompile.MOST = at_once or precompile.MOST
    q, k, v = torch.randn(3, 1, 16, 4096, 128, device="cuda", dtype=torch.bfloat16).unbind()
    F.scaled_dot_product_attention(q, k, v)
    print(_alone(partial(observe, mask=Causal(), stats=QUESTIONS[name]), [q, k, v], 1) / 1e3)


def lengths_section() -> None:
    """Texts of new lengths: one call of each, then some more of the last."""
    for what, first, causal in (("prompts", 1000, True), ("decode", 8000, False), ("training", 1000, True)):
        mask = Causal() if causal else None
        runs: dict[str, Callable[..., object]] = {name: _plain(some, causal) for name, some in PEERS.items()}
        runs["regard.attention"] = partial(attention, mask=mask)
        if what == "training":
            runs = {name: _trained(run) for name, run in runs.items()}
        else:
            runs["regard.observe, row statistics"] = partial(observe, mask=mask, stats=ROWS)
            runs["regard.observe, column mass"] = partial(observe, mask=mask, stats=[ColumnMass()])
        print(f"## {what} of {first} tokens and more, 32 heads over 8, d = 128\n")
        print("| who | a new length, ms | the same again, ms |\n| --- | ---: | ---: |")
        for number, (name, run) in enumerate(runs.items()):
            # Each contestant gets its own lengths: libraries share what they tuned for a length. The first
            # call compiles and does not count.
            spent = [_alone(run, _prompt(first + 20 * number + i, what == "decode"), 1) for i in range(12)]
            again = _alone(run, _prompt(first + 20 * number + 11, what == "decode"), 10)
            print(f"| {name} | {statistics.median(spent[1:]):.3f} | {again:.3f} |", flush=True)
        print(flush=True)


def _plain(backends: list[SDPBackend] | None, causal: bool) -> Callable[..., Tensor]:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backends) if backends else nullcontext():
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    return run


def _trained(run: Callable[..., Any]) -> Callable[..., object]:
    return lambda *qkv: grad(run(*(x.requires_grad_() for x in qkv)).sum(), qkv)


def _prompt(n: int, decoding: bool) -> list[Tensor]:
    sizes = ((32, 1 if decoding else n), (8, n), (8, n))
    return [torch.randn(1, heads, rows, 128, device="cuda", dtype=torch.bfloat16) for heads, rows in sizes]


def _alone(run: Callable[..., object], qkv: list[Tensor], repeats: int) -> float:
    """Milliseconds of a call by itself, Python's work included: the median of some."""
    spent = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = perf_counter()
        run(*qkv)
        torch.cuda.synchronize()
        spent.append(1e3 * (perf_counter() - start))
    return statistics.median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["compiling", "lengths"]
    parser.add_argument("--section", nargs="+", choices=names, default=names)
    parser.add_argument("--child", choices=[*QUESTIONS], help=argparse.SUPPRESS)
    parser.add_argument("--at-once", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no NVIDIA GPU here, or PyTorch was built without CUDA.")
    if options.child:
        child(options.child, options.at_once)
        return
    torch.manual_seed(0)
    header(
        "What first calls wait for on a GPU", "medians of eleven new lengths; a process for each first call"
    )
    if "compiling" in options.section:
        compiling_section()
    if "lengths" in options.section:
        lengths_section()


if __name__ == "__main__":
    main()
