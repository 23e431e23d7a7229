"""Converts between PyTorch's attention module and regard's."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.errors import ModelError
from regard.nn.projected import Projected

__all__ = ["from_torch", "projections", "to_torch"]

Ours = TypeVar("Ours", bound=Projected)


def projections(module: nn.MultiheadAttention) -> list[tuple[Tensor, Tensor | None]]:
    """The weights and biases of a PyTorch module's query, key and value projections, in this order."""
    if module.in_proj_weight is None:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    else:
        weights = module.in_proj_weight.chunk(3)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    return list(zip(weights, biases, strict=True))


def from_torch(module: nn.MultiheadAttention, cls: type[Ours]) -> Ours:
    """A `MultiHeadAttention` with a copy of a PyTorch module's weights."""
    if not isinstance(module, nn.MultiheadAttention):
        raise ModelError(
            f"from_torch got a {type(module).__name__}; it converts torch.nn.MultiheadAttention."
        )
    if module.bias_k is not None or module.add_zero_attn:
        raise ModelError(
            "add_bias_kv and add_zero_attn add keys that no token has, which MultiHeadAttention does not; "
            "swap the module with regard.nn.drop_in instead."
        )
    ours = cls(
        module.embed_dim,
        module.num_heads,
        key_dim=module.kdim,
        value_dim=module.vdim,
        bias=module.in_proj_bias is not None,
        dropout=module.dropout,
    )
    ours.to(module.out_proj.weight).train(module.training)
    sources = [*projections(module), (module.out_proj.weight, module.out_proj.bias)]
    targets = (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj)
    with torch.no_grad():
        for target, (weight, bias) in zip(targets, sources, strict=True):
            target.weight.copy_(weight)
            if bias is not None:
                target.bias.copy_(bias)
    return ours


def to_torch(module: Projected, batch_first: bool = True) -> nn.MultiheadAttention:
    """A PyTorch module with a copy of a `MultiHeadAttention`'s weights."""
    if module.rotary is not None:
        raise ModelError(
            f"{module.rotary!r} cannot go into torch.nn.MultiheadAttention, which knows no positions; "
            "keep this module."
        )
    theirs = nn.MultiheadAttention(
        module.dim,
        module.heads,
        dropout=module.dropout,
        bias=module.out_proj.bias is not None,
        kdim=module.k_proj.in_features,
        vdim=module.v_proj.in_features,
        batch_first=batch_first,
        device=module.out_proj.weight.device,
        dtype=module.out_proj.weight.dtype,
    )
    theirs.train(module.training)
    group = module.heads // module.kv_heads
    sources = ((module.q_proj, 1), (module.k_proj, group), (module.v_proj, group))
    with torch.no_grad():
        for (source, times), (weight, bias) in zip(sources, projections(theirs), strict=True):
            weight.copy_(_repeated(source.weight, times, module.head_dim))
            if bias is not None:
                bias.copy_(_repeated(source.bias, times, module.head_dim))
        theirs.out_proj.load_state_dict(module.out_proj.state_dict())
    return theirs


def _repeated(parameter: Tensor, times: int, head_dim: int) -> Tensor:
    """Repeat the rows of each key head for all query heads that share it."""
    return parameter.unflatten(0, (-1, head_dim)).repeat_interleave(times, 0).flatten(0, 1)
