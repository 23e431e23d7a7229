"""The k best keys of each row, as an unsorted list: each new tile is compared with the worst entry."""

# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["best_of", "empty_list", "list_best", "store_best"]


@triton.jit
def empty_list(ROWS: tl.constexpr, TOP: tl.constexpr):
    """Empty lists: values -inf, with distinct negative keys so that entries are replaced one at a time."""
    place = tl.arange(0, TOP)[None, :] + tl.zeros([ROWS, 1], tl.int32)
    return tl.full([ROWS, TOP], float("-inf"), tl.float32), -1 - place


@triton.jit
def _worst(value, key):
    """The entry to replace next: the lowest value, on ties the latest key."""
    low = tl.min(value, 1)
    return low, tl.max(tl.where(value == low[:, None], key, -(2**30)), 1)


@triton.jit
def _contenders(x, k_row, low, last):
    """The keys of a tile that would replace a row's worst entry; -inf elsewhere."""
    earlier = (x == low[:, None]) & (k_row[None, :] < last[:, None])
    return tl.where((x > low[:, None]) | earlier, x, float("-inf"))


@triton.jit
def list_best(value, key, x, k_row):
    """Insert the keys k_row of a tile x, (rows, keys), into the lists, (rows, TOP).

    Each round inserts the best remaining key of every row, until no row has one better than its worst entry.
    For a tile that improves no list this takes one maximum.
    """
    low, last = _worst(value, key)
    x = _contenders(x, k_row, low, last)
    best = tl.max(x, 1)
    more = tl.max(best, 0) > float("-inf")
    while more:
        found = tl.min(tl.where(x == best[:, None], k_row[None, :], 2**30), 1)
        wins = best > float("-inf")
        place = wins[:, None] & (value == low[:, None]) & (key == last[:, None])
        value = tl.where(place, best[:, None], value)
        key = tl.where(place, found[:, None], key)
        low, last = _worst(value, key)
        x = _contenders(tl.where(k_row[None, :] == found[:, None], float("-inf"), x), k_row, low, last)
        best = tl.max(x, 1)
        more = tl.max(best, 0) > float("-inf")
    return value, key


@triton.jit
def store_best(value, key, WEIGHT, KEY, there, TAKE: tl.constexpr):
    """Store the TAKE best of each row's list as weights and keys, heaviest first, on ties the earlier key
    first.

    Values are logarithms of weights to base 2. Pointers are at the first entry of each row.
    """
    for i in range(TAKE):
        weight, found = best_of(value, key)
        tl.store(WEIGHT + i, weight, mask=there)
        tl.store(KEY + i, tl.where(weight > 0, found, -1).to(tl.int64), mask=there)
        value = tl.where(key == found[:, None], float("-inf"), value)


@triton.jit
def best_of(value, key):
    """The weight of the heaviest entry of each row's list, and its key."""
    best = tl.max(value, 1)
    return tl.exp2(best), tl.min(tl.where((value == best[:, None]) & (key >= 0), key, 2**31 - 1), 1)
