"""`observe`: the output, the statistics of the map, and the map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.causal_flag import with_causal
from regard.engine.dispatch import short_observed
from regard.engine.inputs import Options, readable_problem_of
from regard.engine.observing import observed
from regard.engine.problem import Problem
from regard.engine.transformed import is_traced
from regard.extension import extension_point
from regard.maps import overflow, storage
from regard.maps.attention_map import AttentionMap
from regard.masks import Mask
from regard.scores import Bias, DotProduct, Score
from regard.stats import Entropy, Finishes, MaxScore, MeanDistance, SinkMass, Statistic, by_name, find_result

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import pyarrow

__all__ = ["Observation", "observe"]

_DOT = DotProduct()
ROWS = (Entropy(), MaxScore(), MeanDistance(), SinkMass())
Result = TypeVar("Result")


@dataclass(frozen=True)
class Observation:
    """The result of one attention call: its output, the requested statistics, and the lazy, exact map.

    Statistics are attributes (`seen.entropy`) and entries of `seen.stats`. If you index with a statistic or
    its class, type checkers know the type of the result: `seen[Entropy]` is a tensor, `seen[TopK(8)]` a
    `TopKeys`.
    """

    out: Float[Tensor, "*batch q v_dim"]
    lse: Float[Tensor, "batch heads q"]
    stats: dict[str, Any]
    map: AttentionMap
    asked: Mapping[str, Statistic] = field(default_factory=dict[str, Statistic], repr=False, compare=False)
    """The statistics by name; empty in an observation that was read from disk."""

    @overload
    def __getitem__(self, statistic: type[Finishes[Result]]) -> Result: ...
    @overload
    def __getitem__(self, statistic: Finishes[Result]) -> Result: ...
    @overload
    def __getitem__(self, statistic: str) -> Any: ...
    def __getitem__(self, statistic: Any) -> Any:
        """The result of one statistic, by the statistic, its class or its name.

        >>> import torch, regard
        >>> x = torch.zeros(1, 1, 3, 8)
        >>> regard.observe(x, x, x, stats=regard.TopK(2))[regard.TopK(2)].key.shape
        torch.Size([1, 1, 3, 2])
        """
        return find_result(self.stats, self.asked, statistic)

    def __getattr__(self, name: str) -> Any:
        stats = self.__dict__.get("stats", {})
        if name in stats:
            return stats[name]
        known = ", ".join(stats) or "none"
        raise AttributeError(f"{name!r} was not observed; observed were: {known}. Ask for it in stats=[...].")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.stats]

    def __repr__(self) -> str:
        overflow.settle()
        shapes = [f"out={_shape(self.out)}", f"lse={_shape(self.lse)}"]
        shapes += [f"{name}={_shape(value)}" for name, value in self.stats.items()]
        return f"Observation({', '.join(shapes)}, map={self.map!r})"

    def to(self, device: torch.device | str) -> Observation:
        """The same observation on another device."""
        stats = {name: _mapped(value, lambda x: x.to(device)) for name, value in self.stats.items()}
        return Observation(self.out.to(device), self.lse.to(device), stats, self.map.to(device), self.asked)

    def detach(self) -> Observation:
        """The observation without its autograd graph."""
        stats = {name: _mapped(value, Tensor.detach) for name, value in self.stats.items()}
        return replace(self, out=self.out.detach(), lse=self.lse.detach(), stats=stats)

    def __deepcopy__(self, memo: dict[int, Any]) -> Observation:
        """A copy of the observation with its own tensors, without autograd graph."""
        plain = self.detach()
        out, lse = deepcopy(plain.out, memo), deepcopy(plain.lse, memo)
        return Observation(out, lse, deepcopy(plain.stats, memo), deepcopy(plain.map, memo), self.asked)

    @extension_point
    def to_numpy(self) -> dict[str, np.ndarray]:
        """Output, log-sum-exp and statistics as arrays by name; parts of a result have names such as
        `top_k.key`."""
        ...

    @extension_point
    def to_pandas(self) -> pandas.DataFrame:
        """One row for each batch row, head and query, with all row statistics."""
        ...

    @extension_point
    def to_arrow(self) -> pyarrow.Table:  # pyright: ignore[reportUnknownParameterType]
        """The rows of `to_pandas` as an Arrow table."""
        ...

    @extension_point
    def to_parquet(self, path: str | Path) -> None:
        """The rows of `to_pandas` as a Parquet file."""
        ...

    @extension_point
    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        ...

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file: output, statistics, and the data that define the map."""
        overflow.settle()
        storage.save(storage.Parts(self.out, self.lse, self.stats, self.map), path)

    @staticmethod
    def load(path: str | Path) -> Observation:
        """Read a file that `save` wrote; tensors are memory-mapped."""
        return Observation(*storage.load(path))


