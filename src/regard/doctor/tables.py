"""Weights that are looked up or added but never multiplied: position tables, learnt biases."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from regard.doctor.modules import ModuleSubject

__all__ = ["neutral", "restore", "silence"]


def silence(subject: ModuleSubject) -> dict[str, Tensor]:
    """Set every table of a module to zero; returns the old values.

    The examined copy has random weights anyway. Without the tables, the formula or the mistake that they
    would hide shows.
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
    """Set every per-head factor to one; returns the old values."""
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
    """Restore the values that `silence` or `neutral` returned."""
    weights = dict(subject.module.named_parameters())
    with torch.no_grad():
        for name, values in held.items():
            weights[name].copy_(values)
