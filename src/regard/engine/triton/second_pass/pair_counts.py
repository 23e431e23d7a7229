"""Counts of allowed pairs, from the intervals of a mask or by a sweep of an empty map."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from regard.engine.problem import Problem
from regard.engine.triton.operands import Operands
from regard.engine.triton.schedule.spans import Spans
from regard.engine.triton.second_pass.sweep import SweepRequest, sweep

__all__ = ["pair_counts"]


def pair_counts(problem: Problem, *, diagonal: bool, skip: int = 0) -> Int64[Tensor, "rows heads n"]:
    """The number of allowed pairs, by key or by diagonal; batch and heads are 1 if all share the mask."""
    p = problem
    operands = Operands(replace(p, v=p.k))
    table = operands.plan(operands.config("columns").blocks)
    if table.spans is None:
        return _count_by_sweep(problem, diagonal, skip)
    spans = table.spans
    return table.once(("pair_counts", diagonal, skip), lambda: _count_by_spans(p, spans, diagonal, skip))


def _count_by_spans(problem: Problem, spans: Spans, diagonal: bool, skip: int) -> Tensor:
    p = problem
    low, high = (x.long() for x in spans)
    low = low.clamp(min=skip)
    some = (low < high).long()
    low, high = (x.where(some > 0, 0) for x in (low, high))
    length = p.k_len
    if diagonal:
        length = max(p.q_len, 1) + p.k_len - 1
        to_left = p.q_len - 1 - torch.arange(p.q_len, device=low.device)
        low, high = low + to_left, high + to_left
    # Add one where an interval begins and subtract one where it ends. Integers, so the order of atomic
    # additions does not matter.
    change = torch.zeros(*low.shape[:2], length + 1, dtype=torch.int64, device=low.device)
    change.scatter_add_(2, low, some).scatter_add_(2, high, -some)
    return change.cumsum(2)[..., :length]


def _count_by_sweep(problem: Problem, diagonal: bool, skip: int) -> Any:
    """Count pairs by sweeping a map of zeros, where every allowed pair has weight exp(0 - 0) = 1."""
    mask = problem.mask
    rows, heads = (1, 1) if mask is None else (mask.batch or 1, mask.heads or 1)
    q = problem.q.new_zeros(rows, heads, problem.q_len, 16)
    k = problem.k.new_zeros(rows, heads, problem.k_len, 16)
    plain = replace(problem.scoring, bias=None, softcap=None, score_mod=None, scale=1.0)
    zeros = replace(problem, q=q, k=k, v=k, sink=None, scoring=plain)
    lse = torch.zeros(q.shape[:3], dtype=torch.float32, device=q.device)
    found = sweep(zeros, lse, SweepRequest(columns=not diagonal, diagonals=diagonal, skip=skip))
    sums = found.diagonals if diagonal else found.columns
    return None if sums is None else sums.round().long()
