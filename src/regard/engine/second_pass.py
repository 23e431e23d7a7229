"""The second pass: computes the statistics of a map whose log-sum-exp is known.

One pass over the map, queries times keys only, computes all requested statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.engine.backend import Backend
from regard.engine.dispatch import reader_of
from regard.engine.large_rows import RowNorms, are_large, row_norms
from regard.engine.problem import Problem
from regard.engine.riders import Streamed
from regard.engine.tiles import map_tiles
from regard.stats import Block, Frame, State, Statistic, Student, blocks_of

__all__ = ["frame_of", "read_map", "state_of", "student_gradients", "summarise"]


def frame_of(problem: Problem) -> Frame:
    """The frame of a problem's map."""
    return Frame(
        batch=problem.batch,
        heads=problem.heads,
        q=problem.q_len,
        k=problem.k_len,
        mask=problem.mask,
        values=problem.v,
        dtype=problem.accumulate,
        device=problem.q.device,
    )


def summarise(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    statistics: Mapping[str, Statistic],
    backend: str = "auto",
    streamed: Streamed | None = None,
    norms: RowNorms | None = None,
) -> dict[str, Any]:
    """Every statistic of a map; `norms` are the log-sum-exps of its rows of large scores, if known."""
    reader = reader_of(problem, backend).backend
    return read_map(reader, problem, lse, statistics, reader.name == backend, streamed, norms)


def state_of(
    problem: Problem, lse: Float[Tensor, "batch heads q"], statistic: Statistic, norms: RowNorms | None = None
) -> State:
    """The state of one statistic after all tiles of a map."""
    reader = reader_of(problem, "auto").backend
    return _states(reader, problem, lse, {"only": statistic}, False, None, norms)["only"]


def student_gradients(
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    student: Student,
    wanted: Sequence[int],
    rows: tuple[Float[Tensor, "batch q"], Float[Tensor, "batch q"], Float[Tensor, "batch q"]],
    norms: RowNorms | None = None,
) -> list[Tensor | None] | None:
    """`Backend.student_gradients` of the backend that reads the map; None if tiles must be read."""
    reader = reader_of(problem, "auto").backend
    if 0 in (problem.batch, problem.q_len, problem.k_len) or (norms and not reader.ignores_large_scores):
        return None
    return reader.student_gradients(problem, lse, student, wanted, rows)


def read_map(
    reader: Backend,
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    statistics: Mapping[str, Statistic],
    named: bool = False,
    streamed: Streamed | None = None,
    norms: RowNorms | None = None,
) -> dict[str, Any]:
    """The same on one backend: its kernels fold what they can, the other statistics are updated from tiles.

    Either way this is one pass over the map (two if some statistics need all heads at once). The kernels use
    results of the forward pass if there are any. Maps of large scores are computed in float64 tiles.
    """
    frame = frame_of(problem)
    states = _states(reader, problem, lse, statistics, named, streamed, norms)
    return {name: statistic.finish(states[name], frame) for name, statistic in statistics.items()}


def _states(
    reader: Backend,
    problem: Problem,
    lse: Float[Tensor, "batch heads q"],
    statistics: Mapping[str, Statistic],
    named: bool,
    streamed: Streamed | None,
    norms: RowNorms | None,
) -> dict[str, State]:
    """The state of every statistic after all tiles."""
    frame = frame_of(problem)
    if 0 in (problem.batch, problem.q_len, problem.k_len):
        # An empty map adds nothing to any state.
        return {name: statistic.init(frame) for name, statistic in statistics.items()}
    if norms is None and not reader.ignores_large_scores and are_large(lse):
        norms = row_norms(problem, lse)
    blocks = {name: found for name, s in statistics.items() if (found := blocks_of(s, frame)) is not None}
    of_blocks = {
        name: statistics[name].join_blocks(
            [_block_state(reader, problem, lse, each, named, norms) for each in found], frame
        )
        for name, found in blocks.items()
    }
    whole = {name: s for name, s in statistics.items() if name not in blocks}
    if not whole:
        return of_blocks
    if norms is None or reader.ignores_large_scores:
        states, folded = reader.fold(problem, lse, frame, whole, streamed, named)
    else:
        states, folded = {name: statistic.init(frame) for name, statistic in whole.items()}, set()
    shown = {name: s for name, s in whole.items() if name not in folded}
    _show_tiles(problem, lse, frame, shown, states, norms)
    return {**states, **of_blocks}


def _block_state(
    reader: Backend, problem: Problem, lse: Tensor, block: Block, named: bool, norms: RowNorms | None
) -> State:
    """The state of a block's statistic: a pass over the rows of the block alone."""
    rows = slice(block.rows.start, block.rows.stop)
    if norms is not None:
        norms = RowNorms(norms.high[:, :, rows], norms.low[:, :, rows])
    part = problem.block(block.rows)
    return _states(reader, part, lse[:, :, rows], {"block": block.statistic}, named, None, norms)["block"]


def _show_tiles(
    problem: Problem,
    lse: Tensor,
    frame: Frame,
    statistics: Mapping[str, Statistic],
    states: Mapping[str, State],
    norms: RowNorms | None,
) -> None:
    """Update states with every tile of the map."""
    for all_heads in (False, True):
        group = {name: s for name, s in statistics.items() if s.needs_all_heads is all_heads}
        if not group:
            continue
        keep = any(s.needs_log_weights or s.needs_scores for s in group.values())
        names = sorted(group, key=lambda name: group[name].spoils_log_weights - group[name].makes_block_sums)
        for tile in map_tiles(problem, lse, frame, norms=norms, all_heads=all_heads, keep=keep):
            for name in names:
                group[name].update(states[name], tile)
