"""What observing costs on attention as models make it, next to plain attention of the same run.

python benchmarks/real.py [--device cpu] [--length 4096 16384] [--dim 128 64] [--section rows top-8 ...]
                          [--family WORD ...] [--captured layers.safetensors] [--seconds 600]
                          [--json out.json]
python benchmarks/real.py --capture MODEL --save layers.safetensors [--layer 9 14] [--text FILE]
                          [--tokens 4096]

Families (`families.py`) imitate what models do. `--capture` writes queries, keys and values of layers of a
model (a folder or a .gguf file), which `--captured` measures too, as they are and with heads joined in pairs.
The peer is cuDNN on a GPU and SDPA on the CPU, causal, in the same rounds. Top keys are compared with
float64.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from families import FAMILIES, inputs
from side_by_side import device_times, header
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard import Causal, ColumnMass, Decay, Entropy, MaxScore, Pooled, TopK, attention, observe
from regard.stats import MeanDistance, SinkMass, Statistic

Runs = dict[str, Callable[[], Any]]
PEER = "peer"
SECTIONS = ("plain", "rows", "top-8", "everything")
ROWS: list[Statistic] = [Entropy(), MaxScore(), SinkMass(), MeanDistance()]
# Rows of all heads together, by device: enough work to fill it.
WORK = {"cuda": 262144, "cpu": 8192}
MOST_HEADS = 64
TOP, SAMPLE = 8, 48


@dataclass(frozen=True)
class Case:
    family: str
    q: Tensor
    k: Tensor
    v: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return self.q.shape[2], self.q.shape[3]


def everything(n: int) -> list[Statistic]:
    return [*ROWS, ColumnMass(), Decay(), Pooled(max(1, n // 256), "both"), TopK(TOP)]


def made(family: str, n: int, dim: int, device: str) -> Case:
    """A case of a family: batch and heads such that the device is busy."""
    maps = max(1, min(MOST_HEADS, WORK[device] // n))
    heads = min(16, maps)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return Case(family, *inputs(family, (maps // heads, heads, n, dim), dtype, device=device))


def captured(path: Path, device: str) -> Iterator[Case]:
    """Layers of a real model; under other names the same with neighbouring heads joined."""
    from safetensors.torch import load_file

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    tensors = load_file(path)
    for layer in sorted({name.split(".")[0] for name in tensors}):
        q, k, v = (tensors[f"{layer}.{each}"].to(device, dtype) for each in "qkv")
        times = max(1, WORK[device] // (q.shape[1] * q.shape[2]))
        q, k, v = (x.repeat(times, 1, 1, 1) for x in (q, k, v))
        yield Case(f"captured {layer}", q, k, v)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        # Scores of joined heads add up, with the scale of the sum of their dims.
        q, k, v = (torch.cat([x[:, 0 : x.shape[1] - 1 : 2], x[:, 1::2]], -1).contiguous() for x in (q, k, v))
        yield Case(f"captured {layer}, pairs of heads", q * math.sqrt(2), k, v)


def capture(model: str, layers: list[int], text: str, tokens: int, to: Path) -> None:
    """Write queries, keys and values of some layers of a model that reads a text."""
    from safetensors.torch import save_file

    from regard.models import load_model

    runner, tokenizer = load_model(model, dtype=torch.float32)
    ids = tokenizer(text, return_tensors="pt").input_ids
    ids = ids.repeat(1, -(-tokens // ids.shape[1]))[:, :tokens]
    calls: list[tuple[Tensor, ...]] = []
    plain = F.scaled_dot_product_attention

    def seen(q: Tensor, k: Tensor, v: Tensor, *args: Any, **options: Any) -> Tensor:
        calls.append((q, k, v) if len(calls) in layers else ())
        return plain(q, k, v, *args, **options)

    runner.set_attn_implementation("sdpa")
    with torch.no_grad(), patch.object(F, "scaled_dot_product_attention", seen):
        runner.model(ids)
    found = {}
    group = runner.config.num_attention_heads // runner.config.num_key_value_heads
    for layer in layers:
        q, k, v = calls[layer]
        step = group if k.shape[1] == q.shape[1] else 1
        for name, x in zip("qkv", (q, k[:, ::step], v[:, ::step]), strict=True):
            found[f"layer {layer:02d}.{name}"] = x.to(torch.bfloat16).contiguous()
    save_file(found, to)
    print(f"{to}: layers {layers}, {tokens} tokens, {q.shape[1]} heads, dim {q.shape[3]}")


def contestants(case: Case, which: list[str]) -> Runs:
    q, k, v, n = case.q, case.k, case.v, case.shape[0]
    gqa = q.shape[1] != k.shape[1]

    def peer() -> Tensor:
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION] if q.is_cuda else [SDPBackend.FLASH_ATTENTION]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)

    ours: Runs = {
        "plain": lambda: attention(q, k, v, Causal()),
        "rows": lambda: observe(q, k, v, Causal(), stats=ROWS),
        "top-8": lambda: observe(q, k, v, Causal(), stats=[TopK(TOP)]),
        "everything": lambda: observe(q, k, v, Causal(), stats=everything(n)),
    }
    return {PEER: peer, **{name: run for name, run in ours.items() if name in which}}


def timed(run: Callable[[], Any], repeats: int, cuda: bool) -> list[float]:
    """Milliseconds of each run."""
    if cuda:
        return device_times(run, repeats)
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        spent.append(1e3 * (time.perf_counter() - start))
    return spent


def interleaved(runs: Runs, rounds: int, settle: float, cuda: bool) -> dict[str, float]:
    """Median milliseconds of each; every other round is run backwards. The first `settle` ms of a turn don't
    count: the device's clock falls under load."""
    plan, spent = {}, {}
    for name, run in runs.items():
        run()
        if cuda:
            run()  # A recorded call is recorded twice before it is replayed.
        first = max(timed(run, 2, cuda)[1], 0.01)
        plan[name], spent[name] = (int(settle / first) + 1, max(1, min(20, int(settle / first)))), []
    for number in range(rounds):
        for name, (settling, count) in list(plan.items())[:: -1 if number % 2 else 1]:
            spent[name] += timed(runs[name], settling + count, cuda)[settling:]
    return {name: statistics.median(times) for name, times in spent.items()}


