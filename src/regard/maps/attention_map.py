"""`AttentionMap`: a lazy, exact attention map that computes its cells on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.inputs import Options, readable_problem_of
from regard.engine.large_rows import RowNorms
from regard.engine.problem import Problem
from regard.engine.schedule import chunks
from regard.engine.scoring import Place
from regard.engine.second_pass import frame_of, summarise
from regard.errors import MapError, StatisticError
from regard.extension import extension_point
from regard.maps.columns import Columns
from regard.maps.distilling import distilled
from regard.maps.freshness import Watch
from regard.maps.normalisers import Normalisers
from regard.maps.selection import Selection, select
from regard.masks import Mask
from regard.stats import (
    ColumnMass,
    Frame,
    Pooled,
    PooledMaps,
    Statistic,
    Student,
    TopK,
    TopKeys,
    blocks_of,
    by_name,
)

if TYPE_CHECKING:
    import numpy as np

__all__ = ["AttentionMap"]

# The most cells that a single read may compute: 2**27 in float32 is half a gigabyte.
CELLS = 1 << 27


class AttentionMap:
    """The attention maps of one layer, exact and lazy: it stores q, k, a mask and one number per row.

    Index it like a (batch, heads, q, k) array: `map[0, 3, 100:164, 0:64]` is a dense tile. Each axis takes an
    int, a slice, or a list, array or tensor of ints or flags; None adds an axis, flags over several axes
    select single cells. One thing differs from NumPy: lists on two axes select every combination of rows and
    columns, as `numpy.ix_` does, and axes keep their order. The log-sum-exp of a row is computed when the row
    is first read, if it is not known yet.

    For any finite scores, the error of a cell against float64 is at most twice that of eager attention, plus
    1e-5 of the weight, and no cell is above 1. To achieve this, rows with a log-sum-exp beyond 64 (65,536 in
    float64) are computed with float64 scores.

    A map holds your tensors, not copies. If one of them (q, k, a bias, a sink, tensors that a mask or
    score_mod reads) is written to, reading the map raises MapError; writes through `.data` and in inference
    mode are not noticed.

    >>> import torch, regard
    >>> q, k = torch.randn(2, 1, 4, 1000, 16)
    >>> seen = regard.AttentionMap.of(q[None, 0], k[None, 0], mask=regard.Causal())
    >>> seen
    AttentionMap(batch=1, heads=4, q=1000, k=1000, mask=Causal(), float32)
    >>> seen[0, 3, 100:164, 0:64].shape, float(seen.row(0, 3, 999).sum())
    (torch.Size([64, 64]), 1.0)
    """

    def __init__(self, problem: Problem, lse: Tensor | None = None) -> None:
        """Make the map of a validated problem; use `AttentionMap.of` for tensors q and k."""
        self.problem = replace(problem, dropout=0.0) if problem.dropout else problem
        self._rows = Normalisers(self.problem, lse)
        self._watch = Watch(self.problem)

    @classmethod
    def of(cls, q: Tensor, k: Tensor, mask: Mask | None = None, **options: Any) -> AttentionMap:
        """The map of queries and keys, with the options of `attention`. This computes nothing yet."""
        problem = readable_problem_of(q.detach(), k.detach(), k.detach(), Options(mask, **options))
        return cls(replace(problem, v=problem.k[..., :0]))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        p = self.problem
        return p.batch, p.heads, p.q_len, p.k_len

    @property
    def ndim(self) -> int:
        return 4

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights: float32 or float64, also for half-precision q and k."""
        return self.problem.accumulate

    @property
    def device(self) -> torch.device:
        return self.problem.q.device

    @property
    def mask(self) -> Mask | None:
        return self.problem.mask

    @property
    def lse(self) -> Float[Tensor, "batch heads q"]:
        """The log-sum-exp of every row; computes those that are not known yet."""
        self._watch.check()
        return self._rows.lse

    @extension_point
    def to_numpy(self) -> np.ndarray:
        """The whole map as an array; raises MapError for large maps."""
        ...

    @extension_point
    def to_zarr(self, path: str | Path, *, chunk: int = 512) -> None:
        """Write the whole map to a new Zarr array, tile by tile, in bounded memory."""
        ...

    @extension_point
    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        ...

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        batch, heads, q, k = self.shape
        dtype = str(self.dtype).removeprefix("torch.")
        return f"AttentionMap(batch={batch}, heads={heads}, q={q}, k={k}, mask={self.mask!r}, {dtype})"

    def __getitem__(self, index: Any) -> Tensor:
        chosen = self._chosen(index)
        return chosen.arranged(self._tile(chosen))

    def __iter__(self) -> Iterator[Tensor]:
        """Yield the map of each batch row, (heads, q, k), computed one at a time."""
        return (self[row] for row in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        self._watch.check(values=True)
        # A problem caches derived facts; drop them.
        return {"problem": replace(self.problem), "rows": self._rows}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.problem, self._watch = state["problem"], Watch(state["problem"])
        self._rows = state["rows"].copy_to(self.problem, torch.clone)

    def __deepcopy__(self, memo: dict[int, Any]) -> AttentionMap:
        """A map with copies of the tensors, so that later writes to the originals don't affect it."""
        for x in self._watch.tensors():
            # PyTorch can't deepcopy tensors with an autograd history; cells don't need it, so detach.
            memo.setdefault(id(x), x.detach().clone())
        copied = AttentionMap.__new__(AttentionMap)
        copied.__setstate__(deepcopy(self.__getstate__(), memo))
        return copied

    def __array__(self, dtype: Any = None, copy: bool | None = None):
        array = self.dense().cpu().numpy()
        return array if dtype is None else array.astype(dtype)

    def row(self, batch: int, head: int, query: int) -> Float[Tensor, "k"]:
        """The row of one query: its weights on all keys."""
        return self[batch, head, query]

    def column(self, batch: int, head: int, key: int) -> Float[Tensor, "q"]:
        """The column of one key: the weights of all queries on it."""
        return self[batch, head, :, key]

    def diagonal(self, batch: int, head: int, distance: int) -> Float[Tensor, "n"]:
        """The weights at one distance (position of query minus position of key), query by query."""
        _, _, q_len, k_len = self.shape
        shift = self.problem.offset - distance
        rows = range(max(0, -shift), min(q_len, k_len - shift))
        blocks = [self[batch, head, r, range(r.start + shift, r.stop + shift)] for r in chunks(rows, 128)]
        return torch.cat([block.diagonal() for block in blocks or [self[batch, head, 0:0, 0:0]]])

    def scores(self, index: Any) -> Tensor:
        """The logits of a tile, -inf where masked; indexed as the map itself."""
        chosen = self._chosen(index)
        self._watch.check()
        return chosen.arranged(self._scores(chosen, self.dtype))

    def dense(self) -> Float[Tensor, "batch heads q k"]:
        """The whole map as a tensor; raises MapError for large maps."""
        batch, heads, q, k = self.shape
        cells = batch * heads * q * k
        if cells > CELLS:
            raise MapError(
                f"the dense map has {batch} x {heads} x {q} x {k} = {cells:,} cells, more than {CELLS:,}. "
                "Read a tile (map[b, h, q0:q1, k0:k1]), statistics (map.stats(...)) or an overview "
                "(map.pooled(64))."
            )
        return self[:, :, :, :]

    def stats(self, *statistics: Statistic) -> dict[str, Any]:
        """Any statistics of the map, by name, from one pass over its tiles."""
        self._watch.check(values=True)
        named, frame = by_name(statistics), frame_of(self.problem)
        for statistic in named.values():
            statistic.check(frame)
        lse, norms = self._rows.some(_rows_read(named.values(), frame))
        with torch.no_grad():
            return summarise(self.problem, lse, named, norms=norms)

    def topk(self, k: int) -> TopKeys:
        """The k heaviest keys of every query."""
        return self.stats(TopK(k))["top_k"]

    def pooled(self, size: int, how: str = "mean") -> Any:
        """The map in blocks of size x size cells: the mean, the max, or both."""
        return self.stats(Pooled(size, how))["pooled"]

    def pyramid(self, levels: int, size: int = 64) -> list[PooledMaps]:
        """Overviews (mean and max) from blocks of `size` cells up, each level twice as coarse; one pass."""
        if levels < 1:
            raise StatisticError(f"levels is {levels}; a pyramid has at least 1.")
        finest: PooledMaps = self.pooled(size, "both")
        found, cells = [finest], _block_cells(self.shape, size).to(finest.mean)
        sums = finest.mean * cells
        for _ in range(levels - 1):
            sums, cells = _halved(sums, "sum"), _halved(cells, "sum")
            found.append(PooledMaps(sums / cells, _halved(found[-1].max, "max")))
        return found

    def kl(self, student: Student | Tensor) -> Float[Tensor, "batch q"]:
        """KL(mean over heads || softmax of a student's scores) of each query, with gradients for the student.

        Use it as the loss of a sparse-attention indexer: `seen.map.kl(Indexer(q, k,
        weights)).mean().backward()`. The map itself gets no gradients. Both sides are computed tile by tile;
        gradients take one more pass.
        """
        self._watch.check()
        return distilled(self.problem, self.lse, self._rows.norms, student)

    def left(self, r: Float[Tensor, "..."]) -> Float[Tensor, "batch heads k"]:
        """r^T A for weights r of the queries, (q,) or (batch, heads, q): one step of rollout without the
        matrix."""
        return self.stats(ColumnMass(rows=r))["column_mass"]

    def right(self, x: Float[Tensor, "..."]) -> Float[Tensor, "batch heads q d"]:
        """A x: x of shape (k, d), or (batch, heads, k, d) where heads may be the key heads or 1."""
        return self.stats(Columns(x, self.problem.group))["columns"]

    def apply(self, v: Float[Tensor, "batch kv_heads k d"]) -> Float[Tensor, "batch heads q d"]:
        """The output again, from the map and the values."""
        return self.right(v)

    @extension_point
    def show(self, **options: Any) -> Any:
        """Show the deep-zoom map as a widget in a notebook.

        The options are those of `regard.viewer.show`; `tokens=[...]` names the keys.
        """
        ...

    def to(self, device: torch.device | str) -> AttentionMap:
        """The same map with its tensors on another device."""
        p, scoring = self.problem, self.problem.scoring
        bias = scoring.bias.to(device) if isinstance(scoring.bias, Tensor) else scoring.bias
        moved = replace(
            p,
            q=p.q.to(device),
            k=p.k.to(device),
            v=p.v.to(device),
            mask=None if p.mask is None else p.mask.to(device),
            sink=None if p.sink is None else p.sink.to(device),
            scoring=replace(scoring, bias=bias),
        )
        other = AttentionMap(moved)
        other._rows = self._rows.copy_to(moved, lambda x: x.to(device))
        return other

    def _chosen(self, index: Any) -> Selection:
        chosen = select(index, self.shape)
        if chosen.cells > CELLS:
            raise MapError(
                f"{chosen.cells:,} cells are too many to build at once (at most {CELLS:,}). "
                "Read a smaller tile, or an overview with .pooled(size)."
            )
        return chosen

    def _tile(self, chosen: Selection) -> Float[Tensor, "batch heads q k"]:
        self._watch.check()
        norms = self._rows.of(chosen.axes)
        if isinstance(norms, RowNorms):
            return norms.log_weights(self._scores(chosen, torch.float64)).exp_().to(self.dtype)
        lse = norms[..., None].masked_fill(norms[..., None] == -torch.inf, torch.inf)
        # Clamp to 1: a score may be rounded differently than in the forward pass.
        return (self._scores(chosen, self.dtype) - lse).clamp_(max=0.0).exp_()

    def _scores(self, chosen: Selection, dtype: torch.dtype) -> Float[Tensor, "batch heads q k"]:
        p, scoring = self.problem, self.problem.scoring
        batch, heads, rows, cols = (_compact(axis, self.device) for axis in chosen.axes)
        q, k = _take(p.q, batch, heads, rows), _take(p.k, batch, _key_heads(heads, p.group), cols)
        q, k = q.to(dtype), k.to(dtype)
        place = Place(batch, heads, rows, cols, p.offset, self.device)
        with torch.no_grad():
            parameters = tuple(x.to(dtype) for x in scoring.score.parameters())
            s = scoring.raw(q.flatten(0, 1), k.flatten(0, 1), parameters).view(*q.shape[:3], k.shape[2])
            s = scoring.modify(s, scoring.bias_tile(place), place)
            return s if p.mask is None else s.masked_fill(~place.allowed(p.mask), -torch.inf)


def _rows_read(statistics: Iterable[Statistic], frame: Frame) -> Tensor:
    """The queries whose rows the statistics need; most need all."""
    read = torch.zeros(frame.q, dtype=torch.bool)
    for statistic in statistics:
        blocks = blocks_of(statistic, frame)
        for rows in [range(frame.q)] if blocks is None else [block.rows for block in blocks]:
            read[rows.start : rows.stop] = True
    return read.nonzero().squeeze(-1)


def _compact(axis: Tensor, device: torch.device) -> range | Tensor:
    """Adjacent indices as a range, so that reading them needs no copy."""
    if len(axis) and bool((axis.diff() == 1).all()):
        return range(int(axis[0]), int(axis[-1]) + 1)
    return axis.to(device)


def _key_heads(heads: range | Tensor, group: int) -> Tensor | range:
    if group == 1:
        return heads
    if isinstance(heads, range) and len(heads) == 1:
        return range(heads.start // group, heads.start // group + 1)
    index = torch.tensor(list(heads)) if isinstance(heads, range) else heads
    return index // group


def _take(x: Tensor, *axes: range | Tensor) -> Tensor:
    """Index ranges first, which are views, then the axis that leaves the least, so that reading a few keys
    doesn't copy all."""

    def left(axis: int) -> float:
        index = axes[axis]
        return 0 if isinstance(index, range) else len(index) / max(1, x.shape[axis])

    for axis in sorted(range(len(axes)), key=left):
        index = axes[axis]
        if isinstance(index, range):
            x = x.narrow(axis, index.start, len(index))
        else:
            x = x.index_select(axis, index.to(x.device))
    return x


def _block_cells(shape: tuple[int, ...], size: int) -> Tensor:
    """The number of cells in each block of an overview; the last ones are smaller."""
    rows, cols = (
        torch.tensor([len(c) for c in chunks(range(n), size)], dtype=torch.float64) for n in shape[2:]
    )
    return rows[:, None] * cols


def _halved(x: Tensor, how: str) -> Tensor:
    """Join blocks two by two along the last two axes; an odd last block stays single."""
    for axis in (-2, -1):
        pad = (0, 0, 0, x.shape[axis] % 2) if axis == -2 else (0, x.shape[axis] % 2)
        x = torch.nn.functional.pad(x, pad).unflatten(axis, (-1, 2))
        x = x.sum(axis if axis == -1 else -2) if how == "sum" else x.amax(axis if axis == -1 else -2)
    return x
