"""Makes attention calls of the scores that a model computes itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.masks import Causal, Dense, Mask
from regard.models.call import AttentionCall

__all__ = ["as_heads", "call_of_scores"]

# Models mask a pair with a score of -inf, the lowest finite number, or, in the oldest ones, -10,000.
FORBIDDEN = -9e3
# The weight of a score so far below the largest of its row is 0 in any precision.
NOTHING = 200.0
# How near a number is to itself after a conversion to bfloat16.
CLOSE = 2**-7


def call_of_scores(
    scores: Float[Tensor, "batch heads q k"], rows: Bool[Tensor, "batch 1 q 1"] | None, sink: Any
) -> AttentionCall:
    """The call whose softmax has these scores; `rows` says which queries are text."""
    scores, sink = _without_sink(scores, sink)
    allowed = (scores > FORBIDDEN) | (scores.amax(-1, keepdim=True) - scores < NOTHING)
    allowed = allowed & (scores > -torch.inf)
    if rows is not None:
        allowed = allowed & rows
    batch, heads, q, k = scores.shape
    bias = scores.detach().float().masked_fill(~allowed, 0.0)
    nothing = bias.new_zeros(batch, heads, max(q, k), 1)
    keys = nothing[:, :, :k]
    mask = _mask_of(allowed)
    return AttentionCall(nothing[:, :, :q], keys, keys[..., :0], mask, 1.0, bias, sink=sink, own=True)


def as_heads(calls: Sequence[AttentionCall]) -> AttentionCall | None:
    """One call of several calls with one head each; None if they are not heads of one attention."""
    first = calls[0]
    shape = first.q.shape[2], first.k.shape[2], first.q.shape[0], first.q.shape[3]
    for call in calls:
        alike = (call.q.shape[2], call.k.shape[2], call.q.shape[0], call.q.shape[3]) == shape
        if not alike or call.scale != first.scale or call.sink is not None:
            return None
        if call.q.shape[1] != 1 or (call.bias is None) != (first.bias is None):
            return None
    q, k, v = (torch.cat([getattr(call, name) for call in calls], 1) for name in ("q", "k", "v"))
    biases = [call.bias for call in calls if call.bias is not None]
    bias = torch.cat([each.expand(shape[2], 1, *shape[:2]) for each in biases], 1) if biases else None
    masks = [call.mask for call in calls]
    mask = masks[0]
    if any(other is not mask and other != mask for other in masks):
        full = [_matrix(other, shape[2], *shape[:2], q.device) for other in masks]
        mask = _mask_of(torch.cat(full, 1))
    return replace(first, q=q, k=k, v=v, mask=mask, bias=bias)


def _matrix(mask: Mask | None, batch: int, q: int, k: int, device: Any) -> Bool[Tensor, "batch 1 q k"]:
    if mask is None:
        return torch.ones(batch, 1, q, k, dtype=torch.bool, device=device)
    return mask.dense(q, k, device).expand(batch, 1, q, k)


def _without_sink(scores: Tensor, sink: Any) -> tuple[Tensor, Tensor | None]:
    """Scores without a last column that no key has, and the logits of that column, one for each head."""
    if not isinstance(sink, Tensor) or sink.numel() != scores.shape[1]:
        return scores, None
    sink = sink.detach().float().flatten()
    # Models subtract each row's largest number first; a row keeps its weights whatever is added to it.
    added = sink[:, None] - scores[..., -1].float()
    plain = bool((added.abs() <= CLOSE * sink.abs()[:, None]).all())
    if not plain and bool(scores.amax(-1).any()):
        return scores, None
    return scores[..., :-1].float() + added[..., None], sink


def _mask_of(allowed: Bool[Tensor, "batch heads q k"]) -> Mask | None:
    """The simplest mask that fits the masked scores: none, causal, or a bool matrix."""
    if bool(allowed.all()):
        return None
    q, k = allowed.shape[2:]
    if bool((allowed == allowed[:, :1]).all()):
        allowed = allowed[:, :1]
        if bool((allowed == torch.ones_like(allowed[0, 0]).tril(k - q)).all()):
            return Causal()
    return Dense(allowed)
