"""The KL divergence from the sum of the heads to a student."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from regard.stats.base import State, Statistic
from regard.stats.folds import Fold, KLFold
from regard.stats.student import Scores, Student
from regard.stats.tile import Frame, MapTile

__all__ = ["KL"]


@dataclass(frozen=True, eq=False)
class KL(Statistic):
    """KL(p_i || softmax_j(t_ij)) of each query, in nats; p_i is Σ_h α^h_i, scaled to sum to 1.

    t are the scores of a `Student`: a (batch, q, k) tensor, or `Indexer(q, k, weights)`, whose scores are
    computed tile by tile. The student sees the keys that any head may see. Shape (batch, q); 0 for a query
    that sees nothing. Use `AttentionMap.kl(student)` for gradients of the student.

    >>> import torch, regard
    >>> x = torch.zeros(1, 2, 3, 8)
    >>> seen = regard.observe(x, x, x, stats=[KL(torch.tensor([[[0.0, 0.0, 0.0]] * 3]))])
    >>> seen.kl
    tensor([[0., 0., 0.]])
    """

    needs_all_heads: ClassVar[bool] = True

    student: Student | Tensor

    @property
    def name(self) -> str:
        return self.__dict__.get("_name") or "kl"

    @property
    def taught(self) -> Student:
        """The student; plain scores are wrapped in `Scores`."""
        return self.student if isinstance(self.student, Student) else Scores(self.student)

    def check(self, frame: Frame) -> None:
        self.taught.check(frame.batch, frame.q, frame.k)

    def init(self, frame: Frame) -> State:
        shape = (frame.batch, frame.q)
        state = {name: frame.zeros(*shape) for name in ("mass", "logs", "cross", "sum")}
        return {**state, "top": torch.full(shape, -torch.inf, dtype=frame.dtype, device=frame.device)}

    def update(self, state: State, tile: MapTile) -> None:
        with torch.no_grad():
            scores = self.taught.tile(tile.batch, tile.rows, tile.cols).to(tile.weights)
        taught, mass, visible = scores.expand(len(tile.batch), -1, -1), tile.weights.sum(1), _visible(tile)
        if visible is not None:
            taught = taught.masked_fill(~visible, -torch.inf)
        top = taught.amax(-1)
        finite = top.masked_fill(top == -torch.inf, 0.0)
        fresh = {
            "mass": mass.sum(-1),
            # 0 log 0 is 0. xlogy says so too, at seven times the time.
            "logs": mass.clamp(min=torch.finfo(mass.dtype).tiny).log_().mul_(mass).sum(-1),
            # A student may give -inf to a key that no head attends to, and 0 * -inf is NaN.
            "cross": taught.masked_fill(mass == 0, 0.0).mul_(mass).sum(-1),
            "sum": (taught - finite[..., None]).exp().sum(-1),
            "top": top,
        }
        rows = slice(tile.rows.start, tile.rows.stop)
        kept = {name: x[tile.batch.start : tile.batch.stop, rows] for name, x in state.items()}
        merged = self.merge(kept, fresh)
        for name, x in kept.items():
            x.copy_(merged[name])

    def folds(self, state: State, frame: Frame) -> list[Fold]:
        return [KLFold(**state, student=self.taught)]

    def merge(self, state: State, other: State) -> State:
        top = torch.maximum(state["top"], other["top"])
        finite = top.masked_fill(top == -torch.inf, 0.0)
        added = {name: state[name] + other[name] for name in ("mass", "logs", "cross")}
        ours, theirs = (each["sum"] * (each["top"] - finite).exp() for each in (state, other))
        return {**added, "sum": ours + theirs, "top": top}

    def finish(self, state: State, frame: Frame) -> Float[Tensor, "batch q"]:
        mass = state["mass"]
        norm = self.log_norm(state)
        # Σ p log p - Σ p t + log Σ exp t with p = mass of the key / mass of the row.
        found = (state["logs"] - state["cross"]) / mass - mass.log() + norm
        return torch.where(mass > 0, found, 0.0)

    @staticmethod
    def log_norm(state: State) -> Float[Tensor, "batch q"]:
        """The log-sum-exp of the student's rows."""
        return state["sum"].log() + state["top"]


def _visible(tile: MapTile) -> Tensor | None:
    """The keys that any head may see; None if all."""
    return None if tile.allowed is None else tile.allowed.any(1)
