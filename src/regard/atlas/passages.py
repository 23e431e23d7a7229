"""Passages of a text that are repeated far from their first occurrence."""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

__all__ = ["PASSAGE", "passages"]

# The shortest passage. Fewer tokens are repeated by chance in a book, such as "out of the".
PASSAGE = 6


def passages(
    ids: Int64[Tensor, " n"], far: int, length: int = PASSAGE
) -> tuple[Int64[Tensor, " n"], Int64[Tensor, " n"]]:
    """Number queries and keys so that a query equals the earlier keys that continue its passage.

    Key c gets a number for the `length` tokens before it and its own token. Query i gets the number for its
    last `length` tokens and the next token, if they occurred before and only at distance `far` or more. All
    other queries and keys get distinct negative numbers.

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
