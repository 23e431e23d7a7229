"""`MultiHeadAttention`: multi-head attention whose maps can be observed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.engine import KVCache, attention
from regard.errors import ShapeError
from regard.maps import Observation, observe
from regard.maps.observation import ROWS
from regard.masks import Mask
from regard.nn.conversion import from_torch, to_torch
from regard.nn.heads import check_input, joined, split
from regard.nn.projected import Projected
from regard.scores import Bias
from regard.stats import Statistic

__all__ = ["MultiHeadAttention"]


class _Call(NamedTuple):
    """One call of the engine: its tensors, and its options by name."""

    q: Tensor
    k: Tensor
    v: Tensor
    options: dict[str, Any]


class MultiHeadAttention(Projected):
    """Multi-head self- or cross-attention whose maps can be read.

    `kv_heads` below `heads` is grouped-query attention; 1 is multi-query attention. `key_dim` and `value_dim`
    are the widths of keys and values, by default those of the queries. `bias` adds biases to the four
    projections. `rotary` rotates queries and keys; make it for one head: `Rotary(dim // heads)`. Inputs are
    (batch, length, dim) or (length, dim). Dropout is applied only in training mode.

    >>> import torch, regard
    >>> from regard.scores import Rotary
    >>> layer = MultiHeadAttention(64, 8, kv_heads=2, rotary=Rotary(8))
    >>> x = torch.randn(1, 100, 64)
    >>> layer(x, mask=regard.Causal()).shape
    torch.Size([1, 100, 64])
    >>> out, seen = layer.observe(x, mask=regard.Causal(), stats=[regard.Entropy()])
    >>> seen.entropy.shape, seen.map[0, 7, 99, :].sum().round(decimals=4)
    (torch.Size([1, 8, 100]), tensor(1.))
    """

    def forward(
        self,
        query: Float[Tensor, "*batch q dim"],
        key: Float[Tensor, "*batch k key_dim"] | None = None,
        value: Float[Tensor, "*batch k value_dim"] | None = None,
        mask: Mask | None = None,
        *,
        bias: Tensor | Bias | None = None,
        cache: KVCache | None = None,
        positions: Tensor | None = None,
    ) -> Float[Tensor, "*batch q dim"]:
        """Attention over `key` and `value`; key defaults to query, value to key.

        `bias` is added to the scores. With a `cache`, the query's keys and values are appended to the cached
        ones, and the cache's causal mask applies in addition to `mask`. `positions`, for `rotary`, are those
        of the keys; by default they count from 0, or from the end of the cache.
        """
        call = self._call(query, key, value, mask, bias, cache, positions)
        return self._out(attention(call.q, call.k, call.v, **call.options), query)

    def observe(
        self,
        query: Float[Tensor, "*batch q dim"],
        key: Float[Tensor, "*batch k key_dim"] | None = None,
        value: Float[Tensor, "*batch k value_dim"] | None = None,
        mask: Mask | None = None,
        *,
        bias: Tensor | Bias | None = None,
        cache: KVCache | None = None,
        positions: Tensor | None = None,
        stats: Sequence[Statistic] = ROWS,
    ) -> tuple[Float[Tensor, "*batch q dim"], Observation]:
        """The output of `forward`, and the observation of all heads: their statistics and their map.

        The observation's `out` is that of the heads, before the output projection.
        """
        call = self._call(query, key, value, mask, bias, cache, positions)
        seen = observe(call.q, call.k, call.v, stats=stats, **call.options)
        return self._out(seen.out, query), seen

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> MultiHeadAttention:
        """Convert a PyTorch module, with a copy of its weights; batch first.

        >>> layer = MultiHeadAttention.from_torch(torch.nn.MultiheadAttention(12, 3, batch_first=True))
        >>> layer.heads, layer.head_dim
        (3, 4)
        """
        return from_torch(module, cls)

    def to_torch(self, batch_first: bool = True) -> nn.MultiheadAttention:
        """Convert to a PyTorch module, with a copy of the weights.

        PyTorch has no grouped heads, so shared key and value heads are repeated for each query head.
        """
        return to_torch(self, batch_first)

    def _call(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        mask: Mask | None,
        bias: Tensor | Bias | None,
        cache: KVCache | None,
        positions: Tensor | None,
    ) -> _Call:
        """Project, apply rotary positions, and append to the cache."""
        if cache is not None and (key is not None or value is not None):
            raise ShapeError(
                "got a cache and a key or value; a cache holds the past of self-attention. "
                "Leave the cache out: what cross-attention sees does not grow."
            )
        key = query if key is None else key
        value = key if value is None else value
        check_input("query", query, self.dim)
        check_input("key", key, self.k_proj.in_features, query)
        check_input("value", value, self.v_proj.in_features, query)
        query, key, value = (x if x.ndim == 3 else x[None] for x in (query, key, value))
        q = split(self.q_proj(query), self.heads)
        k, v = split(self.k_proj(key), self.kv_heads), split(self.v_proj(value), self.kv_heads)
        if self.rotary is not None:
            if cache is not None and positions is None:
                positions = torch.arange(cache.seen, cache.seen + k.shape[2], device=k.device)
            q, k = self.rotary.rotate_pair(q, k, positions)
        if cache is not None:
            k, v = cache.append(k, v)
            mask = cache.mask if mask is None else mask & cache.mask
        dropout = self.dropout if self.training else 0.0
        return _Call(q, k, v, {"mask": mask, "bias": bias, "dropout": dropout})

    def _out(self, mixed: Tensor, query: Tensor) -> Tensor:
        out = self.out_proj(joined(mixed))
        return out if query.ndim == 3 else out[0]
