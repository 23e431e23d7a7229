"""KL from a map to a student's scores, with gradients for the student and no row stored whole."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.engine.large_rows import RowNorms
from regard.engine.problem import Problem
from regard.engine.second_pass import frame_of, state_of, student_gradients
from regard.engine.tiles import map_tiles
from regard.errors import MapError
from regard.stats import KL, Student

__all__ = ["distilled"]


def distilled(
    problem: Problem, lse: Tensor, norms: RowNorms | None, student: Student | Tensor
) -> Float[Tensor, "batch q"]:
    """The KL of each query; gradients flow to the student's tensors, not to the map."""
    statistic = KL(student)
    statistic.check(frame_of(problem))
    return _Distill.apply(problem, lse, norms, statistic, *statistic.taught.parameters())


class _Distill(torch.autograd.Function):
    """The forward pass computes KL and the student's normaliser, the backward pass gradients tile by tile."""

    @staticmethod
    def forward(
        ctx: Any, problem: Problem, lse: Tensor, norms: RowNorms | None, statistic: KL, *tensors: Tensor
    ) -> Tensor:
        frame, state = frame_of(problem), state_of(problem, lse, statistic, norms)
        ctx.read = (problem, lse, norms, statistic)
        ctx.save_for_backward(*tensors, state["mass"], KL.log_norm(state))
        return statistic.finish(state, frame)

    @staticmethod
    def backward(ctx: Any, *upstreams: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise MapError("kl() has no second derivative; call backward without create_graph=True.")
        (upstream,) = upstreams
        problem, lse, norms, statistic = ctx.read
        *tensors, mass, log_norm = ctx.saved_tensors
        wanted = [at for at, needed in enumerate(ctx.needs_input_grad[4:]) if needed]
        rows = (mass, log_norm, upstream)
        done = student_gradients(problem, lse, statistic.taught, wanted, rows, norms)
        if done is not None:
            return None, None, None, None, *done
        found: list[Tensor | None] = [None] * len(tensors)
        for at in wanted:
            found[at] = torch.zeros_like(tensors[at])
        frame, alive = frame_of(problem), mass > 0
        for tile in map_tiles(problem, lse, frame, norms=norms, all_heads=True):
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_(at in wanted) for at, x in enumerate(tensors)]
                scores = statistic.taught.on(tuple(leaves)).tile(tile.batch, tile.rows, tile.cols)
                scores = scores.expand(len(tile.batch), -1, -1)
            here = (slice(tile.batch.start, tile.batch.stop), slice(tile.rows.start, tile.rows.stop))
            taught = (scores.detach().to(mass) - log_norm[here][..., None]).exp()
            if tile.allowed is not None:
                taught = taught.masked_fill(~tile.allowed.any(1), 0.0)
            p = tile.weights.sum(1) / mass[here][..., None]
            pull = torch.where(alive[here], upstream[here], 0.0)[..., None]
            # Rows that see nothing divide 0 by 0; set their gradient to 0.
            down = torch.where(alive[here][..., None], pull * (taught - p), 0.0)
            parts = torch.autograd.grad(scores, [leaves[at] for at in wanted], down.to(scores))
            for at, part in zip(wanted, parts, strict=True):
                found[at].add_(part)  # type: ignore[union-attr]
        return None, None, None, None, *found
