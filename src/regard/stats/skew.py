"""Sums along the diagonals of a tile, fast enough for every tile of a long map."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.scores.diagonals import diagonal_sums
from regard.stats.scratch import scratch

__all__ = ["skewed_sums"]

# Rows per block. With fewer, there are more partial sums to join; with more, larger corners to copy.
BLOCK = 64


def skewed_sums(tile: Float[Tensor, "*lead q k"]) -> Float[Tensor, "*lead diagonals"]:
    """The same as `diagonal_sums`, but copies only the corners of each block of rows.

    >>> skewed_sums(torch.ones(2, 3))
    tensor([1., 2., 2., 1.])
    """
    q, k = tile.shape[-2:]
    tile = tile.detach()
    if q < BLOCK or k < 2 * BLOCK:
        return diagonal_sums(tile)
    rest = q % BLOCK
    sums = _joined(tile[..., : q - rest, :])
    if not rest:
        return sums
    total = sums.new_zeros(*sums.shape[:-1], q + k - 1)
    total[..., rest:] = sums
    total[..., : rest + k - 1] += diagonal_sums(tile[..., q - rest :, :])
    return total


def _joined(tile: Tensor) -> Tensor:
    """Diagonal sums of a whole number of blocks: the sums of the blocks, each shifted left by one block."""
    *lead, q, k = tile.shape
    n, pitch, left = q // BLOCK, k + q - 1, q - BLOCK
    # Rows of (zeros, sums of a block), and zeros after the last, so that reading past a row's end gives
    # zeros.
    flat = scratch("skew.blocks", (*lead, n * pitch + left), tile)
    blocks = flat[..., : n * pitch].unflatten(-1, (n, pitch))[..., left:]  # (..., n, k + BLOCK - 1)
    _block_sums(tile, blocks)
    return flat.as_strided((*lead, n, pitch), (*flat.stride()[:-1], pitch + BLOCK, 1)).sum(-2)


def _block_sums(tile: Tensor, out: Tensor) -> None:
    """Diagonal sums of each block of rows, into (..., n, k + BLOCK - 1).

    A stride of one row and one column follows a diagonal. From the first row on it stays inside the block,
    except for diagonals that begin or end in a corner; the corners are copied next to zeros.
    """
    *lead, q, k = tile.shape
    n, corner = q // BLOCK, BLOCK - 1
    *leading, down, right = tile.stride()
    inner = tile.as_strided((*lead, n, BLOCK, k - corner), (*leading, BLOCK * down, down + right, right))
    torch.sum(inner, -2, out=out[..., corner:k])

    blocks = tile.unflatten(-2, (n, BLOCK))
    padded = scratch("skew.corners", (*lead, n, BLOCK, 3 * corner), tile)  # upper right, zeros, lower left
    padded[..., :corner] = blocks[..., k - corner :]
    padded[..., 2 * corner :] = blocks[..., :corner]
    steps = (*padded.stride()[:-2], 3 * corner + 1, 1)
    sums = padded.as_strided((*lead, n, BLOCK, 2 * corner), steps).sum(-2)
    out[..., :corner], out[..., k:] = sums[..., corner:], sums[..., :corner]
