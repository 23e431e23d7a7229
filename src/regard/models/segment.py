"""What one attention call leaves behind: the recipe of its rows, and their statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats import ColumnStatistic, Entropy, Frame, MaxScore, MeanDistance, RowMaximum
from regard.stats import SegmentMass, SinkMass, Statistic, TopK, TopKeys

__all__ = ["Segment", "in_text", "join_rows", "placed", "rows_only", "tensors_of"]


@dataclass(frozen=True)
class Segment:
    """The rows of one call. `k` and `v` hold only the keys that earlier segments do not; None if not kept."""

    lse: Float[Tensor, "batch heads q"]
    stats: dict[str, Any]
    q: Float[Tensor, "batch heads q dim"] | None = None
    k: Float[Tensor, "batch kv_heads k dim"] | None = None
    v: Float[Tensor, "batch kv_heads k v_dim"] | None = None
    bias: Tensor | None = None

    @property
    def rows(self) -> int:
        return self.lse.shape[2]

    def crop(self, rows: int) -> Segment:
        """The first rows only, and the keys that came with them."""
        unseen = self.rows - rows
        shorter = {
            name: None if x is None else x[:, :, : x.shape[2] - unseen]
            for name, x in (("q", self.q), ("k", self.k), ("v", self.v), ("lse", self.lse))
        }
        stats = {name: _mapped(value, lambda x: x[:, :, :rows]) for name, value in self.stats.items()}
        return replace(self, stats=stats, **shorter)


def rows_only(statistics: tuple[Statistic, ...]) -> tuple[Statistic, ...]:
    """Those with one answer per query: what a generated token adds to them can be appended."""
    kinds = (ColumnStatistic, Entropy, MaxScore, MeanDistance, TopK)
    return tuple(s for s in statistics if isinstance(s, kinds))


def in_text(statistic: Statistic, first: int, k: int, later: bool = False) -> Statistic:
    """The statistic for k keys of which the first stands at position `first` of the text.

    A short text has fewer keys than a top-k wants, sliding caches drop old keys, and `later`, when tokens
    are generated, there are keys that no segment of the prompt holds.
    """
    name = statistic.name
    if isinstance(statistic, TopK) and statistic.k > k:
        return TopK(k).named(name)
    if isinstance(statistic, SinkMass | SegmentMass) and (first or later):
        return _Shifted(statistic, first).named(name)
    return statistic


@dataclass(frozen=True)
class _Shifted(ColumnStatistic):
    """A statistic of keys by their place in the text, over the last of them only."""

    of: ColumnStatistic
    first: int

    def columns(self, frame: Frame) -> Float[Tensor, "#batch #heads k extra"]:
        return self.of.columns(replace(frame, k=frame.k + self.first))[:, :, self.first :]

    def finish(self, state: dict[str, Tensor], frame: Frame) -> Any:
        return self.of.finish(state, frame)


def join_rows(values: list[Any]) -> Any:
    """One statistic of several segments, as if it had been one call."""
    if isinstance(values[0], Tensor):
        return torch.cat(values, 2)
    if isinstance(values[0], TopKeys):
        width = max(value.key.shape[-1] for value in values)
        values = [TopKeys(_widened(v.weight, width, 0), _widened(v.key, width, -1)) for v in values]
    return type(values[0])(*(torch.cat(parts, 2) for parts in zip(*values, strict=True)))


def placed(value: Any, first: int) -> Any:
    """A statistic that names keys, with the keys counted from the beginning of the text."""
    if first and isinstance(value, TopKeys | RowMaximum):
        return value._replace(key=torch.where(value.key >= 0, value.key + first, value.key))
    return value


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors a statistic is made of."""
    return [value] if isinstance(value, Tensor) else [x for x in value if isinstance(x, Tensor)]


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return change(value) if isinstance(value, Tensor) else type(value)(*(change(x) for x in value))


def _widened(x: Tensor, width: int, fill: float) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]), value=fill)
