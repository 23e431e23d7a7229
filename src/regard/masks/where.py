"""`Where`: a mask from a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import MaskError
from regard.extension import implements
from regard.masks.base import Mask
from regard.masks.checks import fits, whole
from regard.masks.tiles import same_rank, verdict

__all__ = ["Where"]

TILE = 512  # the side of the largest tile that is evaluated for its coverage
CELLS = 2**26  # the most cells that one call of cover evaluates
AT_ONCE = 2**20  # the most of them held in memory together


class _Manner(NamedTuple):
    """How a mask_mod can be called on a device, and whether its results vary over batch rows and heads."""

    works: bool
    broadcasts: bool
    over_batch: bool
    over_heads: bool


@dataclass(frozen=True, repr=False)
class Where(Mask):
    """Pairs for which a FlexAttention mask_mod(b, h, q_idx, kv_idx) returns True.

    q_idx is the query's position minus `origin`; `Mask.from_mask_mod` chooses the origin so that q_idx is
    FlexAttention's row number. The function is called with index tensors that broadcast or, if it can't take
    those, through `torch.vmap`. It must be pure, because coverage is found by calling it; masks such as
    Causal() compute their coverage in closed form, and are faster.

    Before `bind` sets the numbers of batch rows and heads, the mask is that of row 0 and head 0.

    >>> print(Where(lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() == 1).draw(4))
    . # . .
    # . # .
    . # . #
    . . # .
    """

    mask_mod: Callable[..., Any]
    origin: int = 0
    rows: range | None = field(default=None, kw_only=True)
    """The batch rows of the mask, once bound."""
    head_count: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.mask_mod):
            raise MaskError(f"Where got {self.mask_mod!r}; wanted a function mask_mod(b, h, q_idx, kv_idx).")
        object.__setattr__(self, "origin", whole(self, "origin", self.origin))

    @property
    def batch(self) -> int | None:
        size = len(self._rows)
        return size if size != 1 and self._manner(torch.device("cpu")).over_batch else None

    @property
    def heads(self) -> int | None:
        return self._heads if self._heads != 1 and self._manner(torch.device("cpu")).over_heads else None

    def bind(self, batch: int, heads: int) -> Mask:
        if self.rows is not None and (len(self.rows), self.head_count) == (batch, heads):
            return self
        return replace(self, rows=range(batch), head_count=heads)

    def select(self, row: int) -> Mask:
        if self.batch is None:
            return self
        if not 0 <= row < len(self._rows):
            raise MaskError(f"{self!r} has {len(self._rows)} batch rows and row {row} was asked for.")
        return replace(self, rows=self._rows[row : row + 1], head_count=self._heads)

    def check(self, q: int, k: int, batch: int, heads: int) -> None:
        if self.batch is not None:
            fits(self, "batch rows", self.batch, "q", batch, "bind it again with bind(batch, heads)")
        if self.heads is not None:
            fits(self, "heads", self.heads, "q", heads, "bind it again with bind(batch, heads)")

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = same_rank(q, k)
        ones = (1,) * q.ndim
        b = torch.tensor(self._rows, device=q.device).view(-1, 1, *ones)
        h = torch.arange(self._heads, device=q.device).view(1, -1, *ones)
        call = self.mask_mod if self._manner(q.device).broadcasts else partial(_pair_by_pair, self.mask_mod)
        allowed = _checked(call(b, h, (q - self.origin)[None, None], k[None, None]))
        allowed = allowed.view((1,) * (q.ndim + 2 - allowed.ndim) + allowed.shape)
        return allowed.expand(-1, -1, *torch.broadcast_shapes(q.shape, k.shape))

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        unknown = super().cover(q_start, q_stop, k_start, k_stop)
        if unknown.numel() == 0:
            return unknown
        sides = int((q_stop - q_start).max()), int((k_stop - k_start).max())
        cells = sides[0] * sides[1] * (self.batch or 1) * (self.heads or 1)
        if (
            max(sides) > TILE
            or cells * unknown.numel() > CELLS
            or not self._manner(torch.device("cpu")).works
        ):
            return unknown
        tiles = torch.stack(
            [x.expand(unknown.shape).flatten() for x in (q_start, q_stop, k_start, k_stop)], 1
        )
        parts = [self._evaluated(part, *sides) for part in tiles.split(max(1, AT_ONCE // cells))]
        return torch.cat(parts).view(unknown.shape)

    def _evaluated(self, tiles: Int[Tensor, "tiles 4"], q_side: int, k_side: int) -> Int[Tensor, "tiles"]:
        q_start, q_stop, k_start, k_stop = tiles[..., None, None].unbind(1)
        # Tiles at the edge are smaller: clamp, so that their last row and column are evaluated repeatedly.
        q = torch.minimum(q_start + torch.arange(q_side)[:, None], q_stop - 1)  # (tiles, q, 1)
        k = torch.minimum(k_start + torch.arange(k_side), k_stop - 1)  # (tiles, 1, k)
        allowed = self.allows(q, k).transpose(0, 2).flatten(1)  # (tiles, heads * batch * q * k)
        return verdict(full=allowed.all(1), empty=~allowed.any(1))

    @property
    def _rows(self) -> range:
        return range(1) if self.rows is None else self.rows

    @property
    def _heads(self) -> int:
        return 1 if self.head_count is None else self.head_count

    @cached_property
    def _manners(self) -> dict[torch.device, _Manner]:
        return {}

    def _manner(self, device: torch.device) -> _Manner:
        if device not in self._manners:
            self._manners[device] = _probed(self.mask_mod, device)
        return self._manners[device]

    def __repr__(self) -> str:
        origin = f", origin={self.origin}" if self.origin else ""
        return f"Where({getattr(self.mask_mod, '__name__', repr(self.mask_mod))}{origin})"


@implements(Mask.from_mask_mod)
def _from_mask_mod(mask_mod: Callable[..., Tensor], q: int | None = None, k: int | None = None) -> Mask:
    if (q is None) != (k is None):
        raise MaskError(f"from_mask_mod got q={q} and k={k}; give both lengths, or neither.")
    return Where(mask_mod, origin=0 if q is None or k is None else k - q)


def _probed(mask_mod: Callable[..., Any], device: torch.device) -> _Manner:
    """Find out how a mask_mod can be called. All indices are 0, which is valid for tables of any length."""
    sizes = (2, 3, 5, 7)  # all different, so that no dimension is taken for another
    index = [
        torch.zeros([size if at == dim else 1 for at in range(4)], dtype=torch.int64, device=device)
        for dim, size in enumerate(sizes)
    ]
    try:
        shape = _checked(mask_mod(*index)).shape
    except MaskError:
        raise
    except Exception:  # what it cannot do on whole tensors it may do pair by pair
        shape = None
    if shape is not None and len(shape) <= 4:
        shape = (1,) * (4 - len(shape)) + tuple(shape)
        if all(got in (1, size) for got, size in zip(shape, sizes, strict=True)):
            return _Manner(True, True, shape[0] > 1, shape[1] > 1)
    try:
        _checked(_pair_by_pair(mask_mod, *index))
    except MaskError:
        raise
    except Exception:  # it may need another device; if it is a mistake, the first real call raises it
        return _Manner(False, False, True, True)
    return _Manner(True, False, True, True)


def _pair_by_pair(mask_mod: Callable[..., Any], b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Call a mask_mod through vmap, so that it sees single numbers, as FlexAttention guarantees."""
    shape = torch.broadcast_shapes(q.shape, k.shape)
    flat_q, flat_k = q.expand(shape).flatten(), k.expand(shape).flatten()
    call = torch.vmap(mask_mod, in_dims=(None, None, 0, 0))
    call = torch.vmap(call, in_dims=(None, 0, None, None))
    call = torch.vmap(call, in_dims=(0, None, None, None))
    return call(b.flatten(), h.flatten(), flat_q, flat_k).view(b.numel(), h.numel(), *shape[2:])


def _checked(answer: object) -> Bool[Tensor, "..."]:
    if not isinstance(answer, Tensor) or answer.dtype != torch.bool:
        got = f"a {answer.dtype} tensor" if isinstance(answer, Tensor) else f"a {type(answer).__name__}"
        raise MaskError(f"Where's mask_mod returned {got}; it must return a bool tensor, True = may attend.")
    return answer
