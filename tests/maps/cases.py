"""Maps to observe: every kind of mask, head layout and score modification, with the dense truth beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from oracle import Dense, dense_attention, dense_mask
from regard.masks import Causal, Documents, Longformer, Mask, Padding, Window
from regard.scores import ALiBi


@dataclass
class Case:
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask | None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def dense(self) -> Dense:
        """Everything in float64, with the whole matrix."""
        options = dict(self.options)
        if isinstance(options.get("bias"), ALiBi):
            positions = torch.arange(self.q.shape[2]) + self.k.shape[2] - self.q.shape[2]
            options["bias"] = options["bias"].tile(positions, torch.arange(self.k.shape[2]))
        allowed = dense_mask(self.mask, self.q, self.k)
        return dense_attention(self.q, self.k, self.v, allowed, dtype=torch.float64, **options)


def tensors(batch: int, heads: int, kv_heads: int, q: int, k: int, dim: int = 16, dtype=torch.float32):
    return (
        torch.randn(batch, heads, q, dim, dtype=dtype),
        torch.randn(batch, kv_heads, k, dim, dtype=dtype),
        torch.randn(batch, kv_heads, k, dim, dtype=dtype),
    )


def cases() -> dict[str, Case]:
    """Small enough for the dense truth, large enough to cross tiles of 512 rows and 1024 keys."""
    torch.manual_seed(7)
    valid = torch.ones(2, 1100, dtype=torch.bool)
    valid[0, 900:] = False
    valid[1, :37] = False
    return {
        "plain": Case(*tensors(1, 2, 2, 65, 63), None),
        "causal": Case(*tensors(1, 2, 2, 600, 600), Causal()),
        "grouped window with a cache": Case(*tensors(1, 4, 2, 130, 1300), Causal() & Window(900)),
        "dead rows": Case(*tensors(1, 2, 1, 40, 33), Causal(shift=-5)),
        "sink and soft cap": Case(
            *tensors(1, 2, 2, 530, 530), Causal(), {"sink": torch.tensor([1.5, -0.5]), "softcap": 3.0}
        ),
        "sink over dead rows": Case(*tensors(1, 2, 2, 9, 5), Causal(), {"sink": torch.tensor([0.3, 2.0])}),
        "alibi": Case(*tensors(1, 4, 4, 70, 70), Causal(), {"bias": ALiBi.for_heads(4)}),
        "dense bias": Case(*tensors(2, 2, 1, 20, 31), None, {"bias": torch.randn(2, 1, 20, 31)}),
        "ragged padding": Case(*tensors(2, 2, 1, 1100, 1100), Causal() & Padding(valid)),
        "documents": Case(*tensors(1, 1, 1, 300, 300), Documents(lengths=[1, 63, 200, 36])),
        "sparse": Case(*tensors(1, 2, 2, 257, 257), Longformer(32, (0, 100))),
        "score mod": Case(
            *tensors(1, 2, 2, 65, 70),
            None,
            {"score_mod": lambda s, b, h, i, j: s - 0.1 * (i - j).abs() * (h + 1)},
        ),
    }
