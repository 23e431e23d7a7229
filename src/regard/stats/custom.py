"""A statistic of your own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import StatisticError
from regard.stats.base import State, Statistic
from regard.stats.checks import one_of
from regard.stats.tile import Frame, MapTile

__all__ = ["Custom"]


@dataclass(frozen=True)
class Custom(Statistic):
    """Any function of a tile, combined over all tiles by sum or max.

    `fn(tile)` gets a `MapTile` and returns a tensor whose first dimensions are the tile's (batch, heads). The
    others depend on `over`: for "map", any shape that is the same for all tiles; for "rows", the tile's
    queries come first; for "columns", its keys. The result has the same dimensions for the whole map. The map
    may be cut into tiles in any way, so fn must be a sum or a maximum over cells; cells in no tile count as
    0, or for max as the lowest number. If fn reads more than the weights, set `needs_scores`,
    `needs_log_weights` or `needs_all_heads`.

    >>> import torch, regard
    >>> x = torch.zeros(1, 1, 4, 8)
    >>> heavy = Custom(lambda tile: (tile.weights > 0.3).sum((-2, -1)))
    >>> regard.observe(x, x, x, mask=regard.Causal(), stats=[heavy.named("heavy")]).heavy
    tensor([[6]])
    """

    fn: Callable[[MapTile], Tensor]
    over: str = "map"
    reduce: str = "sum"
    needs_scores: bool = False  # type: ignore[override]
    needs_log_weights: bool = False  # type: ignore[override]
    needs_all_heads: bool = False  # type: ignore[override]

    def __post_init__(self) -> None:
        one_of(self, "over", self.over, ("map", "rows", "columns"))
        one_of(self, "reduce", self.reduce, ("sum", "max"))

    def init(self, frame: Frame) -> State:
        # The shape of fn's result is known only after the first tile.
        return {}

    def update(self, state: State, tile: MapTile) -> None:
        found = self._checked(self.fn(tile), tile)
        if "folded" not in state:
            shape = self._shape(tile.frame)
            state["folded"] = self._empty((*shape, *found.shape[len(shape) :]), found)
        view = {"map": tile.of_heads, "rows": tile.of_rows, "columns": tile.of_cols}[self.over]
        part = view(state["folded"])
        if part.shape != found.shape:
            raise StatisticError(
                f"the fn of Custom returned shape {tuple(found.shape)}, and earlier tiles ask for "
                f"{tuple(part.shape)}; what fn adds to the dimensions of the tile must be the same for all."
            )
        part.copy_(self._join(part, found))

    def merge(self, state: State, other: State) -> State:
        if not state or not other:
            return dict(state or other)
        return {"folded": self._join(state["folded"], other["folded"])}

    def finish(self, state: State, frame: Frame) -> Tensor:
        return state["folded"] if state else self._empty(self._shape(frame), frame.zeros(0))

    def _shape(self, frame: Frame) -> tuple[int, ...]:
        """The leading dimensions of the result, which don't depend on fn."""
        length = {"map": (), "rows": (frame.q,), "columns": (frame.k,)}[self.over]
        return frame.batch, frame.heads, *length

    def _join(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b if self.reduce == "sum" else torch.maximum(a, b)

    def _empty(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        if self.reduce == "sum":
            return like.new_zeros(shape)
        lowest = -torch.inf if like.is_floating_point() else torch.iinfo(like.dtype).min
        return like.new_full(shape, lowest)

    def _checked(self, found: object, tile: MapTile) -> Tensor:
        """Check the shape of fn's result; bools and small integers are summed in int64."""
        wanted = [len(tile.batch), len(tile.heads)]
        wanted += {"map": [], "rows": [len(tile.rows)], "columns": [len(tile.cols)]}[self.over]
        if not isinstance(found, Tensor) or list(found.shape[: len(wanted)]) != wanted:
            got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise StatisticError(
                f"the fn of Custom returned {got}; over={self.over!r} wants a tensor of shape "
                f"({', '.join(str(size) for size in wanted)}, ...) for this tile."
            )
        return found.to(tile.frame.dtype) if found.is_floating_point() else found.long()
