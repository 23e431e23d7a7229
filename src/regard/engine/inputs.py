"""Validates the arguments of users, and raises an error with a remedy for everything that can be wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.engine.captured import check_captured, learns
from regard.engine.problem import Problem
from regard.engine.schedule import small
from regard.engine.scoring import Scoring
from regard.engine.transformed import REFUSED, is_traced, is_transformed, is_wrapped
from regard.engine.unused import hide_unused
from regard.errors import BackendError, DeviceError, DtypeError, MaskError, ScoreError, ShapeError
from regard.masks import Coverage, Mask
from regard.masks.settled import settled
from regard.memo import is_value, remembered
from regard.scores import Bias, DotProduct, Score

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Options",
    "autocast_inputs",
    "check_tensors",
    "checked_mask",
    "problem_of",
    "readable_problem_of",
]

# Autocast doesn't change the first of them.
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Options:
    """The arguments that `attention` and `observe` share, except q, k and v."""

    mask: Mask | None = None
    scale: float | None = None
    bias: Tensor | Bias | None = None
    softcap: float | None = None
    sink: Tensor | None = None
    score: Score = field(default_factory=DotProduct)
    score_mod: Callable[..., Tensor] | None = None
    dropout: float = 0.0


def problem_of(q: Tensor, k: Tensor, v: Tensor, options: Options, seed: int | None = None) -> Problem:
    """Validate a call, and convert it to the engine's layout.

    With dropout, a seed is drawn unless one is given.
    """
    q, k, v = autocast_inputs(q, k, v)
    check_tensors(q, k, v)
    rank = q.ndim
    q, k, v = (_four_dims(x) for x in (q, k, v))
    _check_shapes(q, k, v, options.score)
    mask = checked_mask(options.mask, q, k)
    _check_dropout(options.dropout)
    dim = q.shape[-1]
    q, k = _prepared(q, k, mask, options.score)
    scale = (
        options.score.default_scale(dim)
        if options.scale is None
        else _number("scale", options.scale, "multiply q by it instead")
    )
    if not math.isfinite(scale):
        raise ScoreError(f"scale is {scale}; it must be a finite number, or None for 1/sqrt(dim).")
    scoring = _check_scoring(options, scale, q, k)
    if seed is None:
        seed = int(torch.randint(2**62, ())) if options.dropout > 0 else 0
    sink, offset = _check_sink(options.sink, q), k.shape[2] - q.shape[2]
    return Problem(q, k, v, mask, scoring, sink, options.dropout, offset, rank, seed)


def _prepared(q: Tensor, k: Tensor, mask: Mask | None, score: Score) -> tuple[Tensor, Tensor]:
    """Apply a score function's `prepare` to q and k, with zeros in rows that no visible pair uses."""
    projects = type(score).prepare is not Score.prepare
    if projects and mask is not None and not (q.is_meta or is_wrapped(q) or is_wrapped(k)):
        q, k = hide_unused(q, k, mask)
    return score.prepare(q, k)


