"""`sdpa`: a drop-in replacement for PyTorch's function, with its signature and rules."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.engine.attention import attention
from regard.engine.dispatch import short
from regard.engine.transformed import is_traced, is_wrapped
from regard.errors import DtypeError, MaskError, ShapeError
from regard.masks import Causal, Dense, Mask

__all__ = ["sdpa"]


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | Mask | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, computed by regard; a regard mask is welcome too.

    PyTorch's rules hold: leading dimensions broadcast, a bool mask says who participates, a float mask is
    added, the causal mask is aligned at the *top left*, and dropout is applied whenever it is not 0.

    >>> import torch, regard
    >>> q, k, v = torch.randn(3, 2, 4, 10, 16).unbind()
    >>> regard.sdpa(q, k, v, is_causal=True).shape
    torch.Size([2, 4, 10, 16])
    """
    plain = not (dropout_p or is_causal) and (attn_mask is None or isinstance(attn_mask, (Tensor, Mask)))
    if plain and (enable_gqa or _alike(query, key)) and not is_traced(query):
        out = short(query, key, value, attn_mask, scale)
        if out is not None:
            return out
    if enable_gqa:
        key, value = _same_heads(query, key, value)
    lead = _leading(query, key, value, enable_gqa)
    q, k, v = (_stacked(x, shape) for x, shape in zip((query, key, value), lead, strict=True))
    mask: Mask | None = attn_mask if isinstance(attn_mask, Mask) else None
    bias = None
    if not isinstance(attn_mask, Tensor | Mask | None):
        raise MaskError(
            f"attn_mask is a {type(attn_mask).__name__}; it must be a bool or float tensor, or a regard mask."
        )
    if isinstance(attn_mask, Tensor):
        full = (*lead[0], query.shape[-2], key.shape[-2])
        given = _stacked_mask(attn_mask, full)
        if attn_mask.dtype == torch.bool and is_wrapped(attn_mask):
            # torch.func hides which pairs may attend; what is added need not be read.
            bias = torch.zeros_like(given, dtype=query.dtype).masked_fill(~given, -torch.inf)
        elif attn_mask.dtype == torch.bool:
            mask = Dense(given.expand(-1, -1, *full[-2:]))
        elif attn_mask.is_floating_point():
            bias = given
        else:
            raise MaskError(
                f"attn_mask is {attn_mask.dtype}; it must be bool (True = participates) or float."
            )
    if is_causal:
        causal = Causal(shift=query.shape[-2] - key.shape[-2])
        mask = causal if mask is None else mask & causal
    if dropout_p == 1.0:
        # Everything is dropped: the output and its gradients are zero.
        out = attention(q, k, v, mask, scale=scale, bias=bias)
        out = out.masked_fill(torch.ones((), dtype=torch.bool, device=out.device), 0.0)
    else:
        out = attention(q, k, v, mask, scale=scale, bias=bias, dropout=dropout_p)
    return out.view(*lead[0], *out.shape[-2:])


def _alike(query: object, key: object) -> bool:
    """Whether nothing is to be broadcast: both have the same leading dimensions."""
    return isinstance(query, Tensor) and isinstance(key, Tensor) and query.shape[:-2] == key.shape[:-2]


def _same_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat heads so that key and value have equally many: PyTorch allows different numbers that divide the
    query's."""
    tensors = (query, key, value)
    if not all(isinstance(x, Tensor) and x.ndim >= 3 for x in tensors):
        return key, value
    heads, own = query.shape[-3], (key.shape[-3], value.shape[-3])
    if own[0] == own[1]:
        return key, value
    if any(not n or heads % n for n in own):
        raise ShapeError(
            f"query has {heads} heads, key {own[0]} and value {own[1]}; with enable_gqa the head counts of "
            "key and value must divide that of query."
        )
    return key.repeat_interleave(heads // own[0], -3), value.repeat_interleave(heads // own[1], -3)


def _leading(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> list[tuple[int, ...]]:
    """The leading dimensions (…, heads) of the three after broadcasting; heads differ only with GQA."""
    tensors = (query, key, value)
    for name, x in zip(("query", "key", "value"), tensors, strict=True):
        if not isinstance(x, Tensor):
            raise DtypeError(f"{name} is a {type(x).__name__}; it must be a torch.Tensor.")
    if any(x.ndim < 2 for x in tensors):
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors)
        raise ShapeError(f"query, key and value have shapes {shapes}; each must be (…, length, dim).")
    try:
        if not enable_gqa or any(x.ndim < 3 for x in tensors):
            lead = torch.broadcast_shapes(*(x.shape[:-2] for x in tensors))
            return [tuple(lead)] * 3
        lead = torch.broadcast_shapes(*(x.shape[:-3] for x in tensors))
        return [(*lead, x.shape[-3]) for x in tensors]
    except RuntimeError:
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors)
        raise ShapeError(
            f"the leading dimensions of query, key and value ({shapes}) do not broadcast. "
            "For grouped heads pass enable_gqa=True."
        ) from None


def _stacked(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """(…, heads, length, dim) → (batch, heads, length, dim)."""
    x = x.expand(*lead, *x.shape[-2:])
    return x.reshape(math.prod(lead[:-1]), lead[-1] if lead else 1, *x.shape[-2:])


def _stacked_mask(mask: Tensor, full: tuple[int, ...]) -> Tensor:
    """A mask that broadcasts to (…, heads, q, k) as one of 4 dimensions, each full or 1."""
    try:
        fits = torch.broadcast_shapes(mask.shape, full) == full
    except RuntimeError:
        fits = False
    if not fits:
        raise ShapeError(f"attn_mask has shape {tuple(mask.shape)}, which does not broadcast to {full}.")
    mask = mask.view((1,) * (len(full) - mask.ndim) + tuple(mask.shape))
    while mask.ndim < 4:
        mask = mask[None]
    if mask.ndim == 4:
        return mask
    batch = mask.shape[:-3]
    if set(batch) == {1}:
        return mask.view(1, *mask.shape[-3:])
    return mask.expand(*full[:-3], *mask.shape[-3:]).flatten(0, -4)
