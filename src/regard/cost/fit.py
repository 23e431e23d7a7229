"""The longest context that fits into memory."""

from __future__ import annotations

from regard.cost.count import cache_bytes, weight_bytes
from regard.cost.dtypes import bytes_of
from regard.cost.shape import ModelShape
from regard.errors import RegardError

__all__ = ["longest_context", "memory_bytes"]

# If this context fits, every context fits, because the cache no longer grows.
ENDLESS = 1 << 48


def memory_bytes(
    shape: ModelShape,
    context: int,
    *,
    dtype: str = "bfloat16",
    cache_dtype: str | None = None,
    batch: int = 1,
    eager: bool = False,
) -> int:
    """The bytes of weights and cache, and with `eager` of one layer's score matrices.

    >>> from regard.cost import preset
    >>> memory_bytes(preset("llama-7b"), 2048) == 2 * 6738415616 + 1073741824
    True
    """
    found = weight_bytes(shape, dtype) + cache_bytes(shape, context, dtype=cache_dtype or dtype, batch=batch)
    if eager:
        found += bytes_of(batch * shape.heads * context * context, dtype)
    return found


def longest_context(
    shape: ModelShape,
    budget: int,
    *,
    dtype: str = "bfloat16",
    cache_dtype: str | None = None,
    batch: int = 1,
    eager: bool = False,
) -> int | None:
    """The most tokens for which weights and cache stay within a budget of bytes.

    None means that every length fits, because the cache doesn't grow with it; 0 means that not even one token
    fits. The model's training length is ignored.

    >>> from regard.cost import preset
    >>> longest_context(preset("llama-7b"), 24 * 10**9)
    20071
    """
    if budget < 1:
        raise RegardError(f"the budget is {budget} bytes; wanted 1 or more.")

    def fits(context: int) -> bool:
        found = memory_bytes(shape, context, dtype=dtype, cache_dtype=cache_dtype, batch=batch, eager=eager)
        return found <= budget

    if not fits(1):
        return 0
    if fits(ENDLESS):
        return None
    low, high = 1, ENDLESS  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
