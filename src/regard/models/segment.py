"""The record of one attention call: what its map is computed from, and its statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats import (
    ColumnStatistic,
    Entropy,
    Frame,
    MaxScore,
    MeanDistance,
    RowMaximum,
    SegmentMass,
    SinkMass,
    Statistic,
    TopK,
    TopKeys,
)

__all__ = [
    "Segment",
    "in_text",
    "join_biases",
    "join_rows",
    "joined",
    "mapped",
    "placed",
    "row_of",
    "rows_only",
    "tensors_of",
]


@dataclass(frozen=True)
class Segment:
    """The rows of one call. `k` and `v` hold only keys that earlier segments don't; None if not stored."""

    lse: Float[Tensor, "batch heads q"]
    stats: dict[str, Any]
    q: Float[Tensor, "batch heads q dim"] | None = None
    k: Float[Tensor, "batch kv_heads k dim"] | None = None
    v: Float[Tensor, "batch kv_heads k v_dim"] | None = None
    bias: Tensor | None = None

    @property
    def rows(self) -> int:
        return self.lse.shape[2]

    def copied(self) -> Segment:
        """The segment with copies of the model's tensors; statistics and lse are nobody else's."""
        given = {name: getattr(self, name) for name in ("q", "k", "v", "bias")}
        contiguous = torch.contiguous_format
        return replace(
            self,
            **{
                name: None if x is None else x.detach().clone(memory_format=contiguous)
                for name, x in given.items()
            },
        )

    def crop(self, rows: int, keys: int, row_stats: frozenset[str]) -> Segment:
        """The segment restricted to the first rows and keys, with the statistics that have one value per
        row."""
        shorter: dict[str, Any] = {"lse": self.lse[:, :, :rows]}
        for name, size in (("q", rows), ("k", keys), ("v", keys), ("bias", rows)):
            x = getattr(self, name)
            shorter[name] = None if x is None else x[:, :, :size]
        stats = {
            name: mapped(value, lambda x: x[:, :, :rows])
            for name, value in self.stats.items()
            if name in row_stats
        }
        return replace(self, stats=stats, **shorter)


def rows_only(statistics: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
    """The statistics with one value per query, to which the values of generated tokens can be appended."""
    kinds = (ColumnStatistic, Entropy, MaxScore, MeanDistance, TopK)
    return tuple(s for s in statistics if isinstance(s, kinds))


def in_text(statistic: Statistic, first: int, k: int, later: bool = False) -> Statistic:
    """The statistic adapted to k keys, of which the first is key `first` of the text.

    A text may have fewer keys than a top-k wants, sliding caches drop old keys, and with `later`, during
    generation, there are keys that the prompt did not have.
    """
    name = statistic.name
    if isinstance(statistic, TopK) and statistic.k > k:
        return TopK(k).named(name)
    moved = first > 0 or (later and isinstance(statistic, SegmentMass))
    if isinstance(statistic, SinkMass | SegmentMass) and moved:
        return _Shifted(statistic, first).named(name)
    return statistic


@dataclass(frozen=True)
class _Shifted(ColumnStatistic):
    """A statistic whose columns are numbered by the text, computed over the text's last keys only."""

    of: ColumnStatistic
    first: int

    def columns(self, frame: Frame) -> Float[Tensor, "#batch #heads k extra"]:
        return self.of.columns(replace(frame, k=frame.k + self.first))[:, :, self.first :]

    def finish(self, state: dict[str, Tensor], frame: Frame) -> Any:
        return self.of.finish(state, frame)


def join_rows(values: list[Any]) -> Any:
    """Join the values of one row statistic over several segments."""
    if isinstance(values[0], Tensor):
        return torch.cat(values, 2)
    if isinstance(values[0], TopKeys):
        width = max(value.key.shape[-1] for value in values)
        values = [TopKeys(_widened(v.weight, width, 0), _widened(v.key, width, -1)) for v in values]
    return type(values[0])(*(torch.cat(parts, 2) for parts in zip(*values, strict=True)))


def joined(segments: list[Segment]) -> Segment:
    """Join consecutive segments into one."""
    if len(segments) == 1:
        return segments[0]
    stats = {
        name: join_rows([segment.stats[name] for segment in segments])
        for name in segments[0].stats
        if all(name in segment.stats for segment in segments)
    }
    rows = {
        name: None if any(part is None for part in parts) else torch.cat(parts, 2)
        for name in ("q", "k", "v")
        if (parts := [getattr(segment, name) for segment in segments])
    }
    biases = [segment.bias for segment in segments]
    width = max((bias.shape[-1] for bias in biases if bias is not None), default=0)
    lse = torch.cat([segment.lse for segment in segments], 2)
    return Segment(lse, stats, bias=join_biases(biases, width), **rows)


def join_biases(biases: list[Tensor | None], k: int) -> Tensor | None:
    """Join biases row-wise, padded to k keys: later rows have more keys, and cells that a row can't see may
    hold anything."""
    known = [bias for bias in biases if bias is not None]
    if len(known) < len(biases):
        return None
    wide = [torch.nn.functional.pad(b, (0, k - b.shape[-1])) if b.shape[-1] != k else b for b in known]
    return wide[0] if len(wide) == 1 else torch.cat(wide, 2)


def placed(value: Any, first: int) -> Any:
    """The statistic with its key numbers counted from the beginning of the text."""
    if first and isinstance(value, TopKeys | RowMaximum):
        return value._replace(key=torch.where(value.key >= 0, value.key + first, value.key))
    return value


def row_of(value: Any, row: int) -> Any:
    """The statistic of one row of the batch; tensors that all rows share, such as distances, are
    unchanged."""
    if isinstance(value, Tensor):
        return value[row : row + 1]
    return type(value)(*(x if x.ndim == 1 else x[row : row + 1] for x in value))


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors of a statistic's value."""
    return [value] if isinstance(value, Tensor) else [x for x in value if isinstance(x, Tensor)]


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The statistic's value with `change` applied to each of its tensors."""
    return change(value) if isinstance(value, Tensor) else type(value)(*(change(x) for x in value))


def _widened(x: Tensor, width: int, fill: float) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]), value=fill)