def observe(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    *,
    stats: Statistic | Sequence[Statistic] = ROWS,
    scale: float | None = None,
    bias: Tensor | Bias | None = None,
    softcap: float | None = None,
    sink: Float[Tensor, "heads"] | None = None,
    score: Score = _DOT,
    score_mod: Callable[..., Tensor] | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    backend: str = "auto",
    differentiable: bool = False,
) -> Observation:
    """`attention` together with exact statistics of its map, in memory that grows linearly with the length.

    Statistics that are sums over a row ride in the forward pass; all others share one second pass. Without
    `stats` you get four that ride: entropy, max score, mean distance and sink mass. Gradients flow through
    `out`; statistics carry none unless `differentiable=True`, which Entropy, SinkMass, SegmentMass and
    ValueWeighted support. Statistics describe the weights before dropout.

    >>> import torch, regard
    >>> from regard import Causal, ColumnMass, Entropy
    >>> q, k, v = torch.randn(3, 1, 8, 1000, 64).unbind()
    >>> seen = regard.observe(q, k, v, mask=Causal(), stats=[Entropy(), ColumnMass()])
    >>> seen.out.shape, seen.entropy.shape, seen.column_mass.shape
    (torch.Size([1, 8, 1000, 64]), torch.Size([1, 8, 1000]), torch.Size([1, 8, 1000]))
    >>> seen.map[0, 3, 100:164, 0:64].shape
    torch.Size([64, 64])
    """
    if torch.compiler.is_dynamo_compiling():
        # Imported here, because it imports the compiler, which is loaded already when a program is traced.
        from regard.engine.operators.uncompiled import OBSERVING

        shared = {"scale": scale, "bias": bias, "softcap": softcap, "sink": sink, "score": score}
        more = {"score_mod": score_mod, "dropout": dropout, "is_causal": is_causal, "backend": backend}
        return OBSERVING(observe, q, k, v, mask, stats=stats, differentiable=differentiable, **shared, **more)
    mask = with_causal(mask, q, k) if is_causal else mask
    plain = bias is softcap is sink is score_mod is None and score is _DOT and dropout == 0.0
    plain = plain and backend == "auto" and not differentiable and (mask is None or isinstance(mask, Mask))
    # A generator of statistics would be used up.
    if plain and isinstance(stats, (list, tuple)) and not is_traced(q):
        known = short_observed(q, k, v, mask, scale, stats)
        if known is not None:
            problem, out, lse, found = known
            if lse.is_cuda:
                overflow.report(lse, found, q.dtype == torch.float16, lse.dtype)
            asked = dict(zip(found, stats, strict=True))
            return Observation(out, lse, found, AttentionMap(problem, lse), asked)
    options = Options(mask, scale, bias, softcap, sink, score, score_mod, dropout)
    problem = readable_problem_of(q, k, v, options)
    asked = by_name(stats)
    result, found = observed(problem, asked, backend, differentiable)
    overflow.report(result.lse, found, problem.q.dtype == torch.float16, problem.accumulate)
    return Observation(
        problem.restore(result.out), result.lse, found, AttentionMap(_detached(problem), result.lse), asked
    )


def _detached(problem: Problem) -> Problem:
    if not any(x.requires_grad for x in (problem.q, problem.k, problem.v)):
        return problem
    return replace(problem, q=problem.q.detach(), k=problem.k.detach(), v=problem.v.detach())


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(list(value.shape))
    if hasattr(value, "_fields"):
        return f"{type(value).__name__}({', '.join(value._fields)})"
    return type(value).__name__


def _mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply to a tensor, or to each tensor of a named tuple."""
    if isinstance(value, Tensor):
        return change(value)
    if hasattr(value, "_fields"):
        return type(value)(*(_mapped(part, change) for part in value))
    return value
