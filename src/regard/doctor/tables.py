"""Weights that are looked up or added and never multiplied: tables of positions, learnt biases."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from regard.doctor.modules import ModuleSubject

__all__ = ["neutral", "restore", "silence"]


def silence(subject: ModuleSubject) -> dict[str, Tensor]:
    """Set every table of a module to zero, and return what was in them.

    A copy with random weights is examined, and zero is as good a weight as any other: what remains is the
    formula, or the mistake, that a table would hide.
    """
    multiplied = frozenset().union(*(product.names for product in subject.anatomy.products))
    held = {}
    with torch.no_grad():
        for name, weight in subject.module.named_parameters():
            if is_lazy(weight):
                continue
            wide = sum(size > 1 for size in weight.shape) >= 2
            if wide and name in subject.anatomy.used and name not in multiplied:
                held[name] = weight.clone()
                weight.zero_()
    return held


def neutral(subject: ModuleSubject) -> dict[str, Tensor]:
    """Set every factor of a head to one, and return what was in them."""
    multiplied = frozenset().union(*(product.names for product in subject.anatomy.products))
    held = {}
    with torch.no_grad():
        for name, weight in subject.module.named_parameters():
            if is_lazy(weight) or name in multiplied or name not in subject.anatomy.used:
                continue
            if weight.numel() in (1, subject.heads):
                held[name] = weight.clone()
                weight.fill_(1.0)
    return held


def restore(subject: ModuleSubject, held: dict[str, Tensor]) -> None:
    """Put back what `silence` took out."""
    weights = dict(subject.module.named_parameters())
    with torch.no_grad():
        for name, values in held.items():
            weights[name].copy_(values)
