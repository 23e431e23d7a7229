"""The scores of a tile: raw score, scale, bias, soft cap, then the user's score_mod."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import ScoreError
from regard.scores import Bias, Score, soft_cap

if TYPE_CHECKING:
    from collections.abc import Callable

    from regard.masks import Mask

__all__ = ["Place", "Scoring"]


@dataclass(frozen=True)
class Place:
    """The place of a tile: its batch rows, query heads, query rows and keys.

    Rows and columns are ranges in the streaming loops, index tensors when a map is read cell by cell.
    """

    batch: range | Tensor
    heads: range | Tensor
    rows: range | Tensor
    cols: range | Tensor
    offset: int
    device: torch.device

    @cached_property
    def q_pos(self) -> Int[Tensor, "q"]:
        """Positions of the queries: the last query sits on the last key."""
        return self._index(self.rows) + self.offset

    @cached_property
    def k_pos(self) -> Int[Tensor, "k"]:
        return self._index(self.cols)

    def index(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(b, h, q, k) as index tensors that broadcast to (batch, heads, q, k)."""
        b, h = self._index(self.batch), self._index(self.heads)
        return (
            b.view(-1, 1, 1, 1),
            h.view(1, -1, 1, 1),
            self.q_pos.view(1, 1, -1, 1),
            self.k_pos.view(1, 1, 1, -1),
        )

    def take(self, x: Tensor) -> Tensor:
        """This tile of a dense (batch|1, heads|1, q|1, k|1) tensor; a view if the tile is contiguous."""
        for axis, index in enumerate((self.batch, self.heads, self.rows, self.cols)):
            x = _pick(x, axis, index)
        return x

    def allowed(self, mask: Mask) -> Bool[Tensor, "batch heads q k"]:
        """This tile of the mask, with 4 dimensions, each full or 1."""
        allowed = mask.allows(self.q_pos.view(-1, 1), self.k_pos.view(1, -1))
        allowed = allowed.view((1,) * (4 - allowed.ndim) + tuple(allowed.shape))
        for axis, index in ((0, self.batch), (1, self.heads)):
            allowed = _pick(allowed, axis, index)
        return allowed

    def _index(self, index: range | Tensor) -> Tensor:
        if isinstance(index, Tensor):
            return index
        return torch.arange(index.start, index.stop, index.step, device=self.device)


@dataclass(frozen=True)
class Scoring:
    """How logits are computed from raw scores, before the mask.

    `s = score_mod(soft_cap(scale * score(q, k) + bias))`.
    """

    score: Score
    scale: float
    bias: Tensor | Bias | None = None
    softcap: float | None = None
    score_mod: Callable[..., Tensor] | None = None

    @property
    def linear(self) -> bool:
        """Scores are a scaled dot product and nothing else, so their gradient is a matrix product."""
        return self.score.is_dot and self.bias is None and self.softcap is None and self.score_mod is None

    @property
    def fusable(self) -> bool:
        """Whether PyTorch's fused kernels can compute this: a dot product and at most a constant dense
        bias."""
        constant = self.bias is None or (isinstance(self.bias, Tensor) and not self.bias.requires_grad)
        return self.score.is_dot and constant and self.softcap is None and self.score_mod is None

    def raw(
        self, q: Float[Tensor, "n q dim"], k: Float[Tensor, "n k dim"], parameters: tuple[Tensor, ...]
    ) -> Float[Tensor, "n q k"]:
        """The scaled scores of a tile, by any score function."""
        s = self.score.tile(q, k, *parameters)
        wanted = (*q.shape[:-1], k.shape[-2])
        if s.shape != wanted:
            raise ScoreError(
                f"{type(self.score).__name__}.tile returned {tuple(s.shape)} for {q.shape[-2]} queries and "
                f"{k.shape[-2]} keys; it must return {wanted}."
            )
        # Copy a view, because tiles are reshaped and masked in place.
        return (s * self.scale).contiguous()

    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors of the score and the bias that may need gradients, the bias's last."""
        return (*self.score.parameters(), *self.bias_parameters())

    def bias_parameters(self) -> tuple[Tensor, ...]:
        if isinstance(self.bias, Tensor):
            return (self.bias,)
        return () if self.bias is None else self.bias.parameters()

    def bias_tile(self, at: Place) -> Tensor | None:
        """The bias of one tile, broadcastable to (batch, heads, q, k)."""
        if isinstance(self.bias, Tensor):
            return at.take(self.bias)
        if self.bias is None:
            return None
        tile = self.bias.tile(at.q_pos, at.k_pos)
        return _pick(tile, tile.ndim - 3, at.heads) if tile.ndim > 2 else tile

    def modify(self, s: Float[Tensor, "batch heads q k"], bias: Tensor | None, at: Place) -> Tensor:
        """Apply bias, soft cap and score_mod to scaled raw scores; returns a new tensor if there are any."""
        if bias is not None:
            s = s + bias
        if self.softcap is not None:
            s = soft_cap(s, self.softcap)
        if self.score_mod is not None:
            modified = self.score_mod(s, *at.index())
            if not isinstance(modified, Tensor) or modified.shape != s.shape:
                got = tuple(modified.shape) if isinstance(modified, Tensor) else type(modified).__name__
                raise ScoreError(
                    f"score_mod returned {got} for a tile of shape {tuple(s.shape)}; it must return one "
                    "score per pair. Index tensors come as (b,1,1,1), (1,h,1,1), (1,1,q,1) and (1,1,1,k)."
                )
            s = modified.to(s.dtype)
        return s

    def accumulate_bias(self, grads: tuple[Tensor, ...], d_tile: Tensor, at: Place) -> None:
        """Add a tile's gradient with respect to the broadcast bias (`bias_tile`) to the gradients of the
        bias's parameters."""
        if isinstance(self.bias, Tensor):
            target = at.take(grads[0])
            for axis in reversed(range(4)):
                if target.shape[axis] == 1:
                    # Shared entries get sums over the whole map, whose terms nearly cancel: use a wider
                    # dtype.
                    d_tile = d_tile.sum(axis, keepdim=True, dtype=torch.float64)
            target.add_(d_tile)
        elif self.bias is not None:
            grads = tuple(_pick(grad, 0, at.heads) for grad in grads)
            self.bias.accumulate(grads, d_tile, at.q_pos, at.k_pos)


def _pick(x: Tensor, axis: int, index: range | Tensor) -> Tensor:
    """A part of one axis, a view if the index is a range. An axis of size 1 is shared, so it stays whole."""
    if x.shape[axis] == 1:
        return x
    return (
        x.index_select(axis, index) if isinstance(index, Tensor) else x.narrow(axis, index.start, len(index))
    )