def readable_problem_of(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Problem:
    """`problem_of` for a map, whose tensors must have readable numbers."""
    if is_traced(q):
        raise BackendError(
            "a map cannot be read while a program is exported or traced, nor of fake tensors, which hold no "
            "numbers. Call `attention` inside, and `observe` outside."
        )
    problem = problem_of(q, k, v, options)
    if problem.q.is_meta:
        raise DeviceError(
            "q is on the meta device, which holds no numbers, so its map has no cells to read. Give q, k and "
            "v on a real device; `attention` works on meta tensors, and returns the shape of the output."
        )
    if is_transformed(problem):
        raise BackendError(
            f"a map cannot be read {REFUSED}, which hide its numbers. Call `attention` inside, and `observe` "
            "outside."
        )
    return problem


def autocast_inputs(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cast inputs under torch.autocast as PyTorch's own attention does."""
    if not isinstance(q, Tensor) or q.is_meta or not torch.is_autocast_enabled(q.device.type):
        return q, k, v
    dtype = torch.get_autocast_dtype(q.device.type)
    q, k, v = (x.to(dtype) if isinstance(x, Tensor) and x.dtype in FLOATS[1:] else x for x in (q, k, v))
    return q, k, v


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise unless q, k and v are tensors of one rank, dtype and device."""
    named = {"q": q, "k": k, "v": v}
    for name, x in named.items():
        if not isinstance(x, Tensor):
            raise DtypeError(f"{name} is a {type(x).__name__}; it must be a torch.Tensor.")
        if x.dtype not in FLOATS:
            raise DtypeError(
                f"{name} is {x.dtype}; attention needs float64, float32, bfloat16 or float16. "
                f"Convert it, for example {name}.float()."
            )
        if x.ndim not in (2, 3, 4):
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}; it must be (batch, heads, length, dim), "
                "(batch, length, dim) or (length, dim)."
            )
    if not q.ndim == k.ndim == v.ndim:
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in named.items())
        raise ShapeError(f"q, k and v differ in rank: {shapes}. Give all three the same rank.")
    if not q.dtype == k.dtype == v.dtype:
        dtypes = ", ".join(f"{name} is {x.dtype}" for name, x in named.items())
        raise DtypeError(f"{dtypes}; they must share one dtype. Convert with .to(q.dtype).")
    if not q.device == k.device == v.device:
        devices = ", ".join(f"{name} is on {x.device}" for name, x in named.items())
        raise DeviceError(f"{devices}; they must share one device. Move with .to(q.device).")


def _four_dims(x: Tensor) -> Tensor:
    return x if x.ndim == 4 else x.unsqueeze(1) if x.ndim == 3 else x[None, None]


def _check_shapes(q: Tensor, k: Tensor, v: Tensor, score: Score) -> None:
    if not isinstance(score, Score):
        raise ScoreError(
            f"score is a {type(score).__name__}; it must be a score function such as DotProduct()."
        )
    if not q.shape[0] == k.shape[0] == v.shape[0]:
        raise ShapeError(
            f"q has batch {q.shape[0]}, k has {k.shape[0]} and v has {v.shape[0]}; they must be equal. "
            "Use .expand to share one batch row."
        )
    if k.shape[1] != v.shape[1]:
        raise ShapeError(f"k has {k.shape[1]} heads and v has {v.shape[1]}; they must be equal.")
    if 0 in (q.shape[1], k.shape[1], q.shape[3], k.shape[3]):
        raise ShapeError(
            f"q has {q.shape[1]} heads of dim {q.shape[3]} and k has {k.shape[1]} of dim {k.shape[3]}; "
            "each must be at least 1."
        )
    if q.shape[1] % k.shape[1]:
        raise ShapeError(
            f"q has {q.shape[1]} heads and k has {k.shape[1]}; q heads must be a multiple of k heads."
        )
    if k.shape[2] != v.shape[2]:
        raise ShapeError(
            f"k has length {k.shape[2]} and v has length {v.shape[2]}; each key needs exactly one value."
        )
    score.check(q, k)


def checked_mask(mask: Mask | None, q: Tensor, k: Tensor) -> Mask | None:
    """The mask of a call, bound to its batch and heads; None if it hides nothing."""
    if mask is None:
        return None
    if isinstance(mask, Tensor):
        if mask.dtype == torch.bool:
            remedy = "wrap it: Dense(mask), or Padding(mask) for one flag per key (True = may attend)"
        else:
            remedy = (
                "additive masks belong in bias=; for a bool mask use Dense(mask.bool()), True = may attend"
            )
        raise MaskError(f"mask is a {mask.dtype} tensor of shape {tuple(mask.shape)}; {remedy}.")
    if isinstance(mask, type) and issubclass(mask, Mask):
        raise MaskError(f"mask is the class {mask.__name__} and not a mask; call it: {mask.__name__}(...).")
    if not isinstance(mask, Mask):
        remedy = " Wrap a mask_mod function: Where(fn)." if callable(mask) else ""
        raise MaskError(
            f"mask is a {type(mask).__name__}; it must be a regard mask such as Causal().{remedy}"
        )
    batch, heads = q.shape[:2]
    mask = mask.bind(batch, heads)
    mask.check(q.shape[2], k.shape[2], batch, heads)
    return None if _allows_everything(mask, q.shape[2], k.shape[2]) else mask


def _allows_everything(mask: Mask, q: int, k: int) -> bool:
    """Whether a mask allows every pair, such as a causal mask in a decode step or a window wider than the
    text."""
    if not (q and k):
        return False
    known = None if is_value(mask) else settled(mask)
    return _coverage(mask if known is None else known, q, k) is Coverage.FULL


@remembered(32, small)
def _coverage(mask: Mask, q: int, k: int) -> Coverage:
    """The coverage of the whole map."""
    return mask.coverage((k - q, k), (0, k))


def _check_dropout(dropout: float) -> None:
    if not 0.0 <= _number("dropout", dropout) < 1.0:
        raise ShapeError(f"dropout is {dropout}; it must be at least 0 and below 1.")


def _check_sink(sink: Tensor | None, q: Tensor) -> Tensor | None:
    if sink is None:
        return None
    if not isinstance(sink, Tensor) or sink.shape != (q.shape[1],):
        got = tuple(sink.shape) if isinstance(sink, Tensor) else type(sink).__name__
        raise ShapeError(f"sink is {got}; it must be one logit per query head, shape ({q.shape[1]},).")
    if sink.device != q.device:
        raise DeviceError(f"sink is on {sink.device} and q on {q.device}. Move it with .to(q.device).")
    return sink


def _check_scoring(options: Options, scale: float, q: Tensor, k: Tensor) -> Scoring:
    """Check bias, soft cap and score_mod against the (prepared) queries and keys."""
    bias = options.bias
    if isinstance(bias, Tensor):
        bias = _check_dense_bias(bias, q, k)
    elif isinstance(bias, Bias):
        bias.check(q.shape[1])
    elif bias is not None:
        raise ScoreError(f"bias is a {type(bias).__name__}; it must be a tensor, ALiBi or RelativeBias.")
    if options.softcap is not None and not 0 < _number("softcap", options.softcap) < math.inf:
        raise ScoreError(f"softcap is {options.softcap}; it must be positive and finite, or None for no cap.")
    _check_score_mod(options.score_mod)
    scoring = Scoring(options.score, scale, bias, options.softcap, options.score_mod)
    if not scoring.linear:
        check_captured(scoring, q, k)
    return scoring


def _check_dense_bias(bias: Tensor, q: Tensor, k: Tensor) -> Tensor:
    want = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if bias.dtype == torch.bool:
        raise ScoreError("bias is a bool tensor; a bool mask belongs in mask=Dense(...), True = may attend.")
    if not bias.is_floating_point():
        raise ScoreError(f"bias is {bias.dtype}; it must be a float tensor.")
    if bias.device != q.device:
        raise DeviceError(f"bias is on {bias.device} and q on {q.device}. Move it with .to(q.device).")
    if bias.ndim > 4 or any(b not in (1, w) for b, w in zip(bias.shape[::-1], want[::-1], strict=False)):
        raise ShapeError(
            f"bias has shape {tuple(bias.shape)}; it must broadcast to (batch, heads, q, k) = {want}."
        )
    return bias.view((1,) * (4 - bias.ndim) + tuple(bias.shape))


def _number(name: str, value: object, remedy: str = "detach it") -> float:
    """Check that a value is a number. A tensor that requires grad is refused, because no gradient would flow
    into it."""
    if isinstance(value, Tensor) and learns(value):
        raise ScoreError(f"{name} requires grad, and no gradient flows into it; {remedy}.")
    try:
        return float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, RuntimeError):
        raise ScoreError(f"{name} is {value!r}; it must be a number.") from None


def _check_score_mod(score_mod: Callable[..., Tensor] | None) -> None:
    if score_mod is None:
        return
    if not callable(score_mod):
        raise ScoreError(f"score_mod is a {type(score_mod).__name__}; it must be a function.")
