"""Two checkouts on one GPU, old against new in turns, and both against cuDNN.

python benchmarks/before_after_gpu.py OLD/src NEW/src [--rounds 5] [--seconds 270] [--length 4096 16384 65536]

Each checkout runs in a worker process of its own, and the parent gives them turns, so that both see the same
clock of the device. Cases: plain attention, row statistics, everything and the backward, causal and unmasked,
head dim 128, bfloat16.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

# Length, batch and heads: about the same work each.
SIZES = {4096: (4, 16), 16384: (1, 16), 65536: (1, 4)}
KINDS = ("plain", "rows", "everything", "backward")
MASKS = ("causal", "unmasked")
# Milliseconds of a turn: the first part lets the clock of the device settle and is not counted.
SETTLE, COUNTED = 100.0, 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "sources", nargs="*", type=Path, help="the src folder of the old checkout, then the new one's"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=270.0, help="no further round is begun after this long"
    )
    parser.add_argument("--length", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker()
        return
    if len(given.sources) != 2 or not all((x / "regard").is_dir() for x in given.sources):
        parser.error(f"give two src folders that hold regard, got {[str(x) for x in given.sources]}")
    compare(given.sources, given.rounds, given.seconds, given.length)


def compare(sources: list[Path], rounds: int, seconds: float, lengths: list[int]) -> None:
    began = time.monotonic()
    workers = [Worker(source) for source in sources]
    for name, made in zip(("old", "new"), workers, strict=True):
        print(f"- {name}: {json.dumps(made.ask({'what': 'about'}))}")
    print(f"- machine: {platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(f"- command: python benchmarks/before_after_gpu.py {' '.join(sys.argv[1:])}")
    print("- medians of rounds in which old, cuDNN and new take turns, every other round backwards\n")
    cases = [{"kind": k, "n": n, "mask": m} for n, k, m in product(lengths, KINDS, MASKS)]
    # Both workers compile their kernels at the same time.
    for case in cases:
        for made in workers:
            made.send({"what": "warm", **case})
        for made in workers:
            made.receive()
    print(f"compiled and warm after {time.monotonic() - began:.0f} s\n", flush=True)
    turns = [("old", workers[0], "run"), ("cuDNN", workers[0], "peer"), ("new", workers[1], "run")]
    spent: dict[tuple[int, str], list[float]] = {}
    done = 0
    for number in range(rounds):
        if number and time.monotonic() - began > seconds * number / (number + 1):
            break
        for index, case in enumerate(cases):
            for name, made, what in turns[:: -1 if number % 2 else 1]:
                spent.setdefault((index, name), []).append(made.ask({"what": what, **case})["ms"])
        done += 1
    print(f"{done} rounds in {time.monotonic() - began:.0f} s\n")
    print("| case | old ms | new ms | new / old | cuDNN ms | new / cuDNN |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for index, case in enumerate(cases):
        old, peer, new = (spent[index, name] for name in ("old", "cuDNN", "new"))
        ratio = statistics.median(b / a for a, b in zip(old, new, strict=True))
        to_peer = statistics.median(b / a for a, b in zip(peer, new, strict=True))
        times = [statistics.median(x) for x in (old, new, peer)]
        name = f"{case['kind']}, {case['mask']}, n = {case['n']}"
        print(f"| {name} | {times[0]:.3f} | {times[1]:.3f} | {ratio:.3f} | {times[2]:.3f} | {to_peer:.2f} |")
    for made in workers:
        made.close()


class Worker:
    """A process that has one checkout on its path and answers requests, one JSON line each."""

    def __init__(self, source: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
        command = [sys.executable, __file__, "--worker"]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, request: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError("a worker ended; its error is above.")

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.send(request)
        return self.receive()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def worker() -> None:
    """Answer the requests of the parent until it closes the pipe."""
    made: dict[tuple[Any, ...], Callable[[], object]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["what"] == "about":
            answer = about()
        else:
            kind = "peer" if request["what"] == "peer" else "regard"
            key = (kind, request["kind"], request["n"], request["mask"])
            if request["what"] == "warm":
                for who in ("regard", "peer"):
                    made[who, *key[1:]] = call(who, *key[1:])
                    for _ in range(4):
                        made[who, *key[1:]]()
                answer = {"ms": 0.0}
            else:
                answer = {"ms": turn(made[key])}
        print(json.dumps(answer), flush=True)


def about() -> dict[str, str]:
    import torch
    import triton

    import regard

    where, gpu = str(Path(regard.__file__).parent), torch.cuda.get_device_name()
    return {"regard": where, "torch": torch.__version__, "triton": triton.__version__, "gpu": gpu}


def call(who: str, kind: str, n: int, mask: str) -> Callable[[], object]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    from regard import Causal, ColumnMass, Decay, Entropy, MaxScore, Pooled, TopK, attention, observe
    from regard.stats import MeanDistance, SinkMass

    torch.manual_seed(0)
    batch, heads = SIZES[n]
    q, k, v = torch.randn(3, batch, heads, n, 128, device="cuda", dtype=torch.bfloat16).unbind()
    causal = mask == "causal"

    def peer(*given: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            return scaled_dot_product_attention(*given, is_causal=causal)

    if kind == "backward":
        # Only the backward is timed; ours is `backend="triton"`, whose gradients are deterministic.
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = (
            peer(*leaves)
            if who == "peer"
            else attention(*leaves, mask=Causal() if causal else None, backend="triton")
        )
        upstream = torch.randn_like(out)
        return lambda: torch.autograd.grad(out, leaves, upstream, retain_graph=True)
    if who == "peer":
        return lambda: peer(q, k, v)
    rows = [Entropy(), MaxScore(), SinkMass(), MeanDistance()]
    asked = {"rows": rows, "everything": [*rows, ColumnMass(), Decay(), Pooled(n // 256, "both"), TopK(8)]}
    ours = Causal() if causal else None
    if kind == "plain":
        return lambda: attention(q, k, v, mask=ours)
    return lambda: observe(q, k, v, mask=ours, stats=asked[kind])


def turn(run: Callable[[], object]) -> float:
    """Median milliseconds of a call on the device."""
    # The parent needs neither torch nor regard.
    from side_by_side import device_times

    first = max(sum(device_times(run, 2)) / 2, 0.01)
    settle, count = int(SETTLE / first) + 1, max(3, min(60, int(COUNTED / first)))
    return statistics.median(device_times(run, settle + count)[settle:])


if __name__ == "__main__":
    main()
