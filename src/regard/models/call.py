"""Converts one attention call of transformers to regard's arguments."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cache, cached_property
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

# Arguments besides the mask that change which pairs a layer computes, or add logits.
REFUSED = {
    "indices": "chooses keys for each query while it runs (sparse attention)",
    "block_indices": "chooses blocks of keys while it runs (sparse attention)",
    "cache": "keeps its keys in pages (continuous batching)",
}


@dataclass(frozen=True)
class AttentionCall:
    """Queries, keys, values and options of one call; `plan` is set if transformers described the mask."""

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
    own: bool = False
    """Whether the model computed it itself, and regard only looked on."""
    role: str | None = None
    """The stack that it belongs to, if the module's name does not tell."""

    @cached_property
    def frame(self) -> Frame:
        """The positions of queries and keys in the text; without a plan, from its beginning."""
        start = Frame(0, 0) if self.plan is None else self.plan.frame
        return replace(start, q=self.q.shape[2], k=self.k.shape[2])

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `observe` and `attention`."""
        return {**self._map_options, "dropout": self.dropout}

    @property
    def map(self) -> AttentionMap:
        """The lazy map of this call's weights before dropout."""
        return AttentionMap.of(self.q, self.k, **self._map_options)

    @property
    def later_map(self) -> AttentionMap:
        """The same map, made when it is first read: models get one per layer and read hardly any."""
        return _LaterMap(self)

    @property
    def _map_options(self) -> dict[str, Any]:
        names = ("mask", "scale", "bias", "softcap", "sink")
        return {name: getattr(self, name) for name in names}


class _LaterMap(AttentionMap):
    """The map of a call whose tensors stay unchanged; it is made when an attribute is first read."""

    def __init__(self, call: AttentionCall) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Any:
        call = self.__dict__.pop("_call", None)
        if call is None:
            raise AttributeError(name)
        self.__dict__.update(vars(call.map))
        return getattr(self, name)


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
    sinks: Tensor | None = None,
    **kwargs: Any,
) -> AttentionCall:
    """Convert the arguments of an attention function; transformers' registry prescribes the signature."""
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
    batch = query.shape[0]
    key, value = (x.expand(batch, -1, -1, -1) if x.shape[0] == 1 < batch else x for x in (key, value))
    sink = _sink(module, s_aux, query)
    if sinks is not None:
        # A sink for each query: weights stay the same if all scores of the row and its sink are lowered
        # together, here until the sink is 0.
        position_bias = -sinks if position_bias is None else position_bias - sinks
        sink = sinks.new_zeros(query.shape[1])
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
    """The arguments that attention in the model's own file reads and `call_of` doesn't: ignoring one would be
    wrong."""
    own = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
    if own is None:
        return ()
    return tuple(set(signature(own).parameters) - set(signature(call_of).parameters))


def _sink(module: torch.nn.Module, given: Tensor | None, query: Tensor) -> Tensor | None:
    """The sink, one logit per head: some models pass it, others keep it on the module."""
    sink = getattr(module, "sinks", None) if given is None else given
    if not isinstance(sink, Tensor) or sink.numel() != query.shape[1]:
        return None
    return sink.reshape(-1)


def _planned(call: AttentionCall, plan: MaskPlan) -> AttentionCall:
    q, k = call.q.shape[2], call.k.shape[2]
    if (plan.frame.q, plan.frame.k) != (q, k):
        if _allows_all(plan):
            # The cache may hold more keys than the mask covers: eager attention then broadcasts a mask that
            # forbids nothing.
            return call
        raise MaskError(
            f"the mask describes {plan.frame.q} queries and {plan.frame.k} keys, and the layer attends with "
            f"{q} and {k}. Use the model's own attention for this model."
        )
    spare = -plan.frame.shift
    if 0 < spare < k and _never_seen(plan.mask(q, k), q, k, spare):
        # Cut off the empty end of a static cache, so that the last query sits on the last key.
        plan = plan[:, :, :, : k - spare]
        bias = call.bias if call.bias is None or call.bias.shape[-1] == 1 else call.bias[..., : k - spare]
        # Copy, because the cache will overwrite these keys.
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
    # A padding mask hides keys per row; the causal part of the mask hides the future.
    parts = mask.parts if isinstance(mask, And) else (mask,)
    return any(part.coverage((k - q, k), (k - spare, k)) is Coverage.EMPTY for part in parts)


def given_mask(call: AttentionCall, mask: Tensor) -> AttentionCall:
    """Convert a mask tensor that the model or its user made: bool flags, or numbers to add."""
    if mask.ndim == 2:
        return replace(call, mask=Padding(mask.bool()))
    if mask.ndim == 3:
        mask = mask[:, None]
    if mask.dtype == torch.bool or not mask.is_floating_point():
        return replace(call, mask=_flags(mask.bool()))
    # Blocked pairs hold -inf or the lowest finite number; compare with half of it, because the model may have
    # added to it.
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
