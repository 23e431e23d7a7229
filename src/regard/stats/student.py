"""The student of a distillation: scores of pairs of queries and keys, computed tile by tile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ShapeError

__all__ = ["Indexer", "Scores", "Student"]


class Student(ABC):
    """The interface of students: scores of pairs, whose softmax over a row's visible keys is compared."""

    @abstractmethod
    def tile(self, batch: range, rows: range, cols: range) -> Float[Tensor, "batch q k"]:
        """The scores of some pairs, differentiable in `parameters`."""

    @abstractmethod
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors that receive gradients."""

    @abstractmethod
    def on(self, tensors: tuple[Tensor, ...]) -> Student:
        """The same student with other tensors, in the order of `parameters`."""

    @abstractmethod
    def check(self, batch: int, q: int, k: int) -> None:
        """Raise ShapeError unless the student scores such a map."""


@dataclass(frozen=True, eq=False)
class Scores(Student):
    """A student of given scores, (batch or 1, q, k)."""

    scores: Float[Tensor, "#batch q k"]

    def tile(self, batch: range, rows: range, cols: range) -> Float[Tensor, "batch q k"]:
        return _of_batch(self.scores, batch)[:, rows.start : rows.stop, cols.start : cols.stop]

    def parameters(self) -> tuple[Tensor, ...]:
        return (self.scores,)

    def on(self, tensors: tuple[Tensor, ...]) -> Scores:
        return Scores(*tensors)

    def check(self, batch: int, q: int, k: int) -> None:
        shape = tuple(self.scores.shape)
        if len(shape) != 3 or shape[0] not in (1, batch) or shape[1:] != (q, k):
            raise ShapeError(f"the student's scores have shape {shape}; wanted ({batch} or 1, {q}, {k}).")


@dataclass(frozen=True, eq=False)
class Indexer(Student):
    """DeepSeek-V3.2's lightning indexer: I_ij = Σ_h w_ih ReLU(q_ih · k_j), computed tile by tile.

    q is (batch, index_heads, q, dim), k is (batch, k, dim) and weights is (batch, index_heads, q).
    """

    q: Float[Tensor, "batch index_heads q dim"]
    k: Float[Tensor, "batch k dim"]
    weights: Float[Tensor, "batch index_heads q"]

    def tile(self, batch: range, rows: range, cols: range) -> Float[Tensor, "batch q k"]:
        q = _of_batch(self.q, batch)[:, :, rows.start : rows.stop]
        k = _of_batch(self.k, batch)[:, None, cols.start : cols.stop]
        weights = _of_batch(self.weights, batch)[:, :, rows.start : rows.stop]
        return (weights[..., None] * torch.relu(q @ k.mT)).sum(1)

    def parameters(self) -> tuple[Tensor, ...]:
        return self.q, self.k, self.weights

    def on(self, tensors: tuple[Tensor, ...]) -> Indexer:
        return Indexer(*tensors)

    def check(self, batch: int, q: int, k: int) -> None:
        shapes = tuple(self.q.shape), tuple(self.k.shape), tuple(self.weights.shape)
        if tuple(map(len, shapes)) == (4, 3, 3):
            heads, dim = self.q.shape[1], self.q.shape[3]
            if shapes == ((batch, heads, q, dim), (batch, k, dim), (batch, heads, q)):
                return
        raise ShapeError(
            f"the indexer's q, k and weights have shapes {shapes}; wanted ({batch}, index_heads, {q}, dim), "
            f"({batch}, {k}, dim) and ({batch}, index_heads, {q})."
        )


def _of_batch(x: Tensor, batch: range) -> Tensor:
    return x if x.shape[0] == 1 else x[batch.start : batch.stop]
