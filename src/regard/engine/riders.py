"""Riders: row statistics computed in a forward pass; and the result of such a pass."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float, Int, Int64
from torch import Tensor

__all__ = ["NO_RIDERS", "Riders", "Streamed"]


@dataclass(frozen=True)
class Riders:
    """The statistics that a forward pass computes besides the output.

    columns: extra value columns g; returns sum_j w_ij g_j.
    entropy: minus the sum over keys of w_ij log w_ij.
    distance: the sum over keys of w_ij (position of i - position of j).
    max_score: the largest score of each row and its key.
    first: the number of first keys whose total weight is returned; 0 for none.
    top_keys: how many of each row's heaviest keys to return, if the pass can; 0 for none. The first is also
    the argmax, unless there is a sink: then the caller finds it. A decode step returns tile maxima instead.
    grain: the block size of the largest weights to return, if the pass can; 0 for none.
    low: the rounding error of the log-sum-exp; only the torch backend returns it.
    """

    columns: Float[Tensor, "batch kv_heads k extra"] | None = None
    entropy: bool = False
    distance: bool = False
    max_score: bool = False
    first: int = 0
    top_keys: int = 0
    grain: int = 0
    low: bool = False

    @property
    def needs_argmax(self) -> bool:
        """Whether the argmax must be searched, because no top keys are requested that contain it."""
        return self.max_score and not self.top_keys


NO_RIDERS = Riders()


@dataclass(frozen=True)
class Streamed:
    """The results of a forward pass, per query row."""

    out: Float[Tensor, "batch heads q v_dim"]
    lse: Float[Tensor, "batch heads q"]
    columns: Float[Tensor, "batch heads q extra"] | None = None
    entropy: Float[Tensor, "batch heads q"] | None = None
    distance: Float[Tensor, "batch heads q"] | None = None
    max_score: Float[Tensor, "batch heads q"] | None = None
    argmax: Int[Tensor, "batch heads q"] | None = None
    first: Float[Tensor, "batch heads q"] | None = None
    tile_maxima: Float[Tensor, "batch heads q tiles"] | None = None
    top_weight: Float[Tensor, "batch heads q top"] | None = None
    top_key: Int64[Tensor, "batch heads q top"] | None = None
    block_maxima: Float[Tensor, "batch heads q_blocks k_blocks"] | None = None
    grain: int = 0
    low: Float[Tensor, "batch heads q"] | None = None
