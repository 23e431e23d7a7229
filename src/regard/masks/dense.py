"""A mask given as a boolean matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import MaskError
from regard.extension import implements
from regard.masks.base import Mask
from regard.masks.checks import fits
from regard.masks.held import HeldMask
from regard.masks.tiles import verdict

__all__ = ["Dense", "check_allowed"]

BLOCK = 32


@dataclass(frozen=True, repr=False, eq=False)
class Dense(HeldMask):
    """A mask given as a bool tensor (q, k) or (batch or 1, heads or 1, q, k), True = may attend.

    It fits only calls of its own lengths. Empty and full tiles are found in blocks of 32 × 32.

    >>> print(Dense(torch.tensor([[True, False, True], [False, True, True]])).draw(2, 3))
    # . #
    . # #
    """

    allowed: Tensor

    def __post_init__(self) -> None:
        check_allowed("Dense", self.allowed)
        if self.allowed.ndim not in (2, 4):
            raise MaskError(
                f"Dense got shape {tuple(self.allowed.shape)}; wanted (q, k) or (batch, heads, q, k). "
                "Of three dimensions the first could be either: write mask[:, None] if it is batch, "
                "mask[None] if it is heads."
            )
        self.hold("allowed", _unexpanded(self.allowed.detach()).clone())

    @property
    def content(self) -> Tensor:
        return self.allowed

    def holding(self, content: Tensor) -> Mask:
        return Dense(content)

    @property
    def batch(self) -> int | None:
        return self.allowed.shape[0] if self.allowed.ndim == 4 and self.allowed.shape[0] != 1 else None

    @property
    def heads(self) -> int | None:
        return self.allowed.shape[1] if self.allowed.ndim == 4 and self.allowed.shape[1] != 1 else None

    def check(self, q: int, k: int, batch: int, heads: int) -> None:
        rows, columns = self.allowed.shape[-2:]
        flags = "one row per query; a flag per key alone belongs in Padding"
        fits(self, "queries", rows, "q", q, f"give it {flags}")
        fits(self, "keys", columns, "k", k, "give it one column per key")
        if self.batch is not None:
            fits(
                self, "batch rows", self.batch, "q", batch, "give it one matrix per sequence, or a batch of 1"
            )
        if self.heads is not None:
            fits(self, "heads", self.heads, "q", heads, "give it one matrix per query head, or 1 for all")

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        rows, columns = self.allowed.shape[-2:]
        row = q - (columns - rows)
        if (tile := self._tile(row, k)) is not None:
            return tile
        inside = (0 <= row) & (row < rows) & (0 <= k) & (k < columns)
        found = self.allowed.to(q.device)[..., row.clamp(0, rows - 1), k.clamp(0, columns - 1)]
        return found & inside

    def _tile(self, row: Tensor, k: Tensor) -> Tensor | None:
        """The pairs of a tile inside the matrix, as a view; None for other pairs. A view saves a gather."""
        # This reads positions, which tracers forbid, and which on a GPU would wait for the device.
        if type(row) is not Tensor or not row.is_cpu or torch.compiler.is_compiling():
            return None
        if row.ndim != 2 or k.ndim != 2 or row.shape[1] != 1 or k.shape[0] != 1:
            return None
        down, across = _run(row.flatten(), self.allowed.shape[-2]), _run(k.flatten(), self.allowed.shape[-1])
        return None if down is None or across is None else self.allowed.to(row.device)[..., down, across]

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        rows, columns = self.allowed.shape[-2:]
        top, bottom = q_start - (columns - rows), q_stop - (columns - rows)
        some, lacking = self._blocks
        inside = (0 <= top) & (bottom <= rows) & (0 <= k_start) & (k_stop <= columns)
        edges = torch.broadcast_tensors(*_blocks(top, bottom, rows), *_blocks(k_start, k_stop, columns))
        return verdict(full=inside & (_inside(lacking, *edges) == 0), empty=_inside(some, *edges) == 0)

    def pairs(self, q: int, k: int | None = None) -> int:
        self.check(q, q if k is None else k, *(1 if own is None else own for own in (self.batch, self.heads)))
        return int(torch.count_nonzero(self.allowed))

    @cached_property
    def _blocks(self) -> tuple[Int64[Tensor, "y x"], Int64[Tensor, "y x"]]:
        """Prefix sums of the blocks with an allowed pair, and of those with a forbidden one."""
        allowed = self.allowed[None, None] if self.allowed.ndim == 2 else self.allowed
        # Use bytes, because PyTorch's any and all take several times as long.
        bytes_of = allowed.view(torch.uint8)
        if 0 in bytes_of.shape[:2]:
            # Without batch rows there is no maximum, and no pair may attend.
            bytes_of = bytes_of.new_zeros(1, 1, *bytes_of.shape[2:])
        return _prefix_sums(bytes_of.amax((0, 1))), _prefix_sums(1 - bytes_of.amin((0, 1)))

    def __repr__(self) -> str:
        shape = " × ".join(str(size) for size in self.allowed.shape)
        return f"Dense(allowed=<{shape}, {int(self.allowed.sum())} true>)"


def _run(index: Int64[Tensor, "n"], size: int) -> slice | None:
    """Indices as a slice, if they are adjacent and within 0 … size - 1; else None."""
    if len(index) == 0:
        return None
    first, last = int(index[0]), int(index[-1])
    adjacent = last - first == len(index) - 1 and 0 <= first and last < size
    return slice(first, last + 1) if adjacent and bool((index.diff() == 1).all()) else None


def check_allowed(name: str, tensor: object) -> None:
    """Raise MaskError, with the likely mistake, unless the tensor is bool."""
    if not isinstance(tensor, Tensor):
        raise MaskError(f"{name} got a {type(tensor).__name__}; wanted a bool tensor.")
    if not torch.compiler.is_compiling() and _is_hidden(tensor):
        raise MaskError(
            f"{name} got a tensor whose numbers a transform of torch.func hides, and a mask is read. Make "
            "the mask outside, or pass a bias that is 0 where a pair may attend and -inf elsewhere."
        )
    if tensor.is_floating_point():
        raise MaskError(
            f"{name} got a {tensor.dtype} tensor; it must be bool. A mask of 0 and -inf that is added to the "
            "scores belongs in bias=."
        )
    if tensor.dtype != torch.bool:
        raise MaskError(
            f"{name} got a {tensor.dtype} tensor; it must be bool. Turn 1 and 0 into bool with .bool()."
        )


def _is_hidden(tensor: Tensor) -> bool:
    """Whether a transform of torch.func hides the numbers of a tensor."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]


