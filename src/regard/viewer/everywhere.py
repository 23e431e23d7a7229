"""One token in every head: where a query attends, or which queries attend to a key."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import MapError
from regard.models import Layer
from regard.viewer.answers import Everywhere, Looked

__all__ = ["everywhere"]

# The number of tokens of the other side to return.
NAMED = 12


def everywhere(layers: list[Layer], query: int | None, key: int | None) -> Everywhere:
    """The row of a query in every head of these layers; without a query, the column of a key."""
    lines = [_line(layer, query, key) for layer in layers]  # of each layer (heads, n)
    tops = [line.max(-1) for line in lines]
    share = torch.stack([line.mean(0) for line in lines]).mean(0)
    heaviest = share.topk(min(NAMED, len(share)))
    named = zip(heaviest.indices.tolist(), heaviest.values.tolist(), strict=True)
    spread = [torch.special.entr(line).sum(-1) for line in lines]
    both = query is not None and key is not None
    return Everywhere(
        query=query,
        key=key,
        layers=[layer.index for layer in layers],
        heads=len(lines[0]),
        top=[top.indices.tolist() for top in tops],
        top_weight=[top.values.tolist() for top in tops],
        entropy=None if query is None else [one.tolist() for one in spread],
        mass=None if query is not None else [line.sum(-1).tolist() for line in lines],
        weight=[line[:, key].tolist() for line in lines] if both else None,
        others=[Looked(position=i, weight=w) for i, w in named if w > 0],
    )


def _line(layer: Layer, query: int | None, key: int | None) -> Tensor:
    """(heads, n): every head's row of a query, or column of a key."""
    whole = layer.map
    for name, index, length in (("query", query, whole.shape[2]), ("key", key, whole.shape[3])):
        if index is not None and index >= length:
            raise MapError(
                f"{name} {index} is out of range: the map has {length} ({name} 0 to {length - 1})."
            )
    if query is not None:
        return whole[0, :, query].double().cpu()
    if key is None:
        raise MapError("neither a query nor a key was named; give one of them, or both.")
    return whole[0, :, :, key].double().cpu()
