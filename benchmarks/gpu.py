"""Observed attention on a GPU, next to kernels that only compute the output; one run, ratios within it.

python benchmarks/gpu.py [--section forward rows everything masks backward decode million]
                         [--dim 128 64] [--length 1024 4096 16384 65536 262144] [--only WORD ...] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from side_by_side import device_times, header
from torch import Tensor
from torch.autograd import grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard import (
    Causal,
    ColumnMass,
    Decay,
    Documents,
    Entropy,
    MaxScore,
    Pooled,
    TopK,
    Window,
    attention,
    observe,
)
from regard.engine.inputs import Options, problem_of
from regard.engine.observing import observed
from regard.masks import Mask
from regard.stats import MeanDistance, SinkMass, Statistic, by_name

ROWS = [Entropy(), MaxScore(), SinkMass(), MeanDistance()]
# Length, batch and heads: about the same work up to 64k, one head beyond.
SIZES = [(1024, 16, 16), (4096, 4, 16), (16384, 1, 16), (65536, 1, 4), (262144, 1, 1)]
EAGER_CELLS = 1 << 32
# Milliseconds that a turn runs before it counts.
SETTLE = 150.0
Runs = dict[str, Callable[[], object]]
SAMPLE = 64


@dataclass(frozen=True)
class Case:
    """One shape and mask; `pairs` is how many pairs may attend, over all heads."""

    name: str
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask | None
    pairs: int

    @property
    def causal(self) -> bool:
        return isinstance(self.mask, Causal)

    @property
    def flops(self) -> int:
        return 4 * self.pairs * self.q.shape[-1]


def case(name: str, n: int, batch: int, heads: int, dim: int, mask: Mask | None) -> Case:
    q, k, v = (torch.randn(batch, heads, n, dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    pairs = (n * n if mask is None else mask.pairs(n)) * batch * heads
    return Case(f"{name}, n = {n}, batch {batch}, heads {heads}, d = {dim}", q, k, v, mask, pairs)


def milliseconds(run: Callable[[], object], budget: float = 150.0) -> float:
    """Median time of a run on the device, after warming up; repeats fill the budget."""
    run()
    first = device_times(run, 1)[0]
    return statistics.median(device_times(run, max(3, min(50, int(budget / max(first, 0.01))))))


def interleaved(runs: Runs, rounds: int = 4, budget: float = 80.0) -> dict[str, float]:
    """Median time of each run, in rounds in which each has a turn, every other round backwards; those
    that cannot run are left out."""
    repeats, settling, spent = {}, {}, {}
    for name, run in runs.items():
        try:
            run()
            first = max(device_times(run, 2)[1], 0.01)
        except RuntimeError as problem:
            print(f"{name}: {str(problem).splitlines()[0][:80]}\n")
            torch.cuda.empty_cache()
            continue
        repeats[name], settling[name] = max(2, min(30, int(budget / rounds / first))), int(SETTLE / first) + 1
        spent[name] = []
    for number in range(rounds):
        for name, count in list(repeats.items())[:: -1 if number % 2 else 1]:
            # The first of a turn wait for Python, which is not yet ahead of the device; and under load the
            # device's clock falls by up to a tenth, from where the previous one left it. Not all of that
            # is gone when the turn counts: with rounds in both directions each comes after both neighbours.
            spent[name] += device_times(runs[name], settling[name] + count)[settling[name] :]
    return {name: statistics.median(times) for name, times in spent.items()}


def peak_bytes(run: Callable[[], object]) -> int:
    """Memory a run needs beside its inputs."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def error(case: Case, out: Tensor) -> float:
    """Relative error of the last few queries of one head, against float64."""
    n = case.q.shape[2]
    q, k, v = (x[0, 0].double() for x in (case.q[:, :, -SAMPLE:], case.k, case.v))
    s = q @ k.T * case.q.shape[-1] ** -0.5
    if case.mask is not None:
        allowed = case.mask.tile((n - len(q), n), (0, n), device="cuda")
        s = s.masked_fill(~allowed, -torch.inf)
    exact = s.softmax(-1) @ v
    return float((out[0, 0, -SAMPLE:].double() - exact).norm() / exact.norm())


def sdpa(case: Case, backend: SDPBackend) -> Callable[[], Tensor]:
    def run() -> Tensor:
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(case.q, case.k, case.v, is_causal=case.causal)

    return run


def eager(case: Case) -> Callable[[], Tensor]:
    """What people do today: the weights as well, with the whole matrix."""

    def run() -> Tensor:
        s = case.q @ case.k.transpose(-1, -2) * case.q.shape[-1] ** -0.5
        if case.mask is not None:
            n = s.shape[-1]
            s = s.masked_fill_(torch.ones(n, n, dtype=torch.bool, device="cuda").triu(1), -torch.inf)
        return s.softmax(-1) @ case.v

    return run


