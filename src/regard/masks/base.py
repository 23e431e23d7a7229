"""The base class of masks: two vectorised questions about pairs of positions.

A pair is a query and a key, each named by its **position**. Key j sits at position j. Queries are
aligned with the *end* of the keys: of `q` queries against `k` keys, query i sits at position
i + (k - q). With equal lengths position and index are the same; with a KV cache the last query
sits on the last key. Every mask, bias and score function in regard speaks in positions.
"""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Int, Int8, Int64
from torch import Tensor

from regard.errors import MaskError
from regard.extension import extension_point
from regard.masks.checks import bounds
from regard.memo import by_fields, fields_are_values

__all__ = ["Coverage", "Mask"]

Range = range | tuple[int, int]


class Coverage(enum.IntEnum):
    """How much of a tile a mask allows. The values are ordered, so that `&` is min, `|` is max and `~` is 2 -
    c."""

    EMPTY = 0
    PARTIAL = 1
    FULL = 2


class Mask(ABC):
    """A rule for which pairs may attend; True = may attend. Combine masks with `& | ~`.

    A mask of your own defines `allows`; define `cover` too if the mask should save work.

    >>> from regard.masks import Causal
    >>> class Odd(Mask):
    ...     def allows(self, q, k):
    ...         return (q + k) % 2 == 1
    >>> print((Odd() & Causal()).draw(4))
    . . . .
    # . . .
    . # . .
    # . # .
    """

    @abstractmethod
    def allows(self, q: Int[Tensor, "*#pairs"], k: Int[Tensor, "*#pairs"]) -> Bool[Tensor, "..."]:
        """Whether each pair may attend. q and k are positions that broadcast against each other.

        Masks that are the same for all batch rows and heads return the broadcast shape of q and k; others add
        two leading dimensions, batch (or 1) and heads (or 1).
        """

    def cover(
        self,
        q_start: Int64[Tensor, "*#tiles"],
        q_stop: Int64[Tensor, "*#tiles"],
        k_start: Int64[Tensor, "*#tiles"],
        k_stop: Int64[Tensor, "*#tiles"],
    ) -> Int8[Tensor, "*tiles"]:
        """The Coverage of many tiles at once; tiles are half-open, nonempty ranges of positions.

        PARTIAL is always a correct answer. EMPTY and FULL hold for every batch row and head.
        """
        shape = torch.broadcast_shapes(q_start.shape, q_stop.shape, k_start.shape, k_stop.shape)
        return torch.full(shape, Coverage.PARTIAL, dtype=torch.int8)

    def spans(self, q: Int64[Tensor, "q"]) -> tuple[Tensor, Tensor] | None:
        """The keys that each query may see as one interval [low, high); None if they may not be one interval.

        Intervals may reach past the keys, and are empty where high <= low.

        >>> from regard.masks import Window
        >>> Window(2).spans(torch.tensor([5]))
        (tensor([4]), tensor([7]))
        """
        return None

    @property
    def batch(self) -> int | None:
        """The number of batch rows of the mask; None if all rows share it."""
        return None

    @property
    def heads(self) -> int | None:
        """The number of heads of the mask; None if all heads share it."""
        return None

    @property
    def relative(self) -> bool:
        """Whether the mask depends only on q - k, so that tiles of equal shape and distance are equal."""
        return False

    @property
    @by_fields
    def repeatable(self) -> bool:
        """Whether the mask is a value, so that its schedule may be cached for later calls.

        It is a value if its class is a frozen dataclass whose fields are all values: numbers, strings,
        tuples, other such masks. Any other mask is evaluated in every call, because it may have changed; only
        of a `Where` whose function reads nothing but numbers and small tensors `attention` keeps the matrix.
        Return False if the results of a frozen mask depend on anything but its fields.

        >>> from regard.masks import Causal, Where
        >>> Causal().repeatable, Where(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx).repeatable
        (True, False)
        """
        return fields_are_values(self)

    def select(self, row: int) -> Mask:
        """The mask of one batch row; its results keep their rank, with a batch of 1."""
        return self

    def bind(self, batch: int, heads: int) -> Mask:
        """The mask with its batch and head counts fixed; only `Where` uses them."""
        return self

    def to(self, device: torch.device | str) -> Mask:
        """The mask with its tensors on a device, so that `allows` need not copy them in every call."""
        return self

    def check(self, q: int, k: int, batch: int, heads: int) -> None:
        """Raise MaskError if the mask was made for other lengths, batch or heads than these."""

    def coverage(self, q: Range, k: Range) -> Coverage:
        """The Coverage of one tile; q and k are ranges of positions.

        >>> from regard.masks import Causal
        >>> Causal().coverage(range(0, 64), range(64, 128))
        <Coverage.EMPTY: 0>
        """
        (q_start, q_stop), (k_start, k_stop) = bounds("q", q), bounds("k", k)
        corners = [torch.tensor(x, device="cpu") for x in (q_start, q_stop, k_start, k_stop)]
        return Coverage(int(self.cover(*corners)))

    def tile(self, q: Range, k: Range, device: torch.device | str = "cpu") -> Bool[Tensor, "*lead q k"]:
        """One tile of the mask, dense; q and k are ranges of positions.

        >>> from regard.masks import Causal
        >>> Causal().tile(range(2, 4), range(2, 5))
        tensor([[ True, False, False],
                [ True,  True, False]])
        """
        (q_start, q_stop), (k_start, k_stop) = bounds("q", q), bounds("k", k)
        rows = torch.arange(q_start, q_stop, device=device)[:, None]
        columns = torch.arange(k_start, k_stop, device=device)[None, :]
        allowed = self.allows(rows, columns)
        # `allows` may return a view of one row; copy it, because the caller may write to the tile.
        return allowed.expand(*allowed.shape[:-2], len(rows), columns.shape[1]).contiguous()

    def dense(
        self, q: int, k: int | None = None, device: torch.device | str = "cpu"
    ) -> Bool[Tensor, "*lead q k"]:
        """The whole matrix for q queries and k keys (k = q by default); slow, for tests and small sizes.

        Shape (q, k), or (batch or 1, heads or 1, q, k) for a mask that holds more than one matrix.

        >>> from regard.masks import Causal
        >>> Causal().dense(1, 3)
        tensor([[True, True, True]])
        """
        k = q if k is None else k
        # A mask may also have 0 batch rows.
        self.check(q, k, *(1 if own is None else own for own in (self.batch, self.heads)))
        if q == 0 or k == 0:
            return torch.zeros(q, k, dtype=torch.bool, device=device)
        return self.tile((k - q, k), (0, k), device)

    def draw(self, q: int = 8, k: int | None = None, batch: int = 0, head: int = 0) -> str:
        """The matrix as text, one line per query: # may attend, . may not.

        >>> from regard.masks import Causal
        >>> print(Causal().draw(2, 4))
        # # # .
        # # # #
        """
        matrix = self.dense(q, k)
        for name, size, index in (("batch row", self.batch, batch), ("head", self.heads, head)):
            if size is not None and not 0 <= index < size:
                raise MaskError(f"draw got {name} {index} of a mask with {size}; count from 0 to {size - 1}.")
        if matrix.ndim == 4:
            matrix = matrix[batch if matrix.shape[0] > 1 else 0, head if matrix.shape[1] > 1 else 0]
        return "\n".join(" ".join("#" if cell else "." for cell in row) for row in matrix.tolist())

    @extension_point
    def pairs(self, q: int, k: int | None = None) -> int:
        """The exact number of pairs that may attend, if possible without evaluating the matrix.

        A mask that differs between batch rows or heads is counted over all of its rows and heads.

        >>> from regard.masks import Causal, Window
        >>> (Causal() & Window(4096)).pairs(1_000_000)
        4087613440
        """
        ...

    @extension_point
    def to_json(self) -> dict[str, Any]:
        """The mask as plain data that `json.dumps` takes.

        >>> from regard.masks import Window
        >>> Window(4).to_json()
        {'type': 'Window', 'left': 4, 'right': 4}
        """
        ...

    @staticmethod
    @extension_point
    def from_json(data: dict[str, Any]) -> Mask:
        """The mask that `to_json` wrote.

        >>> Mask.from_json({"type": "Causal", "shift": 0})
        Causal()
        """
        ...

    @staticmethod
    @extension_point
    def from_blocked(blocked: Tensor) -> Mask:
        """A mask from a bool tensor of the other convention, True = may *not* attend.

        >>> print(Mask.from_blocked(torch.tensor([[False, True], [False, False]])).draw(2))
        # .
        # #
        """
        ...

    @staticmethod
    @extension_point
    def from_mask_mod(mask_mod: Callable[..., Tensor], q: int | None = None, k: int | None = None) -> Mask:
        """A mask from a FlexAttention mask_mod(b, h, q_idx, kv_idx).

        FlexAttention counts queries from 0. Give both lengths where they differ, and q_idx is that
        row number; otherwise it is the query's position, which is the same for equal lengths.

        >>> print(Mask.from_mask_mod(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, q=2, k=3).draw(2, 3))
        # . .
        # # .
        """
        ...

    @extension_point
    def __and__(self, other: object) -> Mask: ...

    @extension_point
    def __or__(self, other: object) -> Mask: ...

    # With a tensor on the left, Python calls these; they raise the same error with the same remedy.
    __rand__ = __and__
    __ror__ = __or__

    @extension_point
    def __invert__(self) -> Mask: ...

    def __bool__(self) -> bool:
        raise MaskError(f"{self!r} is neither true nor false; join masks with & | ~, not with and, or, not.")

    @extension_point
    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        ...

    def __repr__(self) -> str:
        if not dataclasses.is_dataclass(self):
            return f"{type(self).__name__}()"
        shown = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.repr]
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        inside = ", ".join(f"{name}={value!r}" for name, value in shown if value != defaults[name])
        return f"{type(self).__name__}({inside})"
