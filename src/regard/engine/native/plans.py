"""Plans for observed calls with equal shapes, mask and statistics: everything but the numbers, computed once.

A plan allocates a call's results, launches the kernel, and finishes the statistics. It runs the same jobs as
`attend` and `fold`, so the results are bitwise equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from regard.engine.finite import LARGEST, finite
from regard.engine.library import Library, load
from regard.engine.native.attending import empty, give
from regard.engine.native.folding import FEW, computed, passes
from regard.engine.native.grid import JobTable
from regard.engine.native.launch import Launch
from regard.engine.native.pairs import count
from regard.engine.native.sums import KINDS, Share
from regard.engine.native.tasks import Batch, Task
from regard.engine.problem import Problem
from regard.engine.riders import Streamed
from regard.engine.riding import RowRide, ride_of_rows
from regard.engine.sdpa_backend.calls import Call, calls_of, in_one_call
from regard.engine.sdpa_backend.kernels import with_lse
from regard.engine.stopping import check
from regard.stats import Frame, State, Statistic, blocks_of, folds_of
from regard.stats.folds import (
    ColumnFold,
    ColumnMaxFold,
    DiagonalFold,
    DistanceFold,
    EntropyFold,
    Fold,
    MaxScoreFold,
    MixFold,
    PairFold,
    TopKeysFold,
)

__all__ = ["MapPlan", "RowPlan", "map_plan", "row_plan"]

Seen = tuple[Problem, Tensor, Tensor, dict[str, Any]]
# By fold: fields of a job that point to the fold's own tensors (DIRECT, with the fold's attribute), or to a
# buffer whose sums are added to the fold's tensor after the launch (COLLECTED).
DIRECT = {
    EntropyFold: {"entropy": "into"},
    DistanceFold: {"distance": "into"},
    MaxScoreFold: {"peak": "value", "peak_key": "key"},
    TopKeysFold: {"top": "weight", "top_key": "key"},
    MixFold: {"sums": "into"},
}
COLLECTED = {ColumnFold: "column_sums", ColumnMaxFold: "column_tops", DiagonalFold: "diagonals"}
# By field of a job: the field of `Streamed` that it fills.
ROWS = {
    "out": "out",
    "out_lse": "lse",
    "entropy": "entropy",
    "distance": "distance",
    "peak": "max_score",
    "peak_key": "argmax",
    "sums": "columns",
}
# Those that it adds to, or raises.
ADDED = ("peak", "peak_key", "sums")
# The limit of `are_large`.
HIGH = LARGEST[torch.float32]


@dataclass(frozen=True, eq=False)
class _Alike:
    """What all calls of a plan share: the problem without its numbers, and the launch."""

    like: Problem
    library: Library
    launch: Launch

    def problem(self, q: Tensor, k: Tensor, v: Tensor) -> Problem:
        """The problem of a call."""
        like = self.like
        return Problem(q, k, v, like.mask, like.scoring, None, 0.0, like.offset, like.rank)


@dataclass(frozen=True, eq=False)
class RowPlan(_Alike):
    """One pass of the native kernels, which computes the output and the statistics."""

    ride: RowRide
    names: tuple[str, ...]
    at: tuple[str, ...]
    """The fields of the result that the launch fills."""
    like_these: tuple[Tensor, ...]
    """Tensors of the layout of these fields."""

    def observe(self, q: Tensor, k: Tensor, v: Tensor) -> Seen | None:
        """The results of `attend` and of the statistics computed in the same pass."""
        check()
        made = [torch.empty_like(x) for x in self.like_these]
        self.launch.run(self.library, (q, k, v, *made))
        filled: dict[str, Any] = dict(zip(self.at, made, strict=True))
        result = Streamed(**filled)
        found = self.ride.read(result)
        return self.problem(q, k, v), result.out, result.lse, {name: found[name] for name in self.names}


def row_plan(problem: Problem, frame: Frame, statistics: Mapping[str, Statistic]) -> RowPlan | None:
    """A plan for statistics that the forward pass computes; None if it cannot compute all of them."""
    library = load()
    ride = ride_of_rows(problem, frame, statistics, differentiable=False)
    if isinstance(library, str) or ride.names != statistics.keys() or not finite(*ride.columns.values()):
        return None
    result, batch = empty(problem, ride.riders), Batch(library)
    sums = give(problem, ride.riders, result, batch)
    only = _one_table(batch)
    if only is None:
        return None
    table, task = only
    filled = {name: x for name, at in ROWS.items() if (x := getattr(result, at)) is not None}
    # Every row of every head gets an output; to the others the kernels add.
    launch = Launch(table, _operands(problem) | {"v": problem.v} | filled, ADDED, (task.keep[1], sums))
    at = tuple(ROWS[name] for name in filled)
    return RowPlan(_bare(problem), library, launch, ride, tuple(statistics), at, tuple(filled.values()))


@dataclass(frozen=True)
class _Place:
    """The place of a fold's tensor: a statistic and a name in its state."""

    statistic: str
    name: str

    def of(self, states: Mapping[str, State]) -> Tensor:
        return states[self.statistic][self.name]