def flex(case: Case) -> Callable[[], Tensor]:
    """FlexAttention, compiled for this very shape and mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False)
    n = case.q.shape[2]
    blocks = None
    if case.mask is not None:
        allowed = _mask_mod(case.mask)
        blocks = create_block_mask(allowed, None, None, n, n, device="cuda", _compile=True)
    return lambda: compiled(case.q, case.k, case.v, block_mask=blocks)


def _mask_mod(mask: Mask) -> Callable[..., Tensor]:
    """The masks of this benchmark as FlexAttention wants them."""
    if isinstance(mask, Causal):
        return lambda b, h, q, k: q >= k
    parts = {type(part): part for part in mask.parts}  # type: ignore[attr-defined]
    if Window in parts:
        left = parts[Window].left
        return lambda b, h, q, k: (q >= k) & (q - k < left)
    ids = parts[Documents].ids.cuda()
    return lambda b, h, q, k: (q >= k) & (ids[q] == ids[k])


def everything(n: int) -> list:
    """Rows, column mass, decay, an overview of 256 × 256 blocks and the top 8 keys."""
    return [*ROWS, ColumnMass(), Decay(), Pooled(max(1, n // 256), "both"), TopK(8)]


def peers(case: Case, with_flex: bool, with_eager: bool) -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {}
    if case.mask is None or case.causal:
        found["SDPA flash"] = sdpa(case, SDPBackend.FLASH_ATTENTION)
        found["SDPA cuDNN"] = sdpa(case, SDPBackend.CUDNN_ATTENTION)
    if with_flex:
        found["FlexAttention"] = flex(case)
    n = case.q.shape[2]
    if with_eager and case.q.shape[0] * case.q.shape[1] * n * n <= EAGER_CELLS:
        found["eager with weights"] = eager(case)
    return found


def compare(case: Case, ours: Runs, others: Runs) -> None:
    """One table: all contestants in turn, ratios to the fastest of the others."""
    runs = {**others, **ours}
    times = interleaved(runs)
    best = min((spent for name, spent in times.items() if name in others), default=None)
    print(f"## {case.name}\n")
    print("| who | ms | TFLOP/s | time / best peer | extra MB | error |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, spent in times.items():
        extra, got = peak_bytes(runs[name]), runs[name]()
        wrong = error(case, got if isinstance(got, Tensor) else got.out)
        ratio = f"{spent / best:.2f}" if best else "–"
        rate = f"{case.flops / spent / 1e9:.0f}"
        print(f"| {name} | {spent:.3f} | {rate} | {ratio} | {extra / 1e6:.0f} | {wrong:.1e} |")
    print(flush=True)


def contestants(case: Case, which: set[str]) -> dict[str, Callable[[], object]]:
    q, k, v, mask, n = case.q, case.k, case.v, case.mask, case.q.shape[2]
    found: dict[str, Callable[[], object]] = {}
    if "forward" in which:
        found["regard.attention"] = lambda: attention(q, k, v, mask)
    if "rows" in which:
        found["regard.observe, entropy"] = lambda: observe(q, k, v, mask, stats=[Entropy()])
        found["regard.observe, row statistics"] = lambda: observe(q, k, v, mask, stats=ROWS)
    if "everything" in which:
        most = everything(n)[:-1]
        found["regard.observe, top-8"] = lambda: observe(q, k, v, mask, stats=[TopK(8)])
        found["regard.observe, column mass"] = lambda: observe(q, k, v, mask, stats=[ColumnMass()])
        found["regard.observe, everything but top-8"] = lambda: observe(q, k, v, mask, stats=most)
        found["regard.observe, everything"] = lambda: observe(q, k, v, mask, stats=everything(n))
    return found


def dense_sections(
    which: set[str], sizes: list[tuple[int, int, int]], dim: int, only: list[str] | None = None
) -> None:
    """All contestants, or only those whose names contain one of some words."""
    for n, batch, heads in sizes:
        heads = heads * 128 // dim if n <= 65536 else heads
        for mask in (None, Causal()):
            here = case("unmasked" if mask is None else "causal", n, batch, heads, dim, mask)
            with_flex = dim == 128 and n == 16384 and _is_in("FlexAttention", only)
            runs = contestants(here, which), peers(here, with_flex, n <= 16384)
            compare(here, *({name: run for name, run in some.items() if _is_in(name, only)} for some in runs))


def _is_in(name: str, only: list[str] | None) -> bool:
    return only is None or any(word in name for word in only)


def masks_section(which: set[str], n: int) -> None:
    """What structured masks cost: block lists as data against kernels compiled for the mask."""
    documents = [n // 16] * 8 + [n // 2]
    for name, mask in (
        ("causal window 4096", Causal() & Window(4096)),
        ("causal documents", Causal() & Documents(lengths=documents)),
    ):
        here = case(name, n, 1, 4, 128, mask)
        compare(here, contestants(here, which), peers(here, True, False))


def backward_section(sizes: list[tuple[int, int, int]]) -> None:
    for n, batch, heads in sizes:
        for mask in (None, Causal()):
            here = case("backward, " + ("unmasked" if mask is None else "causal"), n, batch, heads, 128, mask)
            leaves = [x.requires_grad_() for x in (here.q, here.k, here.v)]
            upstream = torch.randn_like(here.q)
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                out = F.scaled_dot_product_attention(*leaves, is_causal=here.causal)
            mine = attention(*leaves, mask, backend="triton")
            results = {"SDPA cuDNN": out, "regard, deterministic": mine}
            runs = {
                name: partial(grad, x, leaves, upstream, retain_graph=True) for name, x in results.items()
            }
            times = interleaved(runs)
            print(f"## {here.name}\n\n| who | ms | TFLOP/s | time / cuDNN |\n| --- | ---: | ---: | ---: |")
            for name, spent in times.items():
                rate, ratio = 2.5 * here.flops / spent / 1e9, spent / times["SDPA cuDNN"]
                print(f"| {name} | {spent:.3f} | {rate:.0f} | {ratio:.2f} |")
            print(flush=True)


def graphed(run: Callable[[], object]) -> Callable[[], object]:
    """Launches recorded once and replayed: what the device needs, without what Python needs."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def decode_section(n: int) -> None:
    """One query per sequence, 32 heads over 8 key heads: reading the keys is all there is to do."""
    q = torch.randn(1, 32, 1, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(1, 8, n, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    a, b = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
    floor = 2 * k.numel() * k.itemsize / (2 * a.numel() / milliseconds(lambda: b.copy_(a)))
    problem = problem_of(q, k, v, Options())

    def seen(*asked: Statistic) -> object:
        # What `observe` does but its look for overflow, which waits for the device and fits in no graph.
        return observed(problem, by_name(asked), "auto", False)

    contestants = {
        "SDPA flash": lambda: _sdpa_decode(q, k, v, SDPBackend.FLASH_ATTENTION),
        "SDPA cuDNN": lambda: _sdpa_decode(q, k, v, SDPBackend.CUDNN_ATTENTION),
        "regard.attention": lambda: attention(q, k, v),
        "regard.observe, row statistics": lambda: seen(*ROWS),
        "regard.observe, top-8": lambda: seen(TopK(8)),
        "regard.observe, row statistics and top-8": lambda: seen(*ROWS, TopK(8)),
    }
    print(f"## decode, context {n}, 32 heads over 8, d = 128\n")
    print(f"reading k and v at the speed of a copy: {floor:.3f} ms\n")
    print("| who | ms | ms in a CUDA graph | graph / floor |\n| --- | ---: | ---: | ---: |")
    for name, run in contestants.items():
        spent = milliseconds(run, 100)
        try:
            replayed = milliseconds(graphed(run), 100)
            print(f"| {name} | {spent:.3f} | {replayed:.3f} | {replayed / floor:.2f} |")
        except RuntimeError:
            torch.cuda.synchronize()
            print(f"| {name} | {spent:.3f} | – | {spent / floor:.2f} (no graph) |")
    print(flush=True)


def _sdpa_decode(q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend) -> Tensor:
    with sdpa_kernel([backend]):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def million_section() -> None:
    """A million tokens, one head, everything observed."""
    here = case("causal", 1 << 20, 1, 1, 128, Causal())
    run = contestants(here, {"everything"})["regard.observe, everything"]
    extra = peak_bytes(run)
    spent = milliseconds(run, 1)
    plain = milliseconds(sdpa(here, SDPBackend.CUDNN_ATTENTION), 1)
    print(f"## {here.name}, everything\n\n| ms | cuDNN, output only, ms | extra MB |\n| ---: | ---: | ---: |")
    print(f"| {spent:.0f} | {plain:.0f} | {extra / 1e6:.0f} |\n", flush=True)


def main() -> None:
    names = ["forward", "rows", "everything", "masks", "backward", "decode", "million"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--section", nargs="+", choices=names, default=names)
    parser.add_argument("--dim", nargs="+", type=int, choices=[64, 128], default=[128, 64])
    lengths = [n for n, _, _ in SIZES]
    parser.add_argument("--length", nargs="+", type=int, choices=lengths, default=lengths)
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="only those with such a word in their names"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    which = set(options.section)
    if not torch.cuda.is_available():
        parser.error("there is no NVIDIA GPU here, or PyTorch was built without CUDA.")
    torch.manual_seed(0)
    header(
        "Observed attention on a GPU",
        "medians over four rounds in which contestants take turns, forwards and backwards (decode: one "
        "after the other); calls of a turn are queued, as in a model, and those of its first 150 ms are not "
        "counted",
    )
    print("bfloat16; errors are of the output, relative, against float64; FLOPs count allowed pairs.\n")
    sizes = SIZES[:1] if options.quick else [size for size in SIZES if size[0] in options.length]
    dense = bool(which & {"forward", "rows", "everything"})
    if dense and 128 in options.dim:
        dense_sections(which, sizes, 128, options.only)
    if "masks" in which:
        masks_section(which | {"forward"}, 16384 if options.quick else 65536)
    if "backward" in which:
        backward_section([size for size in sizes if size[0] <= 65536])
    if "decode" in which:
        decode_section(16384 if options.quick else 131072)
    if "million" in which and not options.quick:
        million_section()
    if dense and 64 in options.dim:
        dense_sections(which, sizes, 64, options.only)


if __name__ == "__main__":
    main()
