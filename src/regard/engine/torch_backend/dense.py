"""Attention with the whole map in memory, in operations that transforms of `torch.func` can follow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.scoring import Place
from regard.engine.transformed import REFUSED
from regard.errors import ScoreError

__all__ = ["dense_output"]


def dense_output(problem: Problem) -> Float[Tensor, "batch heads q v_dim"]:
    """The output."""
    p, dtype = problem, problem.accumulate
    place = Place(range(p.batch), range(p.heads), range(p.q_len), range(p.k_len), p.offset, p.q.device)
    s = p.scoring.modify(_raw_scores(p), p.scoring.bias_tile(place), place)
    if p.mask is not None:
        s = s.masked_fill(~place.allowed(p.mask), -torch.inf)
    if p.sink is not None:
        sink = p.sink.to(dtype).view(1, -1, 1, 1).expand(*s.shape[:3], 1)
        s = torch.cat([s, sink], -1)
    # A dead row would be the softmax of -inf only, which is NaN.
    dead = (s == -torch.inf).all(-1, keepdim=True)
    weights = s.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)[..., : p.k_len]
    if p.dropout:
        weights = F.dropout(weights, p.dropout)
    v = p.v.to(dtype).repeat_interleave(p.group, 1)
    return (weights @ v).to(p.q.dtype)


def _raw_scores(p: Problem) -> Float[Tensor, "batch heads q k"]:
    dtype, score = p.accumulate, p.scoring.score
    q, k = p.q.to(dtype), p.k.to(dtype).repeat_interleave(p.group, 1)
    try:
        s = p.scoring.raw(q.flatten(0, 1), k.flatten(0, 1), tuple(x.to(dtype) for x in score.parameters()))
    except RuntimeError as error:
        if score.is_dot:
            raise
        raise ScoreError(
            f"{type(score).__name__} cannot be used {REFUSED}: its tile computes a gradient of its own. "
            "Use torch.autograd.grad, or a dot product."
        ) from error
    return s.unflatten(0, q.shape[:2])