@dataclass(frozen=True, eq=False)
class _Collected:
    """A buffer for sums, with a margin, whose contents are added to a state's tensor after the launch."""

    room: Tensor
    own: tuple[Any, ...]
    place: _Place
    home: tuple[Any, ...]
    maximum: bool
    # Whether it is added to all of a tensor of zeros.
    is_all: bool

    def bring_home(self, room: Tensor, states: Mapping[str, State]) -> None:
        own = room.as_strided(*self.own)
        if self.is_all:
            states[self.place.statistic][self.place.name] = own.clone(memory_format=torch.contiguous_format)
        else:
            Share(own, self.place.of(states).as_strided(*self.home), self.maximum).bring_home()


@dataclass(frozen=True, eq=False)
class MapPlan(_Alike):
    """PyTorch's kernel for the output, then one native pass over the map for all statistics."""

    call: Call
    statistics: Mapping[str, Statistic]
    fresh: Mapping[str, State]
    copied: tuple[tuple[str, str, Tensor], ...]
    """Tensors of fresh states that a call needs a copy of, by statistic and name."""
    direct: tuple[_Place, ...]
    collected: tuple[_Collected, ...]
    like_these: tuple[Tensor, ...]
    """Tensors of the layout of those that the launch fills, at first `direct` and then the rooms."""

    def observe(self, q: Tensor, k: Tensor, v: Tensor) -> Seen | None:
        """The results of `fold`; None if scores are too large for this path."""
        check()
        problem = self.problem(q, k, v)
        out, lse = with_lse(q, k, v, self.call.mask, self.call.causal, problem.scoring.scale)
        if not self.library.within(lse, HIGH):
            return None
        states = {name: state.copy() for name, state in self.fresh.items()}
        for statistic, name, like in self.copied:
            states[statistic][name] = like.clone()
        filled = [torch.empty_like(x) for x in self.like_these]
        self.launch.run(self.library, (q, k, lse, *filled))
        for place, x in zip(self.direct, filled, strict=False):
            states[place.statistic][place.name] = x
        rooms = filled[len(self.direct) :]
        for each, room in zip(self.collected, rooms, strict=True):
            each.bring_home(room, states)
        frame = Frame(problem.batch, problem.heads, problem.q_len, problem.k_len, problem.mask, v)
        found = {name: each.finish(states[name], frame) for name, each in self.statistics.items()}
        return problem, out, lse, found


