"""Dropout of weights, drawn tile by tile from the seed of a call."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.engine.parts import Part, Tile

__all__ = ["dropped"]


def dropped(part: Part, tile: Tile, like: Tensor) -> Tensor:
    """The dropout factors of a tile, 0 or 1/(1-p); the same on every visit, forward and backward."""
    p = part.problem
    generator = torch.Generator(device=like.device)
    place = (part.batch.start, part.kv_heads.start, tile.rows.start, tile.keys.start)
    generator.manual_seed(hash((p.seed, *place)) & (2**63 - 1))
    # In one dtype: a backward pass in float64 must drop what a forward pass in float32 dropped.
    kept = torch.rand(like.shape, generator=generator, dtype=torch.float32, device=like.device) >= p.dropout
    return kept.to(like.dtype) / (1.0 - p.dropout)
