"""Attention inside transforms of `torch.func` and under forward-mode differentiation.

Transforms hide numbers, and the kernels and tile loops look at numbers to choose their way. Plain torch
operations do not, and PyTorch transforms those in any combination; so here the whole map is built.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from regard.engine import sdpa_backend as fused
from regard.engine.problem import Problem
from regard.engine.scoring import Place
from regard.errors import BackendError, ScoreError

__all__ = ["attend_plainly", "is_transformed", "is_wrapped"]

REFUSED = "inside torch.func transforms (grad, jacrev, vmap, jvp) and forward-mode differentiation"


def is_transformed(problem: Problem) -> bool:
    """Whether a transform hides the numbers of an input, or an input carries a tangent."""
    given = (problem.q, problem.k, problem.v, problem.sink, *problem.scoring.parameters())
    return any(x is not None and (is_wrapped(x) or _has_tangent(x)) for x in given)


def is_wrapped(x: Tensor) -> bool:
    """Whether a transform of torch.func hides the numbers of a tensor."""
    return torch._C._functorch.is_functorch_wrapped_tensor(x)  # pyright: ignore[reportAttributeAccessIssue]


def _has_tangent(x: Tensor) -> bool:
    return forward_ad.unpack_dual(x).tangent is not None


def attend_plainly(problem: Problem, backend: str) -> Float[Tensor, "batch heads q v_dim"]:
    """The output, with the whole map in memory; `sdpa` does here what PyTorch's own function does."""
    if backend not in ("auto", "torch"):
        return _by_pytorch(problem, backend)
    p, dtype = problem, problem.accumulate
    place = Place(range(p.batch), range(p.heads), range(p.q_len), range(p.k_len), p.offset, p.q.device)
    s = p.scoring.modify(_raw_scores(p), p.scoring.bias_tile(place), place)
    if p.mask is not None:
        s = s.masked_fill(~place.allowed(p.mask), -torch.inf)
    if p.sink is not None:
        sink = p.sink.to(dtype).view(1, -1, 1, 1).expand(*s.shape[:3], 1)
        s = torch.cat([s, sink], -1)
    # A row that sees nothing would be softmax of -inf alone, which is NaN.
    dead = (s == -torch.inf).all(-1, keepdim=True)
    weights = s.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)[..., : p.k_len]
    if p.dropout:
        weights = F.dropout(weights, p.dropout)
    v = p.v.to(dtype).repeat_interleave(p.group, 1)
    return (weights @ v).to(p.q.dtype)


def _by_pytorch(problem: Problem, backend: str) -> Tensor:
    if backend == "sdpa" and fused.is_plain(problem) and problem.sink is None:
        try:
            return fused.plain(problem)
        except NotImplementedError:
            pass  # its kernels have no forward-mode derivative
    raise BackendError(f"backend={backend!r} cannot run this call {REFUSED}. Use backend='torch'.")


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
