"""One sequence over processes of one thread each: scaling, memory and bytes, next to PyTorch's own.

python benchmarks/distributed.py [--quick]

The program starts its ranks itself, as copies of itself that meet through a file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from side_by_side import header
from torch import Tensor

import regard
from regard import Causal, Window
from regard.distributed import Sharding, attention, shard
from regard.distributed.ranks import SENT

HEADS, DIM = 4, 64
REPEATS = 5


def inputs(n: int, heads: int = HEADS) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, heads, n, DIM) for _ in range(3)]


def timed(run: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Median seconds from a barrier to the next, after one run to warm up."""
    run()
    times = []
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        run()
        dist.barrier()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def with_gradients(run: Callable[[list[Tensor]], Tensor], parts: list[Tensor]) -> Callable[[], None]:
    learning = [x.clone().requires_grad_() for x in parts]

    def both() -> None:
        run(learning).sum().backward()

    return both


def scaling(n: int) -> dict[str, Any]:
    """Causal attention, forward alone and with gradients, for each exchange and layout."""
    size, rank = dist.get_world_size(), dist.get_rank()
    whole = inputs(n)
    exact = F.scaled_dot_product_attention(*whole, is_causal=True)
    found: dict[str, Any] = {}
    layouts = {"contiguous": Sharding.contiguous(n, size), "head-tail": Sharding.head_tail(n, size)}
    for name, held in layouts.items() if size > 1 else [("contiguous", layouts["contiguous"])]:
        parts = [shard(x, held) for x in whole]
        for exchange in ("gather", "ring", "heads") if size > 1 else ("gather",):

            def call(given: list[Tensor], held: Sharding = held, exchange: str = exchange) -> Tensor:
                return attention(*given, Causal(), sharding=held, exchange=exchange)

            before = SENT.bytes
            torch.testing.assert_close(call(parts), shard(exact, held), rtol=1e-4, atol=1e-4)
            sent = SENT.bytes - before
            found[f"{exchange}, {name}"] = {
                "forward": timed(lambda call=call, parts=parts: call(parts)),
                "both": timed(with_gradients(call, parts)),
                "bytes": sent,
            }
    if size == 1:
        found["F.scaled_dot_product_attention"] = {
            "forward": timed(lambda: F.scaled_dot_product_attention(*whole, is_causal=True)),
            "both": timed(
                with_gradients(lambda x: F.scaled_dot_product_attention(*x, is_causal=True), whole)
            ),
            "bytes": 0,
        }
    else:
        found["PyTorch's context parallel"] = theirs(whole, exact, n)
        found["all-gather, then F.scaled_dot_product_attention"] = gathered(whole, exact, n, rank, size)
    return found


