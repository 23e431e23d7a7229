"""The CUDA path of regard.distributed: one rank over NCCL, and two on one GPU that exchange through gloo.

python benchmarks/distributed_gpu.py

Each is compared with a single process, forward, backward and observed; prints `parity ok` if all agree.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import regard
from regard import Causal, ColumnMass, Decay, Entropy, Window
from regard.distributed import Sharding, attention, observe, shard
from regard.scores import ALiBi

LENGTH = 1021
# Sums in another order, and on the GPU matrix products that round differently: relative to the largest entry.
CLOSE = {torch.float32: 2e-3, torch.bfloat16: 3e-2}


def close(name: str, got: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    scale = float(wanted.abs().max()) or 1.0
    error = float((got.double() - wanted.double()).abs().max()) / scale if got.numel() else 0.0
    if not error <= CLOSE[dtype]:
        raise SystemExit(f"{name}: off by {error:.3g} of the largest entry, {dtype}")


def compare(dtype: torch.dtype, exchange: str, name: str, mask: regard.masks.Mask, **options) -> None:
    """One call of all ranks with one of a single process, the same on every rank."""
    size = dist.get_world_size()
    held = Sharding.head_tail(LENGTH, size)
    generator = torch.Generator().manual_seed(0)
    shapes = ((8, 64), (2, 64), (2, 64))
    whole = [
        torch.randn(1, h, LENGTH, d, generator=generator).to("cuda", dtype).requires_grad_()
        for h, d in shapes
    ]
    exact = regard.attention(*whole, mask, backend="torch", **options)
    exact.float().square().sum().backward()
    parts = [shard(x.detach(), held).requires_grad_() for x in whole]
    out = attention(*parts, mask, sharding=held, exchange=exchange, **options)
    out.float().square().sum().backward()
    what = f"{name}, {exchange}"
    close(f"{what}, output", out.detach(), shard(exact.detach(), held), dtype)
    for letter, x, full in zip("qkv", parts, whole, strict=True):
        close(f"{what}, gradient of {letter}", x.grad, shard(full.grad, held), dtype)
    if exchange == "heads":
        return
    stats = [Entropy(), ColumnMass(), Decay()]
    with torch.no_grad():
        one = regard.observe(*whole, mask, stats=stats, backend="torch", **options)
        seen = observe(*parts, mask, stats=stats, sharding=held, exchange=exchange, **options)
    close(f"{what}, entropy", seen.entropy, shard(one.entropy, held, 2), dtype)
    close(f"{what}, column mass", seen.column_mass, shard(one.column_mass, held, 2), dtype)
    close(f"{what}, decay", seen.decay.mean, one.decay.mean, dtype)
    close(f"{what}, a tile", seen.map[0, 3, 900:940, 100:140], one.map[0, 3, 900:940, 100:140], dtype)


def rank_main(rank: int, size: int, backend: str, meeting: str) -> None:
    torch.cuda.set_device(0)
    dist.init_process_group(
        backend, init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    slopes = ALiBi(torch.linspace(0.1, 0.8, 8, device="cuda"))
    for dtype in (torch.float32, torch.bfloat16):
        for exchange in ("gather", "ring", "heads"):
            compare(dtype, exchange, "causal", Causal())
            compare(
                dtype, exchange, "window, sink", Causal() & Window(100), sink=torch.zeros(8, device="cuda")
            )
            compare(dtype, exchange, "ALiBi", Causal(), bias=slopes)
    print(f"rank {rank} of {size}, {backend}: all agree", flush=True)
    dist.destroy_process_group()


def main() -> None:
    if len(sys.argv) > 1:
        rank_main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
        return
    if not torch.cuda.is_available():
        raise SystemExit("this needs a CUDA device")
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, regard {regard.__version__}", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        for size, backend in ((1, "nccl"), (2, "gloo")):
            meeting = str(Path(folder) / backend)
            ranks = [
                subprocess.Popen(
                    [sys.executable, __file__, str(rank), str(size), backend, meeting], env=os.environ
                )
                for rank in range(size)
            ]
            codes = [process.wait() for process in ranks]
            if any(codes):
                raise SystemExit(f"{size} rank(s) over {backend} failed")
    print("parity ok")


if __name__ == "__main__":
    main()
