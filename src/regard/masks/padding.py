"""`Padding`: hides padding keys of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from regard.errors import MaskError
from regard.masks.base import Mask
from regard.masks.checks import fits
from regard.masks.held import HeldMask
from regard.masks.tiles import agreement, same_rank, verdict

__all__ = ["Padding"]


@dataclass(frozen=True, repr=False, eq=False)
class Padding(HeldMask):
    """A key is visible only where `valid`, a bool tensor (batch, k) or (k,), is True.

    It hides keys but not queries: a padding query still attends to all valid keys.

    >>> print(Padding(torch.tensor([True, True, False])).draw(3))
    # # .
    # # .
    # # .
    """

    valid: Tensor

    def __post_init__(self) -> None:
        valid = self.valid
        if not isinstance(valid, Tensor):
            raise MaskError(
                f"Padding got a {type(valid).__name__}; wanted a bool tensor. "
                "Lengths go through Padding.from_lengths(lengths, k)."
            )
        if valid.dtype != torch.bool:
            raise MaskError(
                f"Padding got a {valid.dtype} tensor; it must be bool, True = a real key. "
                "Turn 1 and 0 into bool with .bool(); lengths go through Padding.from_lengths(lengths, k)."
            )
        if valid.ndim not in (1, 2):
            raise MaskError(
                f"Padding got shape {tuple(valid.shape)}; wanted (k,) or (batch, k). "
                "A mask over queries as well belongs in Dense."
            )
        self.hold("valid", valid.detach().clone())

    @classmethod
    def from_lengths(cls, lengths: Sequence[int] | Tensor, k: int) -> Padding:
        """The mask of a batch padded at the end: row b has lengths[b] real keys out of k.

        >>> print(Padding.from_lengths([1, 3], k=3).draw(1, 3, batch=0))
        # . .
        """
        held = torch.as_tensor(lengths)
        if held.ndim != 1 or held.is_floating_point() or held.dtype == torch.bool:
            raise MaskError(
                f"Padding.from_lengths got {held.dtype} lengths of shape {tuple(held.shape)}; "
                "wanted one whole number per batch row."
            )
        for row, length in enumerate(held.tolist()):
            if not 0 <= length <= k:
                raise MaskError(f"Padding.from_lengths got length {length} in row {row}; wanted 0 to k={k}.")
        return cls(torch.arange(k, device=held.device) < held[:, None])

    @property
    def content(self) -> Tensor:
        return self.valid

    def holding(self, content: Tensor) -> Mask:
        return Padding(content)

    @property
    def batch(self) -> int | None:
        return self.valid.shape[0] if self.valid.ndim == 2 and self.valid.shape[0] != 1 else None

    def check(self, q: int, k: int, batch: int, heads: int) -> None:
        fits(self, "keys", self.valid.shape[-1], "k", k, "give it one flag per key")
        if self.batch is not None:
            fits(self, "batch rows", self.batch, "q", batch, "give it one row per sequence")

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = same_rank(q, k)
        length = self.valid.shape[-1]
        seen = self.valid.to(k.device)[..., k.clamp(0, max(length - 1, 0))] & (0 <= k) & (k < length)
        shape = torch.broadcast_shapes(q.shape, k.shape)
        return seen.expand(shape) if self.valid.ndim == 1 else seen[:, None].expand(-1, 1, *shape)

    def cover(self, q_start: Tensor, q_stop: Tensor, k_start: Tensor, k_stop: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(q_start.shape, q_stop.shape, k_start.shape, k_stop.shape)
        length = self.valid.shape[-1]
        count = self._before[:, k_stop.clamp(0, length)] - self._before[:, k_start.clamp(0, length)]
        return agreement(verdict(full=count == k_stop - k_start, empty=count == 0)).expand(shape)

    @cached_property
    def _before(self) -> Int64[Tensor, "rows edges"]:
        """The number of valid keys before each position."""
        valid: Bool[Tensor, "rows k"] = torch.atleast_2d(self.valid)
        return torch.nn.functional.pad(valid.cumsum(-1), (1, 0)).cpu()

    def __repr__(self) -> str:
        shape = " × ".join(str(size) for size in self.valid.shape)
        return f"Padding(valid=<{shape}, {int(self.valid.sum())} true>)"
