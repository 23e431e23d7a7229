"""The axes of a module's inputs and outputs: b batch, n tokens, d width; c, h, w for images."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from regard.doctor.subject import tensors_in

__all__ = ["AXES", "NO_VECTORS", "arranged", "token_vectors"]

AXES = ("bnd", "nbd", "nd", "bdn", "bchw")
NO_VECTORS = "which has no vector for each token"


def arranged(state: Tensor, shape: str) -> Tensor:
    """Rearrange tokens (batch, length, width) into the axes that a module takes."""
    if shape == "bchw":
        return state.transpose(1, 2).unflatten(-1, (2, -1))
    if shape == "bdn":
        return state.transpose(1, 2)
    return state.transpose(0, 1) if shape == "nbd" else state[0] if shape == "nd" else state


def token_vectors(found: Any, x: Tensor, shape: str) -> Tensor:
    """The first tensor of an output that has a vector per token, as (batch, length, width)."""
    outs = [y for y in tensors_in(found) if y.is_floating_point()]
    if not outs:
        raise TypeError(f"it returned {type(found).__name__} and no tensor")
    like = [y for y in outs if y.shape == x.shape]
    rows = x.shape[:2] if shape in ("bnd", "nbd") else x.shape[:1]
    like += [
        y
        for y in outs
        if y.dim() == x.dim() and y.shape[: len(rows)] == rows and shape in ("bnd", "nbd", "nd")
    ]
    if not like:
        raise TypeError(f"it returned {tuple(outs[0].shape)}, {NO_VECTORS}")
    out = like[0]
    if shape == "bchw":
        return out.flatten(2).transpose(1, 2)
    if shape == "bdn":
        return out.transpose(1, 2)
    return out.transpose(0, 1) if shape == "nbd" else out[None] if shape == "nd" else out
