"""Statistics of one head: by row, as curves, and as single numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.models import Layer
from regard.stats import ColumnMass, Decay, Entropy, MaxScore, MeanDistance, SinkMass
from regard.viewer.curves import CurveSums, thinned
from regard.viewer.heads import Head
from regard.viewer.plain import number, numbers

__all__ = ["row_entropy", "statistics"]

ROWS = (Entropy(), MaxScore(), MeanDistance(), SinkMass())


def statistics(
    layer: Layer, head: Head, number_of_head: int, curves: dict[str, Any] | None
) -> dict[str, Any]:
    """Row statistics as curves, decay and profile, and means; recorded statistics are not computed again.

    `curves` are those stored with a pyramid; without them this takes one pass over the map.
    """
    rows = _recorded(layer, number_of_head)
    if curves is None:
        seen = head.map.stats(*ROWS, ColumnMass(), Decay())
        rows = {name: _per_row(value)[0, 0] for name, value in seen.items() if name in _names()} | rows
        sums = CurveSums(head.queries, head.keys)
        sums.add(range(head.queries), seen)
        curves = sums.finish()
    found = {f"{name}_mean": number(float(x.double().mean())) for name, x in rows.items() if len(x)}
    found["mass_first"] = number(curves["profile"]["mass"][0] / max(1, head.queries))
    points = {name: numbers(thinned(x.float())[1]) for name, x in rows.items()}
    return {"names": list(points), "rows": points, "curves": curves, "numbers": found}


def row_entropy(layer: Layer, number_of_head: int, rows: range) -> float | None:
    """The mean entropy of some rows, if it was recorded."""
    known = _recorded(layer, number_of_head).get("entropy")
    return None if known is None else float(known[rows.start : rows.stop].double().mean())


def _recorded(layer: Layer, head: int) -> dict[str, Tensor]:
    stats = layer.stats
    return {name: _per_row(stats[name])[0, head] for name in _names() if name in stats}


def _per_row(value: Any) -> Tensor:
    """(batch, heads, q) of a statistic with one number per query; of a row's maximum, the score."""
    x = value if isinstance(value, Tensor) else value[0]
    return torch.as_tensor(x)


def _names() -> list[str]:
    return [statistic.name for statistic in ROWS]
