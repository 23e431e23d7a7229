"""What launching the kernels of a repeated call costs: replayed, plain, CUDA graph, custom operator.

python benchmarks/launch_gpu.py [--length 1024 4096] [--rounds 7]

- plain: the same call with replaying switched off, so that Python walks through it every time
- replayed: what users get, `REGARD_REPLAY=1`
- CUDA graph: the plain call captured once and replayed; inputs are copied into its own tensors first
- custom op: the plain call registered by `torch.library.custom_op`, which is what `torch.compile` would see;
  `triton_op` registers a call the same way, and its launches go through Triton's public API
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import chain

import torch
from side_by_side import header
from torch import Tensor

from regard import Causal, ColumnMass, Decay, Entropy, MaxScore, Pooled, TopK, observe
from regard.engine.triton.launch import switch
from regard.stats import MeanDistance, SinkMass

ROWS = [Entropy(), MaxScore(), SinkMass(), MeanDistance()]
SIZES = {1024: (16, 16), 4096: (4, 16)}
Call = Callable[[Tensor, Tensor, Tensor], list[Tensor]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--length", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    header("Starting the kernels of a call", "medians of rounds in which all take turns; ratios are to plain")
    # A failed capture leaves PyTorch's random numbers inside it, so all inputs are made before the first.
    on_device = {"device": "cuda", "dtype": torch.bfloat16}
    inputs = {n: torch.randn(3, *SIZES[n], n, 128, **on_device).unbind() for n in given.length}
    for n in given.length:
        batch, heads = SIZES[n]
        for name, stats in {
            "row statistics": ROWS,
            "everything": [*ROWS, ColumnMass(), Decay(), Pooled(n // 256, "both"), TopK(8)],
        }.items():
            title = f"{name}, causal, n = {n}, batch {batch}, heads {heads}, d = 128"
            compare(title, inputs[n], stats, given.rounds)


def compare(title: str, inputs: tuple[Tensor, ...], stats: list, rounds: int) -> None:
    q, k, v = inputs

    def call(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        seen = observe(q, k, v, mask=Causal(), stats=stats)
        return [seen.out, seen.lse, *chain.from_iterable(tensors(x) for x in seen.stats.values())]

    runs: dict[str, Callable[[], list[Tensor]]] = {}
    runs["plain"] = lambda: unreplayed(call, q, k, v)
    runs["replayed"] = lambda: call(q, k, v)
    truth = runs["plain"]()
    for name, make in {"CUDA graph": graphed, "custom op": registered}.items():
        try:
            made = make(call, q, k, v)
            runs[name] = made
        except Exception as problem:
            print(f"{name}: {type(problem).__name__}: {str(problem).splitlines()[0][:120]}\n")
            torch.cuda.synchronize()
    for name, run in runs.items():
        for _ in range(4):
            found = run()
        same = all(torch.equal(a, b) for a, b in zip(found, truth, strict=True))
        if not same:
            print(f"{name} gives other numbers than plain.\n")
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            spent[name].append(times(runs[name]))
    print(f"## {title}\n\n| how | ms a call, queued | ms of Python | queued / plain | Python / plain |")
    print("| --- | ---: | ---: | ---: | ---: |")
    queued, python = (
        {name: statistics.median(x[i] for x in some) for name, some in spent.items()} for i in (0, 1)
    )
    for name in runs:
        ratios = queued[name] / queued["plain"], python[name] / python["plain"]
        print(f"| {name} | {queued[name]:.3f} | {python[name]:.3f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
    print(flush=True)


def tensors(x: object) -> list[Tensor]:
    if isinstance(x, Tensor):
        return [x]
    return [part for part in x if isinstance(part, Tensor)] if isinstance(x, tuple) else []


def unreplayed(call: Call, *inputs: Tensor) -> list[Tensor]:
    with switch.replay_off():
        return call(*inputs)


def graphed(call: Call, *inputs: Tensor) -> Callable[[], list[Tensor]]:
    own = [x.clone() for x in inputs]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            unreplayed(call, *own)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = unreplayed(call, *own)

    def run() -> list[Tensor]:
        for mine, given in zip(own, inputs, strict=True):
            mine.copy_(given)
        graph.replay()
        # The next replay overwrites them: a user gets copies.
        return [x.clone() for x in results]

    return run


def registered(call: Call, *inputs: Tensor) -> Callable[[], list[Tensor]]:
    number = len(_OPERATORS)

    @torch.library.custom_op(f"regard_launch::observe_{number}", mutates_args=())
    def operator(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        return unreplayed(call, q, k, v)

    _OPERATORS.append(operator)
    return lambda: operator(*inputs)


_OPERATORS: list[object] = []


def times(run: Callable[[], object], repeats: int = 30) -> tuple[float, float]:
    """Milliseconds per call with calls queued; and until Python returns from a call on an idle device."""
    torch.cuda.synchronize()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        run()
    stop.record()
    torch.cuda.synchronize()
    python = []
    for _ in range(10):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        run()
        python.append((time.perf_counter() - begun) * 1e3)
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / repeats, statistics.median(python)


if __name__ == "__main__":
    main()
