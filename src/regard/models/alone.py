"""`alone`: the recording of one text of a batch, as if the model had read only that text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

from jaxtyping import Bool
from torch import Tensor

from regard.errors import RecordingError
from regard.extension import implements
from regard.maps import AttentionMap
from regard.masks.within import within
from regard.models.layer import Layer
from regard.models.padding import Texts, span_of, without_padding
from regard.models.recording import Recording
from regard.models.segment import Segment, mapped, row_of
from regard.models.tokens import Token

__all__ = ["alone"]

Found = TypeVar("Found")


@implements(Recording.alone)
def alone(recording: Recording, row: int = 0, stack: str | None = None) -> Recording:
    """The recording of one text of a batch without padding: its queries, its keys and its tokens.

    `stack` selects one stack; by default all are included. A recording of one text without padding is
    returned unchanged. If the padding followed the text, layers keep their row statistics. If it came before
    the text, layers have maps but no statistics, because recorded statistics number keys as the batch does.

    >>> import torch
    >>> from regard.models import bundled, watch
    >>> model, tokenizer = bundled()
    >>> ids, real = torch.tensor([[5, 6, 7], [0, 8, 9]]), torch.tensor([[1, 1, 1], [0, 1, 1]])
    >>> with watch(model, layers=[0]) as recording:
    ...     out = model(ids, attention_mask=real)
    >>> alone(recording, 1).maps[0]
    AttentionMap(batch=1, heads=6, q=2, k=2, mask=Window(left=512) & Causal(), float32)
    """
    texts = Texts(recording, row)
    layers = [layer for layer in recording.all_layers if stack in (None, layer.role)]
    parts = [_layer_alone(layer, texts) for layer in layers]
    if all(part is layer for part, layer in zip(parts, layers, strict=True)):
        return recording
    one = copy(recording)
    one.cleared = None
    one.clear()
    one.path = None
    one.texts, one._spans, one._passages = None, None, {}
    for part in parts:
        one.put(part)
    for role, ids in recording.token_ids.items():
        kept = _tokens(recording, role, ids.shape[1], texts)
        own = row % len(ids)
        one.token_ids[role] = ids[own, kept.start : kept.stop][None]
        if role == recording.reader:
            _put_text(one, recording, own, kept)
        rows = recording.passages_of(role)
        moved = [p._replace(start=p.start - kept.start, stop=p.stop - kept.start) for p in _row(rows, own)]
        one.note_passages(role, [moved])
        _put_tokens(one, recording, role, row, kept)
    return one


def _layer_alone(layer: Layer, texts: Texts) -> Layer:
    """A layer restricted to one text; the layer itself if it has only that text."""
    seen = layer.map
    real = texts.sides(layer.role, *seen.shape[2:])
    if seen.shape[0] == 1 and all(bool(side.all()) for side in real):
        return layer
    own = _map_alone(seen, texts.row % seen.shape[0], *real)
    part = Layer(layer.site)
    part.mask = part.first_mask = own.mask
    part.frame = replace(layer.frame, q=own.shape[2], k=own.shape[3])
    part.options, part.row_stats = dict(layer.options), layer.row_stats
    p, bias = own.problem, own.problem.scoring.bias
    stats: dict[str, Any] = {}
    if layer.segments:
        stats = {name: row_of(value, texts.row % seen.shape[0]) for name, value in layer.stats.items()}
    if own.shape[2:] != seen.shape[2:]:
        rows, keys = (span_of(side) for side in real)
        # With padding in front, recorded key numbers differ from the text's own.
        kept = layer.row_stats if keys.start == 0 else frozenset[str]()
        stats = {
            name: mapped(value, lambda x: x[:, :, rows.start : rows.stop])
            for name, value in stats.items()
            if name in kept
        }
    part.segments = [Segment(own.lse, stats, p.q, p.k, p.v, bias if isinstance(bias, Tensor) else None)]
    part._map = own
    return part


def _map_alone(
    seen: AttentionMap, row: int, real_q: Bool[Tensor, " q"], real_k: Bool[Tensor, " k"]
) -> AttentionMap:
    """The map of one batch row from the text's first to its last token; padding in between sees nothing."""
    p, queries, keys = seen.problem, span_of(real_q), span_of(real_k)
    batch, rows, columns = (slice(x.start, x.stop) for x in (range(row, row + 1), queries, keys))
    offset = len(keys) - len(queries)
    mask = None if p.mask is None else p.mask.select(row)
    mask = within(mask, keys, p.offset + queries.start - offset)
    scoring = p.scoring
    if isinstance(scoring.bias, Tensor):
        cuts = zip(scoring.bias.shape, (batch, slice(None), rows, columns), strict=True)
        scoring = replace(scoring, bias=scoring.bias[tuple(cut if n > 1 else slice(None) for n, cut in cuts)])
    q, k, v = p.q[batch, :, rows], p.k[batch, :, columns], p.v[batch, :, columns]
    own = replace(p, q=q, k=k, v=v, mask=mask, scoring=scoring, offset=offset)
    cut = AttentionMap(own, seen.lse[batch, :, rows])
    return cut if bool(real_q[rows].all()) else without_padding(cut, real_q[None, rows])


def _tokens(recording: Recording, role: str, count: int, texts: Texts) -> range:
    """Which of the tokens that one side read belong to the text."""
    stacks = recording.stacks
    # A model that is only an encoder records its tokens as the text.
    read_by = role if role in stacks else "encoder" if role == "decoder" else None
    if read_by is None or read_by not in stacks:
        return range(count)
    n = next(iter(stacks[read_by].maps.values())).shape[3]
    kept = span_of(texts.tokens(read_by, n))
    # The model never reads the last token that it generates.
    return range(kept.start, count if kept.stop == n else kept.stop)


def _put_text(one: Recording, batch: Recording, row: int, kept: range) -> None:
    """Keep the text of one row and the character spans of its tokens."""
    one.texts = list(batch.texts or [])[row : row + 1] or None
    spans = _row(batch._spans or [], row)
    one._spans = [spans[kept.start : kept.stop]] if spans else None


def _row(rows: Sequence[Sequence[Found]], row: int) -> Sequence[Found]:
    """The entry of one row of a batch; empty if entries were not recorded per row."""
    return rows[row] if row < len(rows) else []


def _put_tokens(one: Recording, batch: Recording, role: str, row: int, kept: range) -> None:
    """Keep the tokens read from disk if there is no tokenizer to compute them again."""
    with suppress(RecordingError):
        one.tokens_of(role)
        return
    with suppress(RecordingError):
        rows = batch.tokens_of(role)
        own = rows[row % len(rows)][kept.start : kept.stop]
        first = own[0].start if own and kept.start else 0
        placed = [Token(t.id, t.text, t.start - first, t.stop - first) for t in own]
        one.restore_tokens([placed], role)
