"""The cost of each layer."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cost.count import kept_bytes, layer_cache, layer_wide
from regard.cost.parameters import layer_parameters
from regard.cost.reach import FULL
from regard.cost.shape import ModelShape

__all__ = ["LayerCost", "layers_of"]


@dataclass(frozen=True)
class LayerCost:
    """One layer at one context: parameters, allowed pairs of one head, FLOPs of a prefill, bytes of cache.

    `pair_flops` are those of pairs, of an index that chooses them, and of a recurrent state.
    """

    index: int
    attends: str
    attention_parameters: int
    feed_forward_parameters: int
    pairs: int
    projection_flops: int
    pair_flops: int
    feed_forward_flops: int
    cache_bytes: int


def layers_of(shape: ModelShape, context: int, *, dtype: str = "bfloat16", batch: int = 1) -> list[LayerCost]:
    """The cost of every layer of a model in a prefill.

    >>> from regard.cost import preset
    >>> [layer.cache_bytes for layer in layers_of(preset("llama-4-maverick"), 131072)[2:4]]
    [33554432, 536870912]
    """
    found, d, tokens = [], shape.d_model, context * batch
    for index, layer in enumerate(shape.layers):
        attention, own = layer.attention, layer_parameters(shape, layer)
        pairs = layer.reach.pairs(context, context, layer.causal)
        every = pairs + layer.cross * context * context
        pair_flops = sum(attention.pair_flops()) * every + attention.state_flops * context
        pair_flops += attention.index_flops * FULL.pairs(context, context, layer.causal)
        found.append(
            LayerCost(
                index,
                ("encoder, " if layer.encoder else "")
                + layer.attends
                + (" and cross" if layer.cross else ""),
                own["attention"],
                own["feed_forward"],
                every * attention.attends,
                2 * sum(attention.weights(d).values()) * tokens * layer.attentions,
                pair_flops * batch,
                2 * layer.ffn.weights(d, layer.ffn.active) * tokens,
                kept_bytes(layer_cache(layer, context) * batch, layer_wide(layer) * batch, dtype),
            )
        )
    return found
