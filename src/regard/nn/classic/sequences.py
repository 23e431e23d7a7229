"""Helpers of the classic mechanisms for batches of sequences of different lengths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.masks import Padding
from regard.stats import Entropy, MaxScore, SinkMass

__all__ = ["ROWS", "Lengths", "check_sequences", "lengths_of", "padding"]

Lengths = Sequence[int] | Tensor
# Without the mean distance, which is undefined between two sequences.
ROWS = (Entropy(), MaxScore(), SinkMass())


def check_sequences(**named: tuple[Tensor, int]) -> None:
    """Raise ShapeError unless each tensor is (batch, length, dim), with its dim, and batches agree."""
    for name, (x, dim) in named.items():
        if x.ndim != 3 or x.shape[-1] != dim:
            raise ShapeError(f"{name} has shape {tuple(x.shape)}; it must be (batch, length, {dim}).")
    batches = {name: x.shape[0] for name, (x, _) in named.items()}
    if len(set(batches.values())) > 1:
        found = " and ".join(f"{name} has {size}" for name, size in batches.items())
        raise ShapeError(f"{found} batch rows; they must be equal.")


def padding(lengths: Lengths | None, x: Tensor, name: str = "lengths") -> Padding | None:
    """The mask of a batch padded at the end; None without padding."""
    if lengths is None:
        return None
    if len(lengths) != x.shape[0]:
        raise ShapeError(
            f"{name} holds {len(lengths)} lengths for {x.shape[0]} batch rows; give one per row."
        )
    return Padding.from_lengths(torch.as_tensor(lengths, device=x.device), x.shape[1])


def lengths_of(lengths: Lengths | None, x: Tensor) -> Tensor:
    """The length of every batch row, in x's dtype."""
    full = [x.shape[1]] * x.shape[0] if lengths is None else lengths
    return torch.as_tensor(full).to(x)
