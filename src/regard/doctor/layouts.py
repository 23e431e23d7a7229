"""The layouts in which functions take q, k and v, by the letters of their axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LAYOUTS", "Layout"]


class Layout(NamedTuple):
    """From and to `(batch, heads, length, dim)`; `loops` where a call holds one head or one sequence only."""

    into: Callable[[Tensor], Tensor]
    back: Callable[[Tensor, Tensor], Tensor]
    loops: bool = False


def _same(x: Any, *_: Any) -> Any:
    return x


def _swap(x: Tensor, *_: Any) -> Tensor:
    return x.transpose(1, 2)


LAYOUTS: dict[str, Layout] = {
    "bhnd": Layout(_same, _same),
    "bnhd": Layout(_swap, _swap),
    "hnd": Layout(_same, _same, loops=True),
    "bnd": Layout(_same, _same, loops=True),
    "nd": Layout(_same, _same, loops=True),
    "bnm": Layout(
        lambda x: x.transpose(1, 2).flatten(2),
        lambda out, q: out.reshape(*out.shape[:2], q.shape[1], -1).transpose(1, 2),
    ),
    "nbhd": Layout(lambda x: x.permute(2, 0, 1, 3), lambda out, q: out.permute(1, 2, 0, 3)),
}
