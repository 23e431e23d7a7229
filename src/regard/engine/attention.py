"""`attention`: the output and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.autograd import output
from regard.engine.causal_flag import with_causal
from regard.engine.dispatch import Dispatch, choose, named, reader_of, reference, short
from regard.engine.inputs import Options, problem_of
from regard.engine.operators.traced import traced_attention
from regard.engine.outline import outlined
from regard.engine.problem import Problem
from regard.engine.transformed import REFUSED, is_traced, is_transformed
from regard.errors import BackendError
from regard.masks import Mask
from regard.scores import DotProduct, Score

if TYPE_CHECKING:
    from collections.abc import Callable

    from regard.scores import Bias

__all__ = ["attention", "explain_dispatch"]

_DOT = DotProduct()


def attention(
    q: Float[Tensor, "*batch q dim"],
    k: Float[Tensor, "*kv_batch k k_dim"],
    v: Float[Tensor, "*kv_batch k v_dim"],
    mask: Mask | None = None,
    *,
    scale: float | None = None,
    bias: Tensor | Bias | None = None,
    softcap: float | None = None,
    sink: Float[Tensor, "heads"] | None = None,
    score: Score = _DOT,
    score_mod: Callable[..., Tensor] | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    backend: str = "auto",
) -> Float[Tensor, "*batch q v_dim"]:
    """Exact attention under any mask: memory grows linearly with the length, time with the allowed pairs.

    Layout (batch, heads, length, dim); (batch, length, dim) and (length, dim) work too. With more query
    heads than key heads, neighbouring query heads share a key head (grouped-query attention). The logits are
    `score_mod(soft_cap(scale * score(q, k) + bias))`, then the mask; `sink` adds one logit per head that
    takes weight and gives nothing. `score_mod(score, b, h, q_pos, k_pos)` is called on whole tiles with index
    tensors that broadcast. A query with nothing to attend to gets zeros. Dropout is applied whenever it is
    not 0. `is_causal=True` is `mask=Causal()` for equal lengths. Differentiable in q, k, v, bias, sink and
    the parameters of the score. Inside transforms of `torch.func` and under forward-mode
    differentiation the whole map is built. `torch.compile` and `torch.export` see one operator.

    >>> import torch, regard
    >>> q, k, v = torch.randn(3, 1, 8, 100, 64).unbind()
    >>> regard.attention(q, k, v, mask=regard.Causal() & regard.Window(16)).shape
    torch.Size([1, 8, 100, 64])
    """
    mask = with_causal(mask, q, k) if is_causal else mask
    plain = bias is softcap is sink is score_mod is None and score is _DOT and dropout == 0.0
    plain = plain and (mask is None or isinstance(mask, Mask)) and backend == "auto"
    traced = is_traced(q)
    if plain and not traced:
        out = short(q, k, v, mask, scale)
        if out is not None:
            return out
    options = Options(mask, scale, bias, softcap, sink, score, score_mod, dropout)
    if traced:
        return traced_attention(q, k, v, options, backend, attention)
    problem = problem_of(q, k, v, options)
    if is_transformed(problem):
        return problem.restore(_transformed(problem, backend))
    chosen = choose(problem, backend).backend
    if problem.q.is_meta:
        return problem.restore(outlined(problem))
    return problem.restore(output(problem, chosen))


def _transformed(problem: Problem, name: str) -> Tensor:
    """The output inside a transform of `torch.func`."""
    backend = reference() if name == "auto" else named(problem, name)
    out = backend.transformed(problem)
    if out is None:
        use = f"Use backend={reference().name!r}."
        raise BackendError(f"backend={name!r} cannot run this call {REFUSED}. {use}")
    return out


def explain_dispatch(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, *, backend: str = "auto", **options
) -> Dispatch:
    """Say which backend `attention` would choose for this call, and why, without computing anything.

    Its `second_pass` says what would read the map for `observe`: native or GPU kernels, or why not.

    >>> import torch, regard
    >>> q, k, v = torch.randn(3, 1, 8, 100, 64).unbind()
    >>> print(regard.explain_dispatch(q, k, v, softcap=30.0))
    torch: PyTorch's kernels know no soft cap, score_mod, structured or trainable bias
    """
    # A call with dropout draws its seed; asking about it must not change what is drawn next.
    with torch.random.fork_rng(devices=[]):
        problem = problem_of(q, k, v, Options(mask, **options))
    chosen = choose(problem, backend)
    return Dispatch(chosen.backend.name, chosen.why, reader_of(problem, backend).why)
