"""Adds one document to a state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.atlas.kinds import OF_ONE_TEXT
from regard.corpus.state import LENGTHS, MEASURES, OCTAVES, TOPS, State, best
from regard.corpus.survey import Survey, joined
from regard.corpus.windows import Windows

__all__ = ["add"]


def add(state: State, document: Windows, windows: list[Survey]) -> None:
    """Add the surveys of one document's windows to a state, in place."""
    sums = state.sums
    tokens = len(document.ids)
    sums["documents"] += 1
    sums["tokens"] += tokens
    sums["windows"] += len(windows)
    scores, measures, profile = joined(windows)
    fit = ~scores.isnan()
    bars = torch.tensor([kind.bar for kind in OF_ONE_TEXT], dtype=scores.dtype)[:, None]
    sums["kind_fit"] += fit
    sums["kind_found"] += fit & (scores >= bars)
    sums["kind_sum"] += scores.nan_to_num()
    known = ~measures.isnan()
    sums["measure_count"] += known
    sums["measure_sum"] += measures.nan_to_num()
    sums["measure_squares"] += measures.nan_to_num().square()
    _add_distances(sums["distance_histogram"], measures[MEASURES.index("mean_distance")])
    for window in windows:
        sums["entropy_histogram"] += window.entropy
        sums["decay_sum"] += window.decay_sum
        sums["decay_count"] += window.decay_count
    if not bool(profile.isnan().any()):
        octave = min(tokens.bit_length() - 1, LENGTHS - 1)
        sums["lengths"][octave] += 1
        sums["profile_sum"][octave] += profile
    _add_strongest(state, document, windows)


def _add_distances(histogram: Tensor, distance: Tensor) -> None:
    """Count each head's mean distance in its octave."""
    known = ~distance.isnan()
    octave = torch.frexp(distance.nan_to_num()).exponent.long().clamp(0, OCTAVES - 1)
    histogram.scatter_add_(1, octave[:, None], known[:, None].long())


def _add_strongest(state: State, document: Windows, windows: list[Survey]) -> None:
    for start, window in zip(document.starts, windows, strict=True):
        strongest = window.strength[:, 0].tolist()
        for head, strength in enumerate(strongest):
            kept = state.strongest[head]
            if strength <= 0 or (len(kept) >= TOPS and strength <= kept[-1]["strength"]):
                continue
            state.strongest[head] = best([*kept, _entry(document, start, window, head)])


def _entry(document: Windows, start: int, window: Survey, head: int) -> dict[str, Any]:
    """The entry of a document in a head's list of strongest documents: its name and its strongest cells."""
    rows = (getattr(window, name)[head].tolist() for name in ("query", "key", "weight", "strength"))
    cells = [
        {"query": q, "key": k, "weight": w, "strength": s} for q, k, w, s in zip(*rows, strict=True) if s > 0
    ]
    query, key = cells[0]["query"], cells[0]["key"]
    return {
        "document": document.document.number,
        "name": document.document.name,
        "start": start,
        "strength": cells[0]["strength"],
        "cells": cells,
        "excerpt": document.excerpt(start, query),
        "query_text": document.texts[start + query],
        "key_text": document.texts[start + key],
    }
