"""One attention call as transformers makes it, brought into regard's terms."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import MaskError, ModelError, ShapeError
from regard.maps import AttentionMap
from regard.masks import And, Causal, Coverage, Dense, Mask, Padding, Window
from regard.models.plan import MaskPlan
from regard.models.translate import Frame

__all__ = ["AttentionCall", "call_of", "given_mask"]

# These reach the attention function beside the mask: which pairs a layer computes, what else takes weight.
REFUSED = {
    "indices": "chooses keys for each query while it runs (sparse attention)",
    "block_indices": "chooses blocks of keys while it runs (sparse attention)",
    "cache": "keeps its keys in pages (continuous batching)",
    "sinks": "gives every query a sink of its own",
}


@dataclass(frozen=True)
class AttentionCall:
    """Queries, keys, values and options of one call; `plan` where the mask was described, to extend it."""

    q: Float[Tensor, "batch heads q dim"]
    k: Float[Tensor, "batch kv_heads k dim"]
    v: Float[Tensor, "batch kv_heads k v_dim"]
    mask: Mask | None = None
    scale: float | None = None
    bias: Tensor | None = None
    softcap: float | None = None
    sink: Float[Tensor, "heads"] | None = None
    dropout: float = 0.0
    plan: MaskPlan | None = None

    @property
    def frame(self) -> Frame:
        """Where queries and keys stand in the text; where nothing says so, at its beginning."""
        start = Frame(0, 0) if self.plan is None else self.plan.frame
        return replace(start, q=self.q.shape[2], k=self.k.shape[2])

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `observe` and `attention`."""
        return {**self._map_options, "dropout": self.dropout}

    @property
    def map(self) -> AttentionMap:
        """The lazy map of this call's weights, as they are before dropout."""
        return AttentionMap.of(self.q, self.k, **self._map_options)

    @property
    def _map_options(self) -> dict[str, Any]:
        names = ("mask", "scale", "bias", "softcap", "sink")
        return {name: getattr(self, name) for name in names}


def call_of(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | MaskPlan | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> AttentionCall:
    """Read the arguments that transformers gives an attention function; its signature is the registry's."""
    for name in (*REFUSED, *_read_by_its_own(type(module))):
        if kwargs.get(name) is not None:
            reason = REFUSED.get(name, "gives its own attention something that regard does not know")
            raise ModelError(
                f"{type(module).__name__} passes {name}=, because it {reason}; regard cannot watch that. "
                "Use the model's own attention, or watch other layers with layers=[...]."
            )
    if query.ndim != 4:
        raise ShapeError(
            f"{type(module).__name__} attends with queries of shape {tuple(query.shape)}; regard watches "
            "layers whose queries are (batch, heads, length, dim)."
        )
    key, value = (x.expand(query.shape[0], -1, -1, -1) if x.shape[0] == 1 else x for x in (key, value))
    sink = _sink(module, s_aux, query)
    call = AttentionCall(query, key, value, None, scaling, position_bias, softcap, sink, dropout)
    if isinstance(attention_mask, MaskPlan):
        return _planned(call, attention_mask)
    if attention_mask is not None:
        return given_mask(call, attention_mask)
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    if not causal or query.shape[2] == 1 or query.shape[2] != key.shape[2]:
        return call
    return replace(call, mask=Causal() if sliding_window is None else Causal() & Window(sliding_window))


@cache
def _read_by_its_own(kind: type[torch.nn.Module]) -> tuple[str, ...]:
    """What the attention in a model's own file reads and `call_of` does not: to leave it out is a mistake."""
    own = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
    if own is None:
        return ()
    return tuple(set(signature(own).parameters) - set(signature(call_of).parameters))


def _sink(module: torch.nn.Module, given: Tensor | None, query: Tensor) -> Tensor | None:
    """One logit per head; some models pass it, others let the attention function fetch it."""
    sink = getattr(module, "sinks", None) if given is None else given
    if not isinstance(sink, Tensor) or sink.numel() != query.shape[1]:
        return None
    return sink.reshape(-1)


def _planned(call: AttentionCall, plan: MaskPlan) -> AttentionCall:
    q, k = call.q.shape[2], call.k.shape[2]
    if (plan.frame.q, plan.frame.k) != (q, k):
        if _allows_all(plan):
            # Caches that the mask does not cover: eager attention stretches a mask that forbids nothing.
            return call
        raise MaskError(
            f"the mask describes {plan.frame.q} queries and {plan.frame.k} keys, and the layer attends with "
            f"{q} and {k}. Use the model's own attention for this model."
        )
    spare = -plan.frame.shift
    if 0 < spare < k and _never_seen(plan.mask(q, k), q, k, spare):
        # The empty end of a static cache: without it the last query sits on the last key, as it should.
        plan = plan[:, :, :, : k - spare]
        bias = call.bias if call.bias is None or call.bias.shape[-1] == 1 else call.bias[..., : k - spare]
        # The cache will write over these: a copy stays what it is.
        kept = {"k": call.k[:, :, : k - spare].clone(), "v": call.v[:, :, : k - spare].clone(), "bias": bias}
        call = replace(call, **kept)
    return replace(call, plan=plan, mask=plan.mask(q, call.k.shape[2]))


def _allows_all(plan: MaskPlan) -> bool:
    q, k = plan.frame.q, plan.frame.k
    mask = plan.mask(q, k)
    return mask is None or mask.coverage((k - q, k), (0, k)) is Coverage.FULL


def _never_seen(mask: Mask | None, q: int, k: int, spare: int) -> bool:
    if mask is None:
        return False
    # A padding mask speaks of rows that differ; that the future is unseen is for the causal part to say.
    parts = mask.parts if isinstance(mask, And) else (mask,)
    return any(part.coverage((k - q, k), (k - spare, k)) is Coverage.EMPTY for part in parts)


def given_mask(call: AttentionCall, mask: Tensor) -> AttentionCall:
    """A mask tensor that the model or its user made: flags, or numbers to add."""
    if mask.ndim == 2:
        return replace(call, mask=Padding(mask.bool()))
    if mask.ndim == 3:
        mask = mask[:, None]
    if mask.dtype == torch.bool or not mask.is_floating_point():
        return replace(call, mask=_flags(mask.bool()))
    # Blocked pairs hold -inf, or the least number there is; half of it leaves room for what was added since.
    allowed = mask > torch.finfo(mask.dtype).min / 2
    added = mask.masked_fill(~allowed, 0.0)
    bias = call.bias
    if bool((added != 0).any()) or mask.requires_grad:
        bias = added if bias is None else bias + added
    return replace(call, mask=None if bool(allowed.all()) else _flags(allowed), bias=bias)


def _flags(allowed: Tensor) -> Mask:
    if allowed.shape[1] == allowed.shape[2] == 1:
        return Padding(allowed[:, 0, 0])
    return Dense(allowed)
