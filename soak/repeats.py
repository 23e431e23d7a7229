"""One call over and over: the same bits every time."""

from __future__ import annotations

from typing import Any

import torch

from regard import Causal, ColumnMass, Decay, Entropy, TopK, attention, observe
from soak.samples import digest

__all__ = ["repeats"]


def repeats(count: int, device: str, n: int | None = None) -> dict[str, Any]:
    """Observe a call, and take its gradients, so many times; raises AssertionError at the first other bit.

    On a GPU the gradients are our kernels': those of plain calls are NVIDIA's, which add dq in any order.
    """
    n = (4097 if device == "cuda" else 257) if n is None else n
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(1, 4, n, 128, generator=generator).to(device, dtype).requires_grad_() for _ in range(3)
    )
    wanted = None
    for number in range(count):
        with torch.no_grad():
            seen = observe(q, k, v, mask=Causal(), stats=[Entropy(), ColumnMass(), Decay(), TopK(8)])
        out = attention(q, k, v, mask=Causal(), backend="triton" if device == "cuda" else "auto")
        gradients = torch.autograd.grad(out.float().square().sum(), (q, k, v))
        found = digest(out, *gradients, seen.out, seen.entropy, seen.column_mass, *seen.top_k, *seen.decay)
        wanted = wanted or found
        if found != wanted:
            raise AssertionError(f"repeat {number} has other bits")
    where = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {"repeats": count, "other bits": 0, "device": where}