@implements(Mask.from_blocked)
def _from_blocked(blocked: Tensor) -> Mask:
    check_allowed("from_blocked", blocked)
    return Dense(~blocked)


def _unexpanded(allowed: Tensor) -> Tensor:
    """The tensor with expanded batch and head dimensions reduced to 1."""
    if allowed.ndim == 4:
        for dim in (0, 1):
            if allowed.stride(dim) == 0:
                allowed = allowed[:1] if dim == 0 else allowed[:, :1]
    return allowed


def _prefix_sums(cells: UInt8[Tensor, "q k"]) -> Int64[Tensor, "y x"]:
    """The number of blocks with a cell of 1 above and to the left of each block corner."""
    rows, columns = cells.shape
    cells = pad(cells, (0, -columns % BLOCK, 0, -rows % BLOCK))
    blocks = cells.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).amax((1, 3))
    return pad(blocks.long().cumsum(0).cumsum(1), (1, 0, 1, 0)).cpu()


def _blocks(start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """The start and stop of the blocks that a range touches."""
    start, stop = start.clamp(0, length), stop.clamp(0, length)
    return start // BLOCK, (stop + BLOCK - 1) // BLOCK


def _inside(sums: Tensor, top: Tensor, bottom: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The number of counted blocks within each rectangle of blocks."""
    return sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