def wrong_keys(case: Case) -> str:
    """Top keys of some rows against float64: entries whose keys are not among the heaviest, and the largest
    relative error of a weight."""
    top = observe(case.q, case.k, case.v, Causal(), stats=[TopK(TOP)]).top_k
    n, dim = case.shape
    rows = torch.linspace(0, n - 1, SAMPLE, device=case.q.device).long()
    group, wrong, error = case.q.shape[1] // case.k.shape[1], 0, 0.0
    for head in range(0, case.q.shape[1], max(1, case.q.shape[1] // 4)):
        q, k = case.q[0, head, rows].double(), case.k[0, head // group].double()
        s = (q @ k.T) * dim**-0.5
        s = s.masked_fill(torch.arange(n, device=s.device) > rows[:, None], -torch.inf)
        order = s.sort(dim=-1, descending=True, stable=True)
        level, number = order.values[:, :TOP], order.indices[:, :TOP]
        weight = (level - s.logsumexp(-1, keepdim=True)).exp()
        got, key = top.weight[0, head, rows].double(), top.key[0, head, rows]
        # Weights too small for float32 are not listed.
        listed = weight > 1e-35
        wrong += int(((key < 0) & listed).sum())
        there = listed & (key >= 0)
        room = 2e-6 * q.norm(dim=-1, keepdim=True) * k.norm(dim=-1).max() * dim**-0.5 + 1e-9
        given = s.gather(1, key.clamp(min=0))
        wrong += int((((given - level).abs() > room) & there).sum())
        # Of equal scores the first key is named.
        equal = (given == level) & there
        exact = (s[:, None, :] == level[:, :, None]).sum(-1) > 1
        wrong += int((equal & exact & (key != number) & (case.family == "equal keys")).sum())
        error = max(error, float(((got - weight).abs() / weight.clamp(min=1e-35))[there].max()))
    return f"{wrong} wrong, {error:.0e}"


def report(results: list[dict[str, Any]], which: list[str]) -> None:
    """One table per shape, ratios to the peer; then the worst family of each."""
    shapes = sorted({(r["n"], r["dim"]) for r in results}, key=lambda s: (-s[1], s[0]))
    worst = []
    for n, dim in shapes:
        rows = [r for r in results if (r["n"], r["dim"]) == (n, dim)]
        print(f"\n## n = {n}, d = {dim}\n\n| family | peer, ms | {' | '.join(which)} | top keys |")
        print(f"| --- | ---: | {'---: | ' * len(which)}--- |")
        for r in rows:
            ratios = [f"{r['ms'][name] / r['ms'][PEER]:.2f}" for name in which]
            print(f"| {r['family']} | {r['ms'][PEER]:.3f} | {' | '.join(ratios)} | {r['keys']} |")
        cells = []
        for name in which:
            ratio, family = max((r["ms"][name] / r["ms"][PEER], r["family"]) for r in rows)
            cells.append(f"{ratio:.2f} ({family})")
        worst.append(f"| {n}, {dim} | {' | '.join(cells)} |")
    print(f"\n## Worst family\n\n| n, d | {' | '.join(which)} |\n| --- | {'--- | ' * len(which)}")
    print("\n".join(worst), flush=True)


def cases(options: argparse.Namespace) -> Iterator[Callable[[], Case]]:
    if options.captured:
        for case in captured(options.captured, options.device):
            yield lambda case=case: case
    names = [name for name in FAMILIES if not options.family or any(w in name for w in options.family)]
    for n in options.length:
        for dim in options.dim:
            for name in names:
                yield lambda name=name, n=n, dim=dim: made(name, n, dim, options.device)


def measure(options: argparse.Namespace) -> None:
    began, cuda, results, left_out = time.monotonic(), options.device == "cuda", [], 0
    for make in cases(options):
        if time.monotonic() - began > options.seconds:
            left_out += 1
            continue
        case = make()
        try:
            keys = wrong_keys(case) if "top-8" in options.section else "–"
            ms = interleaved(contestants(case, options.section), options.rounds, options.settle, cuda)
        except RuntimeError as problem:
            print(f"{case.family}, {case.shape}: {str(problem).splitlines()[0][:150]}", flush=True)
            continue
        n, dim = case.shape
        maps = case.q.shape[0] * case.q.shape[1]
        results.append({"family": case.family, "n": n, "dim": dim, "maps": maps, "ms": ms, "keys": keys})
        ratios = ", ".join(f"{name} {ms[name] / ms[PEER]:.2f}" for name in options.section)
        print(f"- {case.family}, n {n}, d {dim}, {maps} maps: {ratios}; {keys}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results))
    report(results, options.section)
    if left_out:
        print(f"\n{left_out} cases were left out: the time was up.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cuda", "cpu"], default=device)
    parser.add_argument("--length", nargs="*", type=int)
    parser.add_argument("--dim", nargs="+", type=int, default=[128, 64])
    parser.add_argument("--section", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument(
        "--family", nargs="+", metavar="WORD", help="only those with such a word in their names"
    )
    parser.add_argument("--captured", type=Path, help="layers that --capture wrote")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--settle", type=float, default=100.0, help="ms of a turn before it counts")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so many")
    parser.add_argument("--json", type=Path, help="write every time there")
    parser.add_argument("--capture", metavar="MODEL", help="write layers of this model, and stop")
    parser.add_argument("--layer", nargs="+", type=int, default=[4, 9, 14])
    parser.add_argument("--text", type=Path, help="what the model reads; the sample text otherwise")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--save", type=Path, default=Path("layers.safetensors"))
    options = parser.parse_args()
    if options.capture:
        from regard.models import sample_text

        text = options.text.read_text() if options.text else sample_text()
        capture(options.capture, options.layer, text, options.tokens, options.save)
        return
    if options.length is None:
        options.length = [4096, 16384, 65536] if options.device == "cuda" else [2048]
    peer = f"cuDNN {torch.backends.cudnn.version()}" if options.device == "cuda" else "SDPA"
    dtype = "bfloat16" if options.device == "cuda" else "float32"
    header(
        "Observed attention on attention as models make it",
        f"causal, {dtype}; times relative to {peer} computing the output only; medians of {options.rounds} "
        "rounds in which all take turns, forwards and backwards; of a turn the first "
        f"{options.settle:.0f} ms don't count; top keys: entries that float64 ranks otherwise, of a sample, "
        "and the largest relative error of a weight",
    )
    measure(options)


if __name__ == "__main__":
    main()
