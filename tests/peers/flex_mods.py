"""The masks and score functions that FlexAttention made well known, as functions that both libraries take.

FlexAttention calls them on single indices and regard on tensors of indices that broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["MASK_MODS", "SCORE_MODS", "Grid"]

Mod = Callable[..., Tensor]


@dataclass(frozen=True)
class Grid:
    """A text of `cells` tokens that are the pixels of a picture, row by row."""

    width: int

    def place(self, index: Tensor) -> tuple[Tensor, Tensor]:
        return index // self.width, index % self.width


GRID = Grid(7)
DOCUMENTS = torch.tensor([0] * 9 + [1] * 1 + [2] * 23 + [3] * 32)
VALID = torch.tensor([33, 5])
TABLE = torch.linspace(-1.0, 1.0, 4 * 131).view(4, 131)
SLOPES = 2.0 ** -torch.arange(1.0, 5.0)


def causal(b, h, q, k):
    return q >= k


def sliding_window(b, h, q, k):
    return (q >= k) & (q - k < 9)


def prefix_lm(b, h, q, k):
    return (k < 11) | (q >= k)


def document(b, h, q, k):
    return DOCUMENTS[q] == DOCUMENTS[k]


def causal_document(b, h, q, k):
    return document(b, h, q, k) & causal(b, h, q, k)


def padded(b, h, q, k):
    return k < VALID[b]


def dilated(b, h, q, k):
    return ((q - k).abs() % 3 == 0) & ((q - k).abs() <= 12)


def neighbourhood(b, h, q, k):
    """NATTEN: a square of pixels around each, which stops at the picture's edges and stays as large."""
    (q_row, q_col), (k_row, k_col) = GRID.place(q), GRID.place(k)
    row, col = q_row.clamp(1, 7), q_col.clamp(1, GRID.width - 2)
    return ((k_row - row).abs() <= 1) & ((k_col - col).abs() <= 1)


def dilated_neighbourhood(b, h, q, k):
    """NATTEN with gaps: neighbours are pixels of the same parity."""
    (q_row, q_col), (k_row, k_col) = GRID.place(q), GRID.place(k)
    near = ((q_row - k_row).abs() <= 4) & ((q_col - k_col).abs() <= 4)
    return near & ((q_row - k_row) % 2 == 0) & ((q_col - k_col) % 2 == 0)


def global_and_local(b, h, q, k):
    return (q < 2) | (k < 2) | ((q - k).abs() <= 4)


def sink_and_window(b, h, q, k):
    return (q >= k) & ((k < 3) | (q - k < 6))


def window_by_head(b, h, q, k):
    return (q >= k) & (q - k <= 3 * h)


def chunked(b, h, q, k):
    return (q // 10 == k // 10) & (q >= k)


def strided(b, h, q, k):
    return (q >= k) & ((q - k < 5) | (k % 5 == 4))


def stand_alone_square(b, h, q, k):
    """Stand-alone self-attention: a square of pixels around each, cut off at the edges."""
    (q_row, q_col), (k_row, k_col) = GRID.place(q), GRID.place(k)
    return ((q_row - k_row).abs() <= 1) & ((q_col - k_col).abs() <= 1)


def second_half_only(b, h, q, k):
    return (q >= k) & (k >= 16)


def tanh_soft_cap(score, b, h, q, k):
    return 5.0 * torch.tanh(score / 5.0)


def alibi(score, b, h, q, k):
    return score + SLOPES[h] * (k - q)


def relative(score, b, h, q, k):
    return score + (q - k)


def relative_table(score, b, h, q, k):
    return score + TABLE[h, q - k + 65]


def stand_alone_relative(score, b, h, q, k):
    """Stand-alone self-attention: one bias for the distance in rows and one for that in columns."""
    (q_row, q_col), (k_row, k_col) = GRID.place(q), GRID.place(k)
    return score + TABLE[h, q_row - k_row + 65] + TABLE[h, 65 - (q_col - k_col)]


def temperature_by_head(score, b, h, q, k):
    return score * (1.0 + h)


def hidden_by_score(score, b, h, q, k):
    return torch.where(q >= k, score, -torch.inf)


MASK_MODS: dict[str, Mod] = {
    mod.__name__: mod
    for mod in (
        *(causal, sliding_window, prefix_lm, document, causal_document, padded, dilated, neighbourhood),
        *(dilated_neighbourhood, global_and_local, sink_and_window, window_by_head, chunked, strided),
        *(stand_alone_square, second_half_only),
    )
}
SCORE_MODS: dict[str, Mod] = {
    mod.__name__: mod
    for mod in (
        *(tanh_soft_cap, alibi, relative, relative_table, stand_alone_relative, temperature_by_head),
        hidden_by_score,
    )
}
