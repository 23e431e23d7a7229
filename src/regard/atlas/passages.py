"""Passages of a text that come again far from where they stood before."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

__all__ = ["PASSAGE", "passages"]

# Fewer tokens than these come again by chance in a book, as "out of the" does; a question has more.
PASSAGE = 6


def passages(
    ids: Int64[Tensor, " n"], far: int, length: int = PASSAGE
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"]]:
    """Number queries and keys so that those are equal where a query's next token stands at an earlier key.

    Key c has the number of the `length` tokens before it and its own, query i that of its last `length`
    tokens and the next one, if these occurred before, and nowhere nearer than `far`. All other numbers are
    negative and differ, so that they equal none.

    >>> queries, keys = passages(torch.tensor([5, 6, 7, 1, 2, 3, 5, 6, 7]), far=4, length=2)
    >>> (queries[:, None] == keys).nonzero().tolist()       # the last 7 is also what query 7 will read
    [[7, 2], [7, 8]]
    """
    n = len(ids)
    ids = ids.cpu()
    none = -1 - torch.arange(n)
    if n <= length:
        return none, none - n
    _, gram = torch.unique(ids, return_inverse=True)
    _, token = torch.unique(ids, return_inverse=True)
    for _ in range(length):
        _, longer = torch.unique(gram[:-1] * n + token[len(token) - len(gram) + 1 :], return_inverse=True)
        gram = longer
    keys = torch.cat([none[:length] - n, gram])
    order = gram.argsort(stable=True)
    again = gram[order][1:] == gram[order][:-1]
    since = torch.zeros_like(gram)
    since[order[1:]] = torch.where(again, order[1:] - order[:-1], 0)
    queries = none.clone()
    queries[length - 1 : n - 1] = torch.where(since >= far, gram, none[length - 1 : n - 1])
    return queries, keys
