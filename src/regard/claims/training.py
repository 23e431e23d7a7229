"""Trains tiny models within seconds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["right", "train"]

Batch = Callable[[int], tuple[Tensor, Tensor]]


def train(model: nn.Module, batch: Batch, steps: int, *, size: int = 64, rate: float = 3e-3) -> list[float]:
    """Minimise cross-entropy on fresh batches with Adam; the loss of every step.

    `batch(size)` gives inputs and classes; the model gives logits, one row for each class to name.

    >>> ids = torch.arange(4)
    >>> losses = train(nn.Embedding(4, 4), lambda size: (ids, ids), steps=30, rate=0.1)
    >>> losses[-1] < losses[0]
    True
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        inputs, classes = batch(size)
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, -2), classes.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def right(model: nn.Module, batch: Batch, size: int = 512) -> float:
    """The share of classes that the model names rightly."""
    inputs, classes = batch(size)
    return (model(inputs).argmax(-1) == classes).double().mean().item()
