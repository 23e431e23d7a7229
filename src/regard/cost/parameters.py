"""The parameters of a model, counted by part."""

from __future__ import annotations

from dataclasses import dataclass

from regard.cost.shape import Layer, ModelShape

__all__ = ["Parameters", "layer_parameters", "parameters"]


@dataclass(frozen=True)
class Parameters:
    """Parameters by part; `active` are those that one token uses, less than `total` in models with experts.

    Some model cards count active parameters with the embedding, others without, because a token reads only
    one row of it.

    >>> from regard.cost import preset
    >>> parameters(preset("gpt2")).total
    124439808
    """

    attention: int
    feed_forward: int
    norms: int
    embeddings: int
    head: int
    other: int
    active: int
    tied: bool = False

    @property
    def active_without_embedding(self) -> int:
        """The active parameters without the embedding; an embedding tied to the head counts as the head."""
        return self.active if self.tied else self.active - self.embeddings

    @property
    def total(self) -> int:
        """The total number; a head tied to the embedding counts once."""
        return self.attention + self.feed_forward + self.norms + self.embeddings + self.head + self.other


def parameters(shape: ModelShape) -> Parameters:
    """The parameters of a model, exactly those of its module.

    >>> from regard.cost import preset
    >>> found = parameters(preset("llama-7b"))
    >>> found.attention, found.total
    (2147483648, 6738415616)
    """
    d, norm = shape.d_model, shape.d_model * shape.norm_parameters
    attention = sum(layer.attentions * layer.attention.parameters(d) for layer in shape.layers)
    ffn = sum(layer.ffn.parameters(d) for layer in shape.layers)
    idle = sum(
        layer.ffn.parameters(d) - layer.ffn.active_parameters(d)
        for layer in shape.layers
        if layer.ffn.experts
    )
    norms = sum(layer.norm_parameters(d, shape.norm_parameters) for layer in shape.layers)
    norms += norm * (shape.final_norms + shape.embedding_norm)
    embeddings = shape.vocab * shape.embedded + (shape.positions + shape.types) * d
    untied = shape.head and not shape.tied
    head = untied * shape.vocab * shape.embedded + shape.head_bias * shape.vocab
    other = sum(extra.parameters for extra in shape.extras)
    total = attention + ffn + norms + embeddings + head + other
    return Parameters(
        attention, ffn, norms, embeddings, head, other, active=total - idle, tied=shape.head and shape.tied
    )


def layer_parameters(shape: ModelShape, layer: Layer) -> dict[str, int]:
    """One layer's parameters by part.

    >>> from regard.cost import preset
    >>> gpt2 = preset("gpt2")
    >>> layer_parameters(gpt2, gpt2.layers[0])
    {'attention': 2362368, 'feed_forward': 4722432, 'norms': 3072}
    """
    return {
        "attention": layer.attentions * layer.attention.parameters(shape.d_model),
        "feed_forward": layer.ffn.parameters(shape.d_model),
        "norms": layer.norm_parameters(shape.d_model, shape.norm_parameters),
    }
