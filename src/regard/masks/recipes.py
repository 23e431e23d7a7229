"""Published patterns as combinations of masks."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import MaskError
from regard.masks.base import Mask
from regard.masks.causal import Causal
from regard.masks.chunk import Chunk
from regard.masks.global_tokens import Global
from regard.masks.prefix import Prefix
from regard.masks.random_blocks import RandomBlocks
from regard.masks.window import Window

__all__ = ["BigBird", "Longformer", "StreamingSinks"]


def BigBird(
    block: int,
    length: int,
    window_blocks: int = 3,
    random_blocks: int = 3,
    global_blocks: int = 2,
    seed: int = 0,
) -> Mask:
    """Local, global and random blocks of keys (Zaheer et al., 2020).

    Each block of queries sees `window_blocks` blocks centred on itself, and `random_blocks` random ones; the
    first `global_blocks` see all others and are seen by all.

    >>> print(BigBird(1, 8, random_blocks=1, global_blocks=1).draw(8))
    # # # # # # # #
    # # # . . . . #
    # # # # . # . .
    # . # # # . . .
    # . . # # # . .
    # . . # # # # .
    # . . # . # # #
    # . . . . . # #
    """
    if window_blocks < 1 or window_blocks % 2 == 0:
        raise MaskError(
            f"BigBird got window_blocks={window_blocks}; it must be odd, 1 or more: the query's own block "
            "and as many on either side."
        )
    mask: Mask = Chunk(block, reach=window_blocks // 2)
    if global_blocks:
        mask = mask | Global(block * global_blocks)
    if random_blocks:
        mask = mask | RandomBlocks(block, random_blocks, length, seed)
    return mask


def Longformer(window: int, global_tokens: int | Sequence[int]) -> Mask:
    """A sliding window and a few global tokens (Beltagy et al., 2020).

    As in the paper, `window` is the total of both sides: each query sees window // 2 keys on either side.

    >>> print(Longformer(window=2, global_tokens=1).draw(6))
    # # # # # #
    # # # . . .
    # # # # . .
    # . # # # .
    # . . # # #
    # . . . # #
    """
    if window < 1:
        raise MaskError(
            f"Longformer got window={window}; it must be at least 1: both sides together, in keys."
        )
    return Window(window // 2 + 1) | Global(global_tokens)


def StreamingSinks(sinks: int, window: int) -> Mask:
    """The latest `window` keys, the query's own included, and the first `sinks` (Xiao et al., 2023).

    >>> print(StreamingSinks(sinks=1, window=2).draw(6))
    # . . . . .
    # # . . . .
    # # # . . .
    # . # # . .
    # . . # # .
    # . . . # #
    """
    return Causal() & (Window(window) | Prefix(sinks))
