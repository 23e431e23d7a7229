"""Matrix products whose bits do not depend on the number of threads or on who else is in the batch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["bmm"]

ROWS = 128


def bmm(
    a: Float[Tensor, "n m c"],
    b: Float[Tensor, "n c w"],
    out: Float[Tensor, "n m w"] | None = None,
    add: bool = False,
) -> Float[Tensor, "n m w"]:
    """a @ b, into `out` if given, added to it if `add`.

    A lone matrix product on a CPU is split over threads along its inner dimension, so its rounding depends on
    how many threads there are. In a batch each product belongs to one thread. So a lone product is cut by
    rows into a batch; it is also faster that way.
    """
    n, m, _ = a.shape
    if n != 1 or a.is_cuda or m < 2:
        return _product(a, b, out, add)
    if m % 2:
        head = bmm(a[:, :-1], b, None if out is None else out[:, :-1], add)
        # One row more, as the second of a pair, so that it too is rounded as a member of a batch.
        tail = torch.bmm(a[0, -2:, None], b.expand(2, -1, -1))[1:].transpose(0, 1)
        if out is None:
            return torch.cat([head, tail], 1)
        last = out[:, -1:]
        _ = last.add_(tail) if add else last.copy_(tail)
        return out
    parts = _parts(m)
    split = (parts, m // parts)
    product = _product(
        a[0].unflatten(0, split),
        b.expand(parts, -1, -1),
        None if out is None else out[0].unflatten(0, split),
        add,
    )
    return product.flatten(0, 1)[None] if out is None else out


def _parts(m: int) -> int:
    """How many equal pieces of about ROWS rows, at least two."""
    want = max(2, -(-m // ROWS))
    return next(p for p in range(want, m + 1) if m % p == 0)


def _product(a: Tensor, b: Tensor, out: Tensor | None, add: bool) -> Tensor:
    if out is None:
        return torch.bmm(a, b)
    return out.baddbmm_(a, b) if add else torch.bmm(a, b, out=out)
