"""Attention to images: the share of each head, the patches that no token attends to, and sinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import RecordingError
from regard.maps import AttentionMap
from regard.models.passages import Passage
from regard.models.recording import Recording
from regard.stats import ColumnMass

__all__ = ["ImageSink", "image_passage", "image_share", "image_sinks", "patches_seen"]

# Weights read at once.
CELLS = 1 << 24


class ImageSink(NamedTuple):
    """A token that receives far more than an even share of attention: layer, name, and multiple of the
    share."""

    layer: int
    name: str
    times: float


def image_passage(recording: Recording, image: int = 1) -> Passage:
    """The tokens of an image in a text; RecordingError if there is no such image."""
    found = [passage for passage in recording.passages if passage.name.startswith("image")]
    if not 1 <= image <= len(found):
        raise RecordingError(
            f"there is no image {image} beside the text; the recording has {len(found)}. Record with "
            "images=..., and with image_spans=... where tokens of images cannot be found."
        )
    return found[image - 1]


def image_share(recording: Recording) -> Float[Tensor, "layers heads"]:
    """The share of attention that tokens after an image give to images, per layer and head.

    This is the mean over these tokens, without tokens of the images themselves; the rest goes to text.

    """
    keys, asking = _image_tokens(recording)
    shares: list[Tensor] = []
    for seen in recording.maps.values():
        taken = torch.zeros(seen.shape[1], dtype=torch.float64)
        for rows in _blocks(asking, seen):
            taken += seen[0, :, rows][..., keys].sum((1, 2)).double().cpu()
        shares.append(taken / len(asking))
    return torch.stack(shares).float()


def patches_seen(recording: Recording, image: int = 1) -> Float[Tensor, "rows columns"]:
    """The largest weight that any token after an image gives each of its patches, in any head of any layer.

    Patches near 0 are candidates for pruning: `(patches_seen(recording) < 0.01).nonzero()`. If the patches
    have no grid, the result has one row.
    """
    passage = image_passage(recording, image)
    _, asking = _image_tokens(recording)
    asking = [query for query in asking if query >= passage.stop]
    if not asking:
        raise RecordingError("no token comes after the image, so nothing can look at it.")
    most = torch.zeros(len(passage.tokens))
    for seen in recording.maps.values():
        for rows in _blocks(asking, seen):
            weights = seen[0, :, rows, passage.start : passage.stop]
            most = torch.maximum(most, weights.amax((0, 1)).float().cpu())
    return most.view(passage.rows or 1, passage.columns or len(passage.tokens))


def image_sinks(recording: Recording, times: float = 8.0) -> list[ImageSink]:
    """Tokens of a vision model that receive more than `times` an even share of a layer's attention, most
    first.

    Patches with a large share are artefacts: the model stores information about the whole image in them, as
    other models do in registers (Darcet et al., 2024, "Vision transformers need registers").
    """
    first = recording.all_layers[0]
    names = [token.text for token in recording.tokens_of(first.role)[0]]
    found: list[ImageSink] = []
    for layer in recording.stack(first.role).values():
        mass = layer.map.stats(ColumnMass())["column_mass"][0].double().mean(0)
        share = mass / mass.mean()
        found += [
            ImageSink(layer.index, names[key], float(share[key]))
            for key in (share > times).nonzero().flatten().tolist()
        ]
    return sorted(found, key=lambda sink: -sink.times)


def _image_tokens(recording: Recording) -> tuple[list[int], list[int]]:
    """The tokens of all images, and those of the text after the first of them."""
    image_passage(recording)
    runs = [passage for passage in recording.passages if passage.name.startswith("image")]
    keys = [token for run in runs for token in run.tokens]
    taken = set(keys)
    count = next(iter(recording.maps.values())).shape[2]
    asking = [token for token in range(min(run.stop for run in runs), count) if token not in taken]
    if not asking:
        raise RecordingError("no token comes after the image, so nothing can look at it.")
    return keys, asking


def _blocks(queries: list[int], seen: AttentionMap) -> Iterator[slice]:
    """Slices of queries, small enough to be read at once."""
    heads, _, keys = seen.shape[1:]
    most = max(1, CELLS // (heads * keys))
    start = previous = queries[0]
    for query in [*queries[1:], -1]:
        if query != previous + 1 or query - start >= most:
            yield slice(start, previous + 1)
            start = query
        previous = query
