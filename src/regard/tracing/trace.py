"""`trace`: every step of a small attention computation, with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from regard.engine.inputs import Options, problem_of
from regard.errors import RegardError, ScoreError
from regard.masks import Mask
from regard.scores import Bias, DotProduct, Score
from regard.tracing.arrays import as_tensor, check_size, one_dtype
from regard.tracing.compute import Recorder, record_attention, record_inputs, record_projection
from regard.tracing.labels import name_axes
from regard.tracing.middle import as_row, as_scores, check_weights, from_scores, from_weights
from regard.tracing.projections import Projections
from regard.tracing.recipe import Recipe
from regard.tracing.result import Trace

__all__ = ["trace"]

_DOT = DotProduct()


def trace(
    q: Any = None,
    k: Any = None,
    v: Any = None,
    mask: Mask | None = None,
    *,
    scores: Any = None,
    weights: Any = None,
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
    """Every step of a small attention computation by name, with its numbers, for learning and for checking.

    There are four ways to call it. `trace(q, k, v)` takes the arguments of `attention`. `trace(scores=...)`
    and `trace(weights=..., v=...)` start in the middle; such scores are scaled only if `scale` is given.
    `trace(x=..., w_q=..., w_k=..., w_v=...)` starts from token vectors, (length, d_model) or with a leading
    batch, and matrices of shape (in, out); keys and values are projected from `context` if given, and `w_o`
    is the output projection. Lists and numpy arrays are converted to float64 tensors. The output equals that
    of `attention`. All intermediate cells are stored, so at most 4,096 pairs per map and 64 maps are allowed.

    >>> from regard import Causal
    >>> steps = trace([[1], [2]], [[1], [0]], [[4], [8]], Causal(), scale=0.5, tokens=["two", "words"])
    >>> for step in steps:
    ...     print(step.formula)
    q
    k
    v
    scores = q kᵀ
    scaled = scores × 0.5
    masked = scaled, −∞ where hidden
    weights = softmax(masked)
    output = weights v
    >>> steps.output
    tensor([[4.0000],
            [5.0758]], dtype=torch.float64)
    """
    matrices = {"context": context, "w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
    qkv = {"q": q, "k": k, "v": v}
    names = (tokens, key_tokens)
    if scores is not None or weights is not None:
        extra = {**matrices, "x": x, "q": q, "k": k}
        scale = 1.0 if scale is None else scale
        options = _options(mask, scale, bias, softcap, sink, _DOT, score_mod)
        return _from_the_middle(scores, weights, v, extra, options, names)
    options = _options(mask, scale, bias, softcap, sink, score, score_mod)
    if x is None:
        qkv = _given(qkv, matrices, heads, kv_heads)
        with _exactly(qkv[0].device):
            return _trace(qkv, None, options, names)
    made = _projections(x, matrices, heads, kv_heads, qkv)
    with _exactly(made.x.device):
        return _trace(made.qkv(), made, options, names)


def _from_the_middle(
    scores: Any, weights: Any, v: Any, extra: dict[str, Any], options: Options, names: tuple[Any, Any]
) -> Trace:
    """The steps from scores on, or from weights on."""
    given, name = (scores, "scores") if weights is None else (weights, "weights")
    unwanted = [other for other, value in extra.items() if value is not None]
    unwanted += ["scores"] if scores is not None and weights is not None else []
    if unwanted:
        raise RegardError(
            f"trace got {name} and {' and '.join(unwanted)}; a trace that starts with {name} needs nothing "
            "before them. Give one or the other."
        )
    table = as_row(name, given)
    if name == "weights":
        if v is None:
            raise RegardError("trace got weights and no v; give v, the values that they mix.")
        check_weights(table)
    qkv = as_scores(table if name == "scores" else table.log(), v)
    with _exactly(table.device):
        steps = _trace(qkv, None, options, names)
        return from_scores(steps, v is not None) if name == "scores" else from_weights(steps, table)


@contextmanager
def _exactly(device: torch.device) -> Iterator[None]:
    """Within the block, disable gradients and autocast, which would round the inputs."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


def _trace(
    qkv: tuple[Tensor, ...], made: Projections | None, options: Options, names: tuple[Any, Any]
) -> Trace:
    q, k, v = qkv
    problem = problem_of(q, k, v, options)
    check_size(problem.q_len, problem.k_len, problem.batch, problem.heads)
    tokens, key_tokens = name_axes(*names, problem.q_len, problem.k_len)
    recipe = Recipe.of(problem, {} if made is None else made.matrices)
    rank = q.ndim
    record = Recorder(rank > 2, rank == 4) if made is None else Recorder(made.batched, made.heads > 1)
    q, k, v = (x.unsqueeze(1) if rank == 3 else x[None, None] if rank == 2 else x for x in qkv)
    record_inputs(record, q, k, v, made)
    out = record_attention(record, problem, options.mask, recipe.root)
    if made is not None:
        record_projection(record, out, made.w_o)
    return Trace(tuple(record.steps), tokens, key_tokens, problem.batch, problem.heads, recipe)


def _projections(
    x: Any, matrices: dict[str, Any], heads: Any, kv_heads: Any, qkv: dict[str, Any]
) -> Projections:
    unwanted = [name for name, given in qkv.items() if given is not None]
    if unwanted:
        raise RegardError(
            f"trace got x and {' and '.join(unwanted)}; q, k and v are made from x. Give one or the other."
        )
    made = Projections.of(x, **matrices, heads=heads, kv_heads=kv_heads)
    check_size(made.x.shape[1], made.source.shape[1], made.x.shape[0], made.heads)
    return made


def _given(qkv: dict[str, Any], matrices: dict[str, Any], heads: Any, kv_heads: Any) -> tuple[Tensor, ...]:
    missing = [name for name, given in qkv.items() if given is None]
    if missing:
        raise RegardError(
            f"trace got no {' and no '.join(missing)}; give q, k and v, or x with w_q, w_k and w_v."
        )
    unwanted = [name for name, given in matrices.items() if given is not None]
    unwanted += ["heads"] if heads != 1 else []
    unwanted += ["kv_heads"] if kv_heads is not None else []
    if unwanted:
        raise RegardError(
            f"trace got {' and '.join(unwanted)} without x; they say how q, k and v are made from x. "
            "Give x instead of q, k and v, or leave them out."
        )
    return one_dtype(*(as_tensor(name, given) for name, given in qkv.items()))


def _options(
    mask: Any, scale: Any, bias: Any, softcap: Any, sink: Any, score: Any, score_mod: Any
) -> Options:
    if not isinstance(score, Score):
        raise ScoreError(
            f"score is a {type(score).__name__}; it must be a score function such as DotProduct()."
        )
    if not isinstance(bias, Bias) and bias is not None:
        bias = bias.detach() if isinstance(bias, Tensor) else as_tensor("bias", bias)
    sink = None if sink is None else as_tensor("sink", sink)
    return Options(mask, scale, bias, softcap, sink, score, score_mod)