def theirs(whole: list[Tensor], exact: Tensor, n: int) -> dict[str, Any]:
    """The experimental context parallel of PyTorch on the same case, or why it does not run."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))
    held = Sharding.contiguous(n, dist.get_world_size())

    def run(given: list[Tensor]) -> Tensor:
        copies = [x.clone() for x in given]
        with context_parallel(mesh, buffers=copies, buffer_seq_dims=[2, 2, 2]):
            return F.scaled_dot_product_attention(*copies, is_causal=True)

    try:
        out = run(whole)
    except Exception as error:  # whatever it raises is the answer
        return {"refused": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"}
    own = out.to_local() if hasattr(out, "to_local") else out
    if own.shape != shard(exact, held).shape:
        return {"refused": f"it returned shape {tuple(own.shape)}"}
    candidates = (held, Sharding.head_tail(n, dist.get_world_size()))
    errors = [float((own - shard(exact, layout)).abs().max()) for layout in candidates]
    if min(errors) > 1e-3:
        return {"refused": f"its output differs from one process by {min(errors):.2g}"}
    return {"forward": timed(lambda: run(whole)), "error": min(errors)}


def gathered(whole: list[Tensor], exact: Tensor, n: int, rank: int, size: int) -> dict[str, Any]:
    """What one writes by hand: all keys on every rank, and a dense mask for the rows that are here."""
    held = Sharding.contiguous(n, size)
    q, k, v = (shard(x, held).contiguous() for x in whole)
    allowed = Causal().tile((held.shards[rank][0].start, held.shards[rank][0].stop), (0, n))

    def run() -> Tensor:
        parts = [[torch.empty_like(x) for _ in range(size)] for x in (k, v)]
        for x, lands in zip((k, v), parts, strict=True):
            dist.all_gather(lands, x)
        return F.scaled_dot_product_attention(q, *(torch.cat(p, 2) for p in parts), attn_mask=allowed)

    torch.testing.assert_close(run(), shard(exact, held), rtol=1e-4, atol=1e-4)
    return {"forward": timed(run), "bytes": (size - 1) * 2 * k.numel() * 4}


def peak(n: int, exchange: str, mask: str) -> float:
    """Mebibytes that one call adds to the largest size this process ever had."""
    size = dist.get_world_size()
    held = Sharding.contiguous(n, size)
    torch.manual_seed(0)
    own = held.sizes[dist.get_rank()]
    parts = [torch.randn(1, 1, own, DIM) for _ in range(3)]
    small = [x[:, :, : 256 // size] for x in parts]
    attention(*small, Causal(), exchange=exchange)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    attention(
        *parts, {"causal": Causal(), "window": Causal() & Window(512)}[mask], sharding=held, exchange=exchange
    )
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def rank_main(rank: int, size: int, meeting: str, case: str, given: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(minutes=5)
    )
    found = {"scaling": scaling, "peak": peak}[case](**given)
    print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def started(size: int, case: str, **given: Any) -> list[Any]:
    """What each of `size` fresh ranks found."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--case", case, "--given", json.dumps(given)]
        more = ["--size", str(size), "--meeting", str(Path(folder) / "meeting")]
        ranks = [
            subprocess.Popen(
                [*command, *more, "--rank", str(rank)], env=env, stdout=subprocess.PIPE, text=True
            )
            for rank in range(size)
        ]
        said = [process.communicate()[0] for process in ranks]
        if any(process.returncode for process in ranks):
            raise SystemExit(f"a rank of {case} failed")
        return [json.loads(text.strip().splitlines()[-1]) for text in said]


def show_scaling(n: int) -> None:
    print(f"## causal, n = {n}, {HEADS} heads, d = {DIM}, float32, one thread per process\n")
    print("| processes | who | forward, ms | with gradients, ms | forward speed-up | bytes sent per rank |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    alone = started(1, "scaling", n=n)[0]
    base = alone["gather, contiguous"]["forward"]
    for size, ranks in ((1, [alone]), (2, started(2, "scaling", n=n))):
        for who, found in ranks[0].items():
            if "refused" in found:
                print(f"| {size} | {who} | does not run: {found['refused']} | | | |")
                continue
            sent = ", ".join(f"{r[who].get('bytes', 0):,}" if "bytes" in found else "?" for r in ranks)
            both = f"{1e3 * found['both']:.0f}" if "both" in found else ""
            speed = base / found["forward"]
            print(f"| {size} | {who} | {1e3 * found['forward']:.0f} | {both} | {speed:.2f} | {sent} |")
    print(flush=True)


def show_memory(lengths: list[int]) -> None:
    print(f"## memory of one forward call, 1 head, d = {DIM}, float32: MiB added to the peak of a rank\n")
    print("| n | mask | 1 process | 2, gather | 2, ring |\n| ---: | --- | ---: | ---: | ---: |")
    for n in lengths:
        for mask in ("causal", "window"):
            one = started(1, "peak", n=n, exchange="gather", mask=mask)[0]
            two = [max(started(2, "peak", n=n, exchange=how, mask=mask)) for how in ("gather", "ring")]
            print(f"| {n:,} | {mask} | {one:.0f} | {two[0]:.0f} | {two[1]:.0f} |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rank", type=int)
    for name in ("--size", "--meeting", "--case", "--given"):
        parser.add_argument(name)
    given = parser.parse_args()
    if given.rank is not None:
        rank_main(given.rank, int(given.size), given.meeting, given.case, json.loads(given.given))
        return
    torch.set_num_threads(1)
    header("One sequence over processes", "times are medians of 5 runs, from a barrier to the next")
    for n in [1024] if given.quick else [2048, 8192]:
        show_scaling(n)
    show_memory([4096] if given.quick else [4096, 8192])
    print(f"regard {regard.__version__}: outputs of all contestants were compared before they were timed.")


if __name__ == "__main__":
    main()
