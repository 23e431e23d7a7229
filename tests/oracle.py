"""Attention as the textbook writes it: dense, slow and obvious. Everything is compared with this."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Dense:
    out: Tensor
    weights: Tensor
    scores: Tensor
    lse: Tensor


def dense_attention(
    q,
    k,
    v,
    allowed=None,
    *,
    scale=None,
    bias=None,
    softcap=None,
    sink=None,
    score_mod=None,
    scores=None,
    dtype=None,
) -> Dense:
    """Every step with the whole matrix, in `dtype` (q's own if not given): that is what eager code does."""
    dtype = dtype or q.dtype
    q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    if scores is None:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        s = q @ k.transpose(-1, -2) * scale
    else:
        s = scores(q, k) * (1.0 if scale is None else scale)
    if bias is not None:
        s = s + bias.to(dtype)
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if score_mod is not None:
        batch, heads, n, m = s.shape
        b, h, i, j = (torch.arange(x) for x in (batch, heads, n, m))
        i = i + (m - n)
        s = score_mod(
            s, b.view(-1, 1, 1, 1), h.view(1, -1, 1, 1), i.view(1, 1, -1, 1), j.view(1, 1, 1, -1)
        ).to(dtype)
    if allowed is not None:
        s = torch.where(allowed, s, torch.full_like(s, -torch.inf))
    logits = s
    if sink is not None:
        logits = torch.cat([s, sink.to(dtype).view(1, -1, 1, 1).expand(*s.shape[:3], 1)], -1)
    if logits.shape[-1] == 0:
        lse = torch.full(logits.shape[:3], -torch.inf, dtype=dtype)
        return Dense(q.new_zeros(*s.shape[:3], v.shape[-1]), s, s, lse)
    dead = (logits == -torch.inf).all(-1, keepdim=True)
    weights = torch.where(dead, torch.zeros_like(logits), logits.masked_fill(dead, 0.0).softmax(-1))
    weights = weights[..., : s.shape[-1]]
    return Dense(weights @ v, weights, s, logits.logsumexp(-1))


def dense_mask(mask, q, k):
    """The mask's whole matrix with four dimensions."""
    if mask is None:
        return None
    allowed = mask.bind(q.shape[0], q.shape[1]).dense(q.shape[2], k.shape[2])
    return allowed.view((1,) * (4 - allowed.ndim) + tuple(allowed.shape))


def assert_as_good_as_eager(got: Tensor, eager: Tensor, exact: Tensor, factor: float = 2.0) -> None:
    """The rule kernels are judged by: at most `factor` times eager's own error in that dtype, plus 1e-5."""
    assert got.shape == exact.shape
    assert bool(got.isfinite().all())
    if not got.numel():
        return
    error = (got.double() - exact).abs().max().item()
    allowed = factor * (eager.double() - exact).abs().max().item() + 1e-5
    assert error <= allowed, f"error {error:.3g} is above {allowed:.3g}"


def stressed(*shape: int, generator: torch.Generator, dtype=torch.float32) -> Tensor:
    """N(0, 1) with one entry in a thousand from N(0, 100): what outlier features look like."""
    x = torch.randn(shape, generator=generator)
    spikes = torch.rand(shape, generator=generator) < 0.001
    return (x + 10.0 * torch.randn(shape, generator=generator) * spikes).to(dtype)
