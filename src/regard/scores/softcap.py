"""The soft cap of Gemma 2 and Grok, which bounds scores smoothly to (-cap, cap)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ScoreError

__all__ = ["soft_cap"]


def soft_cap(s: Float[Tensor, "*shape"], cap: float) -> Float[Tensor, "*shape"]:
    """Bound scores by cap * tanh(s / cap), which hardly changes small scores.

    A score of -inf stays -inf; with -cap, a masked pair would have weight again.

    >>> import torch
    >>> soft_cap(torch.tensor([1.0, 1000.0, -torch.inf]), cap=50.0).round(decimals=4)
    tensor([ 0.9999, 50.0000,    -inf])
    """
    if not (cap > 0 and math.isfinite(cap)):
        raise ScoreError(f"soft cap is {cap}; it must be a finite number above 0. Leave it out for no cap.")
    return (cap * torch.tanh(s / cap)).masked_fill(s == -torch.inf, -torch.inf)
