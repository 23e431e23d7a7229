"""Attention inside a traced program, where a call becomes one operator in the graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regard.engine.inputs import Options, autocast_inputs, check_tensors
from regard.engine.operators.library import attention_operator
from regard.engine.operators.packing import Packed, is_packable, pack
from regard.errors import BackendError, MaskError
from regard.masks import And, Dense, Mask, Not, Or, Where
from regard.scores import Bias

__all__ = ["traced_attention"]


def traced_attention(
    q: Tensor, k: Tensor, v: Tensor, options: Options, backend: str, untraced: Callable[..., Tensor]
) -> Tensor:
    """`attention` as one node of a graph, for any lengths; `untraced` is `attention` itself."""
    if torch._C._are_functorch_transforms_active():
        # Imported here, because it imports the compiler, which is loaded already when a program is traced.
        from regard.engine.operators.uncompiled import TRANSFORMED

        return TRANSFORMED(untraced, q, k, v, **vars(options), backend=backend)
    q, k, v = autocast_inputs(q, k, v)
    check_tensors(q, k, v)
    batch, heads = (q.shape[0], q.shape[1]) if q.ndim == 4 else (q.shape[0], 1) if q.ndim == 3 else (1, 1)
    mask, bias = options.mask, options.bias
    if mask is not None and not isinstance(mask, Mask):
        raise MaskError(f"mask is a {type(mask).__name__}; it must be a regard mask such as Causal().")
    if mask is not None:
        mask = _packable(mask, batch, heads, q.shape[-2], k.shape[-2])
    if isinstance(bias, Bias) and not is_packable(bias):
        positions = torch.arange(k.shape[-2], device=q.device)
        bias = bias.tile(positions[k.shape[-2] - q.shape[-2] :], positions)
    for x in (options.score, options.score_mod):
        if not is_packable(x):
            raise BackendError(
                f"{x!r} cannot be part of a compiled or exported program; make a score function a frozen "
                "dataclass, and define a score_mod outside of the compiled code."
            )
    of_mask, rest = Packed(), Packed()
    mask_form = pack(mask, of_mask)
    others = (options.scale, bias, options.softcap, options.sink, options.score, options.score_mod)
    form = pack((*others, options.dropout), rest)
    seed = torch.randint(2**62, ()) if options.dropout > 0 else None
    given = [q, k, v, *rest.tensors]
    wanted = [torch.is_grad_enabled() and x.requires_grad for x in given]
    return attention_operator(
        *(q, k, v, rest.tensors, of_mask.tensors, seed),
        *([*of_mask.numbers, *rest.numbers], rest.reals, form, mask_form, backend, wanted),
    )[0]


def _packable(mask: Mask, batch: int, heads: int, q: int, k: int) -> Mask:
    """The mask, with parts that can't be packed replaced by bool matrices."""
    if is_packable(mask):
        return mask
    if isinstance(mask, And | Or | Not):
        return type(mask)(*[_packable(part, batch, heads, q, k) for part in mask.parts])
    rows, columns = torch.arange(q) + (k - q), torch.arange(k)
    if isinstance(mask, Where):
        b, h = torch.arange(batch).view(-1, 1, 1, 1), torch.arange(heads).view(1, -1, 1, 1)
        allowed = mask.mask_mod(b, h, (rows - mask.origin).view(1, 1, -1, 1), columns.view(1, 1, 1, -1))
    else:
        allowed = mask.bind(batch, heads).allows(rows.view(-1, 1), columns.view(1, -1))
    return Dense(allowed.expand(*allowed.shape[:-2], q, k))
