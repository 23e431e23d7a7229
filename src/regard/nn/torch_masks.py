"""Converts PyTorch's masks (True = blocked, floats are added) to regard's masks and biases."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.errors import MaskError, ShapeError
from regard.masks import Causal, Dense, Mask, Padding

__all__ = ["Blocking"]


class Blocking:
    """Combines `key_padding_mask`, `attn_mask` and `is_causal` into a mask and a bias or None.

    `shape` is that of the map, (batch, heads, q, k). `extra` is the number of unmasked keys at the end, from
    `add_bias_kv` and `add_zero_attn`.

    >>> import torch
    >>> blocking = Blocking((1, 2, 2, 3), extra=0)
    >>> blocking.padding(torch.tensor([[False, False, True]]))
    >>> blocking.causal()
    >>> print(blocking.mask.draw(2, 3))
    # . .
    # # .
    """

    def __init__(self, shape: tuple[int, int, int, int], extra: int) -> None:
        self.shape, self.extra = shape, extra
        self.mask: Mask | None = None
        self.bias: Tensor | None = None

    def causal(self) -> None:
        """PyTorch's causal mask, aligned at the first key."""
        _, _, q, k = self.shape
        if self.extra:
            self._allow(Dense(pad(Causal(shift=q - k).dense(q, k), (0, self.extra), value=True)))
        else:
            self._allow(Causal(shift=q - k))

    def padding(self, given: Tensor) -> None:
        """A flag or a number per key, (batch, k), or (k,) for one sequence."""
        batch, _, _, k = self.shape
        given = given[None] if given.ndim == 1 and batch == 1 else given
        if given.shape != (batch, k):
            raise ShapeError(f"key_padding_mask has shape {tuple(given.shape)}; it must be {(batch, k)}.")
        blocked, added = self._read("key_padding_mask", given)
        if blocked is not None:
            self._allow(Padding(~blocked))
        if added is not None:
            self._add(added[:, None, None])

    def pairs(self, given: Tensor) -> None:
        """A flag or a number per pair, (q, k), or (batch · heads, q, k)."""
        batch, heads, q, k = self.shape
        if given.shape not in ((q, k), (batch * heads, q, k)):
            raise ShapeError(
                f"attn_mask has shape {tuple(given.shape)}; it must be {(q, k)}, or {(batch * heads, q, k)} "
                "with a matrix for every head of every sequence."
            )
        given = given if given.ndim == 2 else given.unflatten(0, (batch, heads))
        blocked, added = self._read("attn_mask", given)
        if blocked is not None:
            self._allow(Dense(~blocked))
        if added is not None:
            self._add(added)

    def _read(self, name: str, given: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The blocked pairs and the added numbers, each None if there are none."""
        given = pad(given, (0, self.extra))
        if given.dtype == torch.bool:
            return given, None
        if not given.is_floating_point():
            raise MaskError(f"{name} is {given.dtype}; it must be bool (True = blocked) or float (added).")
        # PyTorch's own layers convert bool masks to 0 and -inf; convert them back, so that masked tiles are
        # skipped and fully masked rows give zeros.
        blocked = given.detach() == -torch.inf
        added = given.masked_fill(blocked, 0.0)
        wanted = added.requires_grad or bool(added.detach().count_nonzero())
        return blocked if bool(blocked.any()) else None, added if wanted else None

    def _allow(self, mask: Mask) -> None:
        self.mask = mask if self.mask is None else self.mask & mask

    def _add(self, bias: Tensor) -> None:
        self.bias = bias if self.bias is None else self.bias + bias
