"""Matrix products whose bits depend neither on the number of threads nor on the other rows of a batch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["aligned", "bmm"]

# Rows per part: enough work for one core.
ROWS = 128
# From this many rows on, the rounding of a row doesn't depend on their number.
TALL = 16
# PyTorch computes products of fewer multiplications than this by another kernel.
TINY = 400
# Bytes: PyTorch's own tensors begin at multiples of this.
ALIGNMENT = 64


def aligned(x: Tensor) -> Tensor:
    """x where PyTorch itself would have put it, copied if it was read into another place.

    MKL rounds small products differently where their operands are not aligned (seen on AMD processors), so a
    map that was read from a file would not have the bits it had when it was written.
    """
    return x if x.is_cuda or x.data_ptr() % ALIGNMENT == 0 else x.clone()


def bmm(
    a: Float[Tensor, "n m c"],
    b: Float[Tensor, "n c w"],
    out: Float[Tensor, "n m w"] | None = None,
    add: bool = False,
) -> Float[Tensor, "n m w"]:
    """a @ b, into `out` if given, added to it if `add`.

    A single matrix product on a CPU is split over threads along its inner dimension, so its rounding depends
    on the number of threads. In a batch, each product runs in one thread. So a single product is cut by rows
    into a batch, which is also faster.
    """
    n, m, c = a.shape
    if n != 1 or a.is_cuda:
        return _product(a, b, out, add)
    parts = _parts(m, c, b.shape[2])
    if parts is None:
        return _by_halves(a, b, out, add, m if _whole(m, c, b.shape[2]) else -(-m // 2))
    split = (parts, m // parts)
    to = None if out is None else out[0].unflatten(0, split)
    product = _product(a[0].unflatten(0, split), b.expand(parts, -1, -1), to, add)
    return product.flatten(0, 1)[None] if out is None else out


def _whole(m: int, c: int, w: int) -> bool:
    """Whether half of the rows would be rounded differently than all rows at once."""
    # With one column this is a matrix-vector product, and OpenBLAS rounds the remaining rows at its end
    # differently.
    return m < 2 * TALL or TALL * c * w < TINY or w == 1


def _parts(m: int, c: int, w: int) -> int | None:
    """The number of equal parts of about ROWS rows to cut m rows into, at least two; None if there is
    none."""
    if _whole(m, c, w):
        return None
    return next((parts for parts in range(max(2, m // ROWS), 1, -1) if m % parts == 0), None)


def _by_halves(a: Tensor, b: Tensor, out: Tensor | None, add: bool, half: int) -> Tensor:
    """The first `half` rows and the last, a batch of two; rows in both are computed twice."""
    m = a.shape[1]
    to = _halves(out, half).clone() if out is not None and add else None
    product = _product(_halves(a, half), b.expand(2, -1, -1), to, add)
    whole = torch.cat([product[:1], product[1:, 2 * half - m :]], 1)
    return whole if out is None else out.copy_(whole)


def _halves(x: Float[Tensor, "1 m c"], half: int) -> Float[Tensor, "2 half c"]:
    """The two halves as a view: a copy in another memory order would be rounded differently."""
    m = x.shape[1]
    return x.expand(2, -1, -1) if half == m else x[0].unfold(0, half, m - half).transpose(1, 2)


def _product(a: Tensor, b: Tensor, out: Tensor | None, add: bool) -> Tensor:
    if out is None:
        return torch.bmm(a, b)
    return out.baddbmm_(a, b) if add else torch.bmm(a, b, out=out)
