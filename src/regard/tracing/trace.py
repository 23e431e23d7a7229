"""`trace`: every step of a small attention computation, with its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, no_type_check

import torch
from torch import Tensor

from regard.engine.inputs import Options, Problem
from regard.errors import RegardError
from regard.masks import Mask
from regard.scores import Bias, DotProduct, Score
from regard.tracing.arrays import as_tensor, check_size, one_dtype
from regard.tracing.compute import Recorder, record_attention, record_inputs, record_projection
from regard.tracing.labels import name_axes
from regard.tracing.projections import Projections
from regard.tracing.recipe import Recipe
from regard.tracing.result import Trace

__all__ = ["trace"]

_DOT = DotProduct()


@no_type_check  # what is wrong with the arguments is said by errors of our own
def trace(
    q: Any = None,
    k: Any = None,
    v: Any = None,
    mask: Mask | None = None,
    *,
    x: Any = None,
    context: Any = None,
    w_q: Any = None,
    w_k: Any = None,
    w_v: Any = None,
    w_o: Any = None,
    heads: int = 1,
    kv_heads: int | None = None,
    tokens: Any = None,
    key_tokens: Any = None,
    scale: float | None = None,
    bias: Any = None,
    softcap: float | None = None,
    sink: Any = None,
    score: Score = _DOT,
    score_mod: Callable[..., Tensor] | None = None,
) -> Trace:
    """Every step of a small attention computation, named, with its numbers: for learning, teaching and checking.

    Two ways in. `trace(q, k, v)` takes what `attention` takes. `trace(x=..., w_q=..., w_k=..., w_v=...)` starts at
    token vectors, (length, d_model) or with a batch in front, and multiplies them by matrices of shape (in, out);
    keys and values come from `context` if there is one, and `w_o` brings the heads together. Lists and numpy
    arrays will do as well as tensors and are computed in float64. The result equals `attention`'s, but holds every
    cell, so it stops at 4,096 pairs a map and 64 maps.

    >>> from regard import Causal
    >>> steps = trace([[1], [2]], [[1], [0]], [[4], [8]], Causal(), scale=0.5, tokens=["two", "words"])
    >>> print(steps.to_text(query="words"))
    """
    made = None if x is None else _projections((q, k, v), (x, context, w_q, w_k, w_v, w_o, heads, kv_heads))
    given = _given(q, k, v) if made is None else None
    device = made.x.device if given is None else given[0].device
    sink = None if sink is None else as_tensor("sink", sink)
    options = Options(mask, scale, _bias(bias), softcap, sink, score, score_mod)
    # A trace shows the numbers as given; autocast would round them to bfloat16 on the way.
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        return _trace(made, given or made.qkv(), options, (tokens, key_tokens))


def _trace(
    made: Projections | None, qkv: tuple[Tensor, Tensor, Tensor], options: Options, names: tuple[Any, Any]
) -> Trace:
    problem = Problem.of(*qkv, options)
    check_size(problem.q_len, problem.k_len, problem.batch, problem.heads)
    tokens, key_tokens = name_axes(*names, problem.q_len, problem.k_len)
    recipe = Recipe.of(problem, {} if made is None else made.matrices)
    rank = qkv[0].ndim
    record = Recorder(rank > 2, rank == 4) if made is None else Recorder(made.batched, made.heads > 1)
    q, k, v = (x.unsqueeze(1) if rank == 3 else x.view(1, 1, *x.shape) if rank == 2 else x for x in qkv)
    record_inputs(record, q, k, v, made)
    out = record_attention(record, problem, options.mask, recipe.root)
    if made is not None:
        record_projection(record, out, made.w_o)
    return Trace(tuple(record.steps), tokens, key_tokens, problem.batch, problem.heads, recipe)


def _projections(qkv: tuple[Any, Any, Any], arguments: tuple[Any, ...]) -> Projections:
    if any(given is not None for given in qkv):
        raise RegardError("trace got both x and q, k or v; give x with w_q, w_k and w_v, or else q, k and v.")
    made = Projections.of(*arguments)
    check_size(made.x.shape[1], made.source.shape[1], made.x.shape[0], made.heads)
    return made


def _given(q: Any, k: Any, v: Any) -> tuple[Tensor, ...]:
    missing = [name for name, given in (("q", q), ("k", k), ("v", v)) if given is None]
    if missing:
        raise RegardError(
            f"trace got no {' and no '.join(missing)}; give q, k and v, or x with w_q, w_k and w_v."
        )
    return one_dtype(*(as_tensor(name, given) for name, given in (("q", q), ("k", k), ("v", v))))


def _bias(bias: Any) -> Any:
    return bias if bias is None or isinstance(bias, (Tensor, Bias)) else as_tensor("bias", bias)
