"""The second pass over several ranks, by each statistic's own init, update, merge and finish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from regard.distributed.agreement import agree
from regard.distributed.attending import Work, attend
from regard.distributed.partial import Piece, are_large, lifted, tiles_of
from regard.distributed.placing import RowsFrame, place_of, reads_values
from regard.distributed.shards import whole_of
from regard.stats import Frame, MapTile, NormWeighted, State, Statistic

__all__ = ["frame_of", "summarised"]

# The dimension of keys in the states of column statistics.
KEYS_AXIS = {"Custom": 2}


def frame_of(work: Work, values: Tensor | None) -> Frame:
    """The frame of the whole map."""
    p = work.call.problem
    return Frame(
        batch=p.batch,
        heads=p.heads,
        q=work.needs.queries.length,
        k=work.needs.keys.length,
        mask=work.call.mask,
        values=values,
        dtype=p.accumulate,
        device=p.q.device,
    )


def summarised(work: Work, lse: Tensor, statistics: Mapping[str, Statistic]) -> dict[str, Any]:
    """The results of all statistics: over this rank's rows, over its keys, or over the whole map."""
    p = work.call.problem
    values = None
    if any(map(reads_values, statistics.values())):
        values = whole_of(work.ranks, p.v.detach(), work.needs.keys, 2)
    frame = frame_of(work, values)
    for statistic in statistics.values():
        statistic.check(frame)
    large = any(agree(work.ranks, "the second pass of observe", {"own": are_large(lse)}))
    seen = replace(work, call=lifted(work.call)) if large else work
    if large:
        lse = attend(seen)[1]
    states = _States(work, statistics, frame)
    for all_heads in (False, True):
        group = {name: s for name, s in statistics.items() if s.needs_all_heads is all_heads}
        if group:
            _pass(seen, lse, group, states, all_heads)
    return {name: states.finished(name) for name in statistics}


def _pass(work: Work, lse: Tensor, group: Mapping[str, Statistic], states: _States, all_heads: bool) -> None:
    keep = any(s.needs_log_weights or s.needs_scores for s in group.values())
    names = sorted(group, key=lambda name: group[name].spoils_log_weights - group[name].makes_block_sums)
    how = {"keep": keep, "all_heads": all_heads}
    k = work.call.problem.k
    for arrival in work.route(k, k[..., :0]).arrivals():
        for keys in arrival:
            for piece, some_k, some_v in work.pieces(keys):
                for tile in tiles_of(piece, work.call, some_k, some_v, lse, states.frame, **how):
                    states.update(names, piece, tile)


class _States:
    """The states of all statistics on this rank, their merge over ranks, and their results."""

    def __init__(self, work: Work, statistics: Mapping[str, Statistic], frame: Frame) -> None:
        self.work, self.statistics, self.frame = work, statistics, frame
        runs = work.needs.queries.shards[work.ranks.rank] or (range(0),)
        shared = {f: getattr(frame, f) for f in ("batch", "heads", "k", "mask", "values", "dtype", "device")}
        self.frames, start = {}, 0
        for run in runs:
            first = run.start + work.needs.offset
            self.frames[start] = RowsFrame(q=len(run), first=first, **shared)
            start += len(run)
        self.of_rows: dict[str, dict[int, State]] = {}
        self.of_map: dict[str, State] = {}
        for name, statistic in statistics.items():
            if place_of(statistic) == "rows":
                self.of_rows[name] = {at: statistic.init(part) for at, part in self.frames.items()}
            else:
                self.of_map[name] = statistic.init(frame)

    def update(self, names: list[str], piece: Piece, tile: MapTile) -> None:
        """Update the statistics with a tile; its row indices are those of the run or of the whole map."""
        tile = _narrowed(tile, self.frame.dtype)
        cols = range(tile.cols.start + piece.keys.start, tile.cols.stop + piece.keys.start)
        first = piece.queries.start
        rows = range(tile.rows.start + first, tile.rows.stop + first)
        own = replace(tile, frame=self.frames[piece.rows.start], cols=cols)
        whole = replace(tile, frame=self.frame, rows=rows, cols=cols)
        for name in names:
            if name in self.of_rows:
                self.statistics[name].update(self.of_rows[name][piece.rows.start], own)
            else:
                self.statistics[name].update(self.of_map[name], whole)

    def finished(self, name: str) -> Any:
        """The result of a statistic; all ranks call this in the same order."""
        statistic = self.statistics[name]
        place = place_of(statistic)
        if place == "rows":
            parts = [statistic.finish(self.of_rows[name][at], part) for at, part in self.frames.items()]
            return _joined(parts)
        state, frame = self._merged(name, statistic, place), self.frame
        if place == "columns":
            frame = replace(frame, k=self.work.needs.keys.sizes[self.work.ranks.rank])
        found = statistic.finish(state, frame)
        if isinstance(statistic, NormWeighted):
            queries, keys = self.work.needs.queries, self.work.needs.keys
            me, device = self.work.ranks.rank, found.rows.device
            rows = found.rows.index_select(2, queries.positions(me, device))
            found = type(found)(rows, found.columns.index_select(2, keys.positions(me, device)))
        return found

    def _merged(self, name: str, statistic: Statistic, place: str) -> State:
        """The states of all ranks, merged in their order; for a column statistic, only this rank's keys."""
        ranks, state = self.work.ranks, self.of_map[name]
        shapes = {key: [str(x.dtype).removeprefix("torch."), *x.shape] for key, x in state.items()}
        notes = agree(ranks, f"{name} of observe", {"own": shapes})
        keys = self.work.needs.keys
        axis = KEYS_AXIS.get(type(statistic).__name__, -1)

        def part(x: Tensor, rank: int) -> Tensor:
            return x.index_select(axis, keys.positions(rank, x.device)) if place == "columns" else x

        others = [rank for rank in range(ranks.size) if rank != ranks.rank]
        found: list[State] = [{} for _ in range(ranks.size)]
        found[ranks.rank] = {key: part(x, ranks.rank) for key, x in state.items()}
        for key in sorted({key for note in notes for key in note}):
            sends = {rank: part(state[key], rank) for rank in others if key in state}
            for rank in (r for r in others if key in notes[r]):
                dtype, *shape = notes[rank][key]
                if place == "columns":
                    shape[axis] = keys.sizes[ranks.rank]
                found[rank][key] = torch.empty(shape, dtype=getattr(torch, dtype), device=self.frame.device)
            ranks.swap(sends, {rank: found[rank][key] for rank in others if key in found[rank]}).wait()
        return reduce(statistic.merge, found)


def _narrowed(tile: MapTile, dtype: torch.dtype) -> MapTile:
    """A tile with float64 scores, converted to the usual dtype of statistics."""
    if tile.weights.dtype == dtype:
        return tile
    logs = tile.log_weights_of
    return replace(
        tile,
        weights=tile.weights.to(dtype),
        log_weights_of=None if logs is None else lambda: logs().to(dtype),
        lse=None if tile.lse is None else tile.lse.to(dtype),
    )


def _joined(parts: list[Any]) -> Any:
    """Concatenate row statistics of several runs of queries."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Tensor):
        return torch.cat(parts, 2)
    return type(parts[0])(*(_joined(list(fields)) for fields in zip(*parts, strict=True)))
