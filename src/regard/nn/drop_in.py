"""A drop-in for PyTorch's `nn.MultiheadAttention` that computes with regard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.engine import attention
from regard.errors import ModelError, ShapeError
from regard.maps import Observation, observe
from regard.nn.conversion import projections
from regard.nn.heads import check_input, joined, split
from regard.nn.torch_masks import Blocking
from regard.stats import Statistic

__all__ = ["DropInAttention", "drop_in"]

M = TypeVar("M", bound=nn.Module)


class DropInAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with the same parameters, checkpoints and signature, computed by regard.

    It works in `nn.TransformerEncoderLayer`, `nn.TransformerDecoderLayer` and everything else that calls
    PyTorch's module. Set `stats` to a list of statistics, and every call stores its `Observation` in `seen`.
    Three things differ: a query with nothing to attend to gets zeros instead of NaN; returned weights are
    those before dropout; and `is_causal` needs no `attn_mask` (and is trusted if there is one).

    >>> import torch, regard
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, batch_first=True).eval()
    >>> layer.self_attn = DropInAttention.of(layer.self_attn)
    >>> layer.self_attn.stats = [regard.Entropy()]
    >>> layer(torch.randn(1, 10, 16)).shape, layer.self_attn.seen.entropy.shape
    (torch.Size([1, 10, 16]), torch.Size([1, 2, 10]))
    """

    stats: Sequence[Statistic] | None
    seen: Observation | None

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self._prepare()

    @classmethod
    def of(cls, module: nn.MultiheadAttention) -> DropInAttention:
        """The drop-in for a module; it shares the module's parameters, buffers and hooks."""
        if not isinstance(module, nn.MultiheadAttention):
            raise ModelError(
                f"got a {type(module).__name__}; only torch.nn.MultiheadAttention has a drop-in."
            )
        ours = cls.__new__(cls)
        ours.__dict__ = {name: x.copy() if isinstance(x, dict) else x for name, x in vars(module).items()}
        ours._prepare()
        return ours

    def _prepare(self) -> None:
        # If this flag is True, PyTorch's layers bypass this module and run their own fused kernel (in all
        # versions). Whether the projections are packed is read from the parameters instead.
        self._qkv_same_embed_dim = False
        self.stats = self.seen = None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.is_nested:
            return self._nested(query, key, value, need_weights), None
        query, key, value = self._batched(query), self._batched(key), self._batched(value)
        check_input("query", query, self.embed_dim)
        check_input("key", key, self.kdim, query)
        check_input("value", value, self.vdim, query)
        unbatched = query.ndim == 2
        if unbatched:
            query, key, value = query[None], key[None], value[None]
        blocking = self._blocking(query, key, key_padding_mask, attn_mask, is_causal)
        q, k, v = self._heads(query, key, value)
        out = joined(self._attend(q, k, v, blocking))
        out = linear(out, self.out_proj.weight, self.out_proj.bias)
        weights = _weights(q, k, blocking) if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if unbatched:
            return out[0], weights if weights is None else weights[0]
        return self._batched(out), weights

    def _batched(self, x: Tensor) -> Tensor:
        """Convert between batch first and this module's order; a single sequence has no batch."""
        return x if self.batch_first or x.ndim != 3 else x.transpose(0, 1)

    def _blocking(
        self, query: Tensor, key: Tensor, padding: Tensor | None, pairs: Tensor | None, is_causal: bool
    ) -> Blocking:
        extra = (self.bias_k is not None) + bool(self.add_zero_attn)
        blocking = Blocking((query.shape[0], self.num_heads, query.shape[1], key.shape[1]), extra)
        if is_causal:
            blocking.causal()
        elif pairs is not None:
            blocking.pairs(pairs)
        if padding is not None:
            blocking.padding(padding)
        return blocking

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projected heads, with the extra keys of `add_bias_kv` and `add_zero_attn` at the end."""
        sources = zip((query, key, value), projections(self), strict=True)
        q, k, v = (linear(x, weight, bias) for x, (weight, bias) in sources)
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], 1)
        if self.add_zero_attn:
            k, v = (torch.cat([x, x.new_zeros(x.shape[0], 1, x.shape[2])], 1) for x in (k, v))
        return split(q, self.num_heads), split(k, self.num_heads), split(v, self.num_heads)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, blocking: Blocking) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if self.stats is None:
            return attention(q, k, v, blocking.mask, bias=blocking.bias, dropout=dropout)
        seen = observe(q, k, v, blocking.mask, bias=blocking.bias, dropout=dropout, stats=self.stats)
        self.seen = seen.detach()
        return seen.out

    def _nested(self, query: Tensor, key: Tensor, value: Tensor, need_weights: bool) -> Tensor:
        """Handle nested tensors, which PyTorch's encoder makes of a padded batch, by padding them again."""
        if key is not query or value is not query or need_weights:
            raise ShapeError(
                "query is a nested tensor; these work for self-attention without weights. "
                "Use padded tensors and key_padding_mask."
            )
        parts = query.unbind()
        x = query.to_padded_tensor(0.0)
        lengths = torch.tensor([len(part) for part in parts], device=x.device)
        blocked = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
        x = self._batched(x)
        out = self._batched(self.forward(x, x, x, key_padding_mask=blocked, need_weights=False)[0])
        return torch.nested.as_nested_tensor([row[: len(part)] for row, part in zip(out, parts, strict=True)])


def drop_in(model: M) -> M:
    """Replace every `nn.MultiheadAttention` in a model, in place, by a drop-in with the same parameters.

    >>> import torch
    >>> model = drop_in(torch.nn.Transformer(16, 2, 1, 1, batch_first=True))
    >>> type(model.decoder.layers[0].multihead_attn).__name__
    'DropInAttention'
    """
    if type(model) is nn.MultiheadAttention:
        raise ModelError("drop_in changes the modules inside a model; for one alone use DropInAttention.of.")
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.MultiheadAttention:
                setattr(parent, name, DropInAttention.of(child))
        if isinstance(parent, nn.TransformerEncoder):
            # Turn nested tensors off: they are for PyTorch's own kernel, which is no longer used.
            parent.use_nested_tensor = False
    return model


def _weights(q: Tensor, k: Tensor, blocking: Blocking) -> Tensor:
    """The whole map with its gradient, for losses on weights; a lazy map has none."""
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if blocking.bias is not None:
        scores = scores + blocking.bias
    if blocking.mask is None:
        return scores.softmax(-1)
    allowed = blocking.mask.dense(q.shape[2], k.shape[2], q.device)
    # Keep it finite for the gradient: a row of only -inf has no softmax.
    return scores.masked_fill(~allowed, torch.finfo(scores.dtype).min).softmax(-1) * allowed
