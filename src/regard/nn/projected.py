"""`Projected`: the four projections of multi-head attention, and their sizes."""

from __future__ import annotations

from torch import nn

from regard.errors import ShapeError
from regard.scores import Position

__all__ = ["Projected"]


class Projected(nn.Module):
    """The parameters of `MultiHeadAttention`: four projections and their sizes."""

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = True,
        rotary: Position | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        _check_sizes(dim, heads, kv_heads, rotary)
        self.dim, self.heads, self.kv_heads, self.head_dim = dim, heads, kv_heads, dim // heads
        self.rotary, self.dropout = rotary, _probability(dropout)
        width = kv_heads * self.head_dim
        self.q_proj = nn.Linear(dim, dim, bias)
        self.k_proj = nn.Linear(dim if key_dim is None else key_dim, width, bias)
        self.v_proj = nn.Linear(self.k_proj.in_features if value_dim is None else value_dim, width, bias)
        self.out_proj = nn.Linear(dim, dim, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the projections: Glorot uniform weights, zero biases."""
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def extra_repr(self) -> str:
        grouped = "" if self.kv_heads == self.heads else f", kv_heads={self.kv_heads}"
        rotary = "" if self.rotary is None else f", rotary={self.rotary!r}"
        dropout = f", dropout={self.dropout}" if self.dropout else ""
        return f"{self.dim}, heads={self.heads}{grouped}{rotary}{dropout}"


def _check_sizes(dim: int, heads: int, kv_heads: int, rotary: Position | None) -> None:
    if heads < 1 or dim < 1 or dim % heads:
        raise ShapeError(f"dim is {dim} and heads is {heads}; dim must be a multiple of heads, both above 0.")
    if kv_heads < 1 or heads % kv_heads:
        raise ShapeError(
            f"heads is {heads} and kv_heads is {kv_heads}; heads must be a multiple of kv_heads."
        )
    turned = getattr(rotary, "dim", dim // heads)
    if turned != dim // heads:
        raise ShapeError(
            f"rotary turns {turned} dimensions and a head has {dim // heads}; "
            f"make it for one head: Rotary({dim // heads})."
        )


def _probability(dropout: float) -> float:
    if not 0.0 <= dropout < 1.0:
        raise ShapeError(f"dropout is {dropout}; it must be at least 0 and below 1.")
    return dropout
