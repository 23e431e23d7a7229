"""The sink: one logit per head that takes weight and gives nothing."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.riders import Streamed
from regard.engine.sums import add_exp

__all__ = ["with_sink"]


def with_sink(sink: Float[Tensor, "heads"], plain: Streamed, dtype: torch.dtype) -> Streamed:
    """Add a sink to the result of a forward pass without one: it scales all weights of a row by one factor.

    `dtype` is that of the output. For half precision, pass float32 sums, so that the output is rounded once.

    >>> one = torch.ones(1, 1, 1, 2)
    >>> with_sink(torch.zeros(1), Streamed(one, torch.zeros(1, 1, 1)), torch.float32).out
    tensor([[[[0.5000, 0.5000]]]])
    """
    lse = add_exp(plain.lse, sink.to(plain.lse.dtype)[:, None])
    # A row that sees nothing, under a sink of -inf: -inf - -inf is NaN.
    log_kept = (plain.lse - lse).masked_fill(plain.lse == -torch.inf, 0.0)
    kept = log_kept.exp()
    return replace(
        plain,
        out=(plain.out * kept[..., None]).to(dtype),
        lse=lse,
        columns=None if plain.columns is None else plain.columns * kept[..., None],
        # -sum (w c) log (w c) = c H - c log c.
        entropy=None if plain.entropy is None else kept * (plain.entropy - log_kept),
        distance=None if plain.distance is None else plain.distance * kept,
    )
