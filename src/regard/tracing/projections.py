"""Projects token vectors to the queries, keys and values of every head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.errors import DeviceError, RegardError, ShapeError
from regard.tracing.arrays import as_tensor, one_dtype

__all__ = ["Projections"]

TRANSPOSED = "torch.nn.Linear holds the transpose: pass linear.weight.T."


@dataclass(frozen=True, eq=False)
class Projections:
    """Token vectors and projection matrices, with checked shapes.

    Matrices are (in, out), as in the formula x W; torch.nn.Linear stores them transposed.

    >>> import torch
    >>> x, w_q, w_kv = torch.ones(5, 4), torch.ones(4, 6), torch.ones(4, 2)
    >>> made = Projections.of(x, None, w_q, w_kv, w_kv, None, heads=3, kv_heads=1)
    >>> [tuple(part.shape) for part in made.qkv()]
    [(1, 3, 5, 2), (1, 1, 5, 2), (1, 1, 5, 2)]
    """

    x: Float[Tensor, "batch q model"]
    context: Float[Tensor, "batch k context"] | None
    w_q: Float[Tensor, "model _"]
    w_k: Float[Tensor, "in _"]
    w_v: Float[Tensor, "in _"]
    w_o: Float[Tensor, "_ out"] | None
    heads: int
    kv_heads: int
    batched: bool

    @classmethod
    def of(
        cls, x: Any, context: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, heads: int, kv_heads: int | None
    ) -> Projections:
        """Validate the user's vectors and matrices."""
        given = {"x": x, "context": context, "w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
        missing = [name for name in ("w_q", "w_k", "w_v") if given[name] is None]
        if missing:
            raise RegardError(
                f"trace got x without {' and '.join(missing)}; from x it needs w_q, w_k and w_v. "
                "With queries, keys and values at hand call trace(q, k, v)."
            )
        arrays = {name: as_tensor(name, value) for name, value in given.items() if value is not None}
        arrays = dict(zip(arrays, one_dtype(*arrays.values()), strict=True))
        _check_vectors(arrays)
        batched = arrays["x"].ndim == 3
        for name in ("x", "context"):
            if name in arrays and not batched:
                arrays[name] = arrays[name][None]
        projections = cls(
            **{name: arrays.get(name) for name in given},  # pyright: ignore[reportArgumentType]
            heads=_positive("heads", heads),
            kv_heads=_positive("kv_heads", heads if kv_heads is None else kv_heads),
            batched=batched,
        )
        projections._check_matrices()
        return projections

    @property
    def source(self) -> Tensor:
        """The vectors that keys and values are computed from."""
        return self.x if self.context is None else self.context

    @property
    def matrices(self) -> dict[str, Tensor]:
        """The matrices by name, w_o only if there is one."""
        found = {"w_q": self.w_q, "w_k": self.w_k, "w_v": self.w_v}
        return found if self.w_o is None else {**found, "w_o": self.w_o}

    def qkv(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (batch, heads, length, dim)."""
        return (
            _split(self.x @ self.w_q, self.heads),
            _split(self.source @ self.w_k, self.kv_heads),
            _split(self.source @ self.w_v, self.kv_heads),
        )

    def _check_matrices(self) -> None:
        model, source = self.x.shape[-1], self.source.shape[-1]
        came = "x" if self.context is None else "context"
        _check_matrix("w_q", self.w_q, "x", model, "heads", self.heads)
        _check_matrix("w_k", self.w_k, came, source, "kv_heads", self.kv_heads)
        _check_matrix("w_v", self.w_v, came, source, "kv_heads", self.kv_heads)
        joined = self.heads * (self.w_v.shape[1] // self.kv_heads)
        if self.w_o is not None and (self.w_o.ndim != 2 or self.w_o.shape[0] != joined):
            raise ShapeError(
                f"w_o has shape {tuple(self.w_o.shape)}; it must be ({joined}, out): {self.heads} heads of "
                f"{joined // self.heads} numbers each. {TRANSPOSED}"
            )


def _check_vectors(arrays: dict[str, Tensor]) -> None:
    x, context = arrays["x"], arrays.get("context")
    if x.ndim not in (2, 3):
        raise ShapeError(
            f"x has shape {tuple(x.shape)}; it must be (length, d_model) or (batch, length, d_model)."
        )
    if context is not None and (context.ndim != x.ndim or context.shape[:-2] != x.shape[:-2]):
        raise ShapeError(
            f"x has shape {tuple(x.shape)} and context {tuple(context.shape)}; "
            "they may differ in length and dim only. Give both the same rank and batch."
        )
    places = {name: array.device for name, array in arrays.items()}
    if len(set(places.values())) > 1:
        listed = ", ".join(f"{name} is on {device}" for name, device in places.items())
        raise DeviceError(f"{listed}; they must share one device. Move with .to(x.device).")


def _check_matrix(name: str, matrix: Tensor, came: str, rows: int, word: str, heads: int) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != rows:
        raise ShapeError(
            f"{name} has shape {tuple(matrix.shape)} and {came} has dim {rows}; "
            f"{name} must be ({rows}, out). {TRANSPOSED}"
        )
    if matrix.shape[1] % heads:
        raise ShapeError(
            f"{name} has {matrix.shape[1]} columns, which {word}={heads} does not divide; "
            "every head gets equally many."
        )


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ShapeError(f"{name} is {value!r}; it must be a whole number, at least 1.")
    return value


def _split(x: Float[Tensor, "batch length _"], heads: int) -> Float[Tensor, "batch heads length dim"]:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