def map_plan(problem: Problem, frame: Frame, statistics: Mapping[str, Statistic]) -> MapPlan | None:
    """A plan for statistics that one native pass computes; None if there is none.

    Every row must see a key.
    """
    library = load()
    if isinstance(library, str) or problem.q_len < FEW or not in_one_call(problem) or not statistics:
        return None
    [[call]] = calls_of(problem)
    states = {name: statistic.init(frame) for name, statistic in statistics.items()}
    folds = _folds(frame, statistics, states)
    if call.dead is not None or folds is None:
        return None
    count(problem, [each for each in folds if isinstance(each, PairFold)])
    found = passes([each for each in folds if not isinstance(each, PairFold)])
    if len(found) != 1 or any(len(members) > 1 for members in found[0][1].values()):
        return None
    skip, group = found[0]
    sums = [KINDS[kind](members, frame) for kind, members in group.items()]
    lse, batch = torch.zeros(problem.q.shape[:3], dtype=torch.float32, device="cpu"), Batch(library)
    computed(problem, lse, sums, skip, batch)
    only, places = _one_table(batch), _places(states)
    if only is None or not all(_points(only[0], each) for each in chain(*group.values())):
        return None
    table, task = only
    if any(_whole(share.home).data_ptr() not in places for share in task.shares):
        return None
    direct = {field: x for [fold] in group.values() for field, x in _direct(fold).items()}
    rooms = [kind for kind in group if kind in COLLECTED]
    collected = [_collected(share, places, states) for share in task.shares]
    given = {COLLECTED[kind]: _whole(share.own) for kind, share in zip(rooms, task.shares, strict=True)}
    filled = direct | given
    launch = Launch(table, _operands(problem) | {"lse": lse} | filled, filled, (task.keep[1], sums))
    at = tuple(places[x.data_ptr()] for x in direct.values())
    replaced = {(x.statistic, x.name) for x in (*at, *[each.place for each in collected if each.is_all])}
    # Tensors that are expanded are only read.
    copied = tuple(
        (statistic, name, x)
        for statistic, state in states.items()
        for name, x in state.items()
        if (statistic, name) not in replaced and 0 not in x.stride()
    )
    bare, ends = _bare(problem), (at, tuple(collected), tuple(filled.values()))
    return MapPlan(bare, library, launch, call, statistics, states, copied, *ends)


def _folds(
    frame: Frame, statistics: Mapping[str, Statistic], states: Mapping[str, State]
) -> list[Fold] | None:
    """The folds of all statistics; None if a statistic has folds that no plan supports."""
    known = {*DIRECT, *COLLECTED, PairFold}
    folds: list[Fold] = []
    for name, statistic in statistics.items():
        own = None if blocks_of(statistic, frame) else folds_of(statistic, states[name], frame)
        if own is None or any(type(each) not in known for each in own):
            return None
        folds += own
    return folds


def _one_table(batch: Batch) -> tuple[JobTable, Task] | None:
    """The job table and task of a batch with a single task for all heads; None for other batches."""
    task = batch.tasks[0] if len(batch.tasks) == 1 else None
    if task is None or not isinstance(task.job, JobTable) or task.job.grid.visible.seeing is not None:
        return None
    return task.job, task


def _bare(problem: Problem) -> Problem:
    """The problem with empty q, k and v, so that a plan keeps no inputs in memory."""
    none = torch.empty(0, 0, 0, 0, dtype=torch.float32, device="cpu")
    return replace(problem, q=none, k=none, v=none)


def _operands(problem: Problem) -> dict[str, Tensor]:
    return {"q": problem.q, "k": problem.k}


def _direct(fold: Fold) -> dict[str, Tensor]:
    """A fold's own tensors, by the field of a job that points to them."""
    return {field: getattr(fold, at) for field, at in DIRECT.get(type(fold), {}).items()}


def _points(job: JobTable, fold: Fold) -> bool:
    """Whether a job writes directly to the fold's tensors, and not to a buffer."""
    return all(job.fields[field].terms[0] == x.data_ptr() for field, x in _direct(fold).items())


def _places(states: Mapping[str, State]) -> dict[int, _Place]:
    """The place of each tensor of the states, by its address."""
    return {x.data_ptr(): _Place(name, at) for name, state in states.items() for at, x in state.items()}


def _collected(share: Share, places: Mapping[int, _Place], states: Mapping[str, State]) -> _Collected:
    own, home = share.own, share.home
    place = places[_whole(home).data_ptr()]
    total = place.of(states)
    alike = (home.shape, home.stride(), home.data_ptr()) == (total.shape, total.stride(), total.data_ptr())
    return _Collected(
        torch.zeros_like(_whole(own)),
        (own.shape, own.stride(), own.storage_offset()),
        place,
        (home.shape, home.stride(), home.storage_offset()),
        share.maximum,
        alike and total.is_contiguous() and not bool(total.any()),
    )


def _whole(x: Tensor) -> Tensor:
    """A flat view of the whole storage of a tensor."""
    return x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
