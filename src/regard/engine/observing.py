"""The implementation of `observe`: choose how each statistic is computed, then compute them all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from regard.engine.autograd import attend
from regard.engine.backend import Backend
from regard.engine.dispatch import choose, named, reader_of, reference
from regard.engine.problem import Problem
from regard.engine.riders import Streamed
from regard.engine.riding import NO_RIDE, Ride, may_ride
from regard.engine.second_pass import frame_of, read_map
from regard.errors import BackendError, StatisticError
from regard.stats import Frame, Statistic

__all__ = ["observed"]

Found = tuple[Streamed, dict[str, Any]]


def observed(problem: Problem, statistics: Mapping[str, Statistic], name: str, differentiable: bool) -> Found:
    """Run the forward pass and compute all statistics, on the backend called `name`.

    If every statistic can ride in a forward pass there is only that pass. Otherwise the fastest forward that
    returns its log-sum-exp runs first, and one second pass computes the rest.
    """
    if differentiable:
        return _observed_with_gradients(problem, statistics, name)
    reader = reader_of(problem, name).backend
    call = partial(_observed, problem, statistics, name, reader)
    return reader.replay(problem, statistics, ("observe", name), call)


def _observed(problem: Problem, statistics: Mapping[str, Statistic], name: str, reader: Backend) -> Found:
    frame = _checked_frame(problem, statistics)
    backend, ride = _planned(problem, frame, statistics, name, reader)
    result = attend(problem, backend, ride.riders)
    found = ride.read(result)
    rest = ride.rest(statistics, found, result)
    if rest:
        with torch.no_grad():
            more = read_map(reader, problem, result.lse, rest, reader.name == name, result)
        found = ride.join(found, more, result)
    return result, {each: found[each] for each in statistics}


def _observed_with_gradients(problem: Problem, statistics: Mapping[str, Statistic], name: str) -> Found:
    """Compute every statistic in one differentiable forward pass; all must be able to ride."""
    frame = _checked_frame(problem, statistics)
    ride = reference().rides(problem, frame, statistics, differentiable=True) or NO_RIDE
    _check_differentiable(problem, statistics, ride, name)
    backend = _chosen(problem, name)
    result = attend(problem, reference() if statistics else backend, ride.riders)
    found = ride.read(result)
    return result, {each: found[each] for each in statistics}


def _checked_frame(problem: Problem, statistics: Mapping[str, Statistic]) -> Frame:
    """The frame of a problem's map, after checking that every statistic can be computed over it."""
    frame = frame_of(problem)
    for statistic in statistics.values():
        statistic.check(frame)
    return frame


def _planned(
    problem: Problem, frame: Frame, statistics: Mapping[str, Statistic], name: str, reader: Backend
) -> tuple[Backend, Ride]:
    """The backend that runs the forward pass, and the statistics that ride in it."""
    ride = reader.rides(problem, frame, statistics) if reader.leads else None
    if ride is not None:
        return reader, ride
    chosen = _chosen(problem, name)
    ride = chosen.rides(problem, frame, statistics)
    if ride is not None:
        return chosen, ride
    if name == "auto" and statistics and all(map(may_ride, statistics.values())):
        # One pass with every statistic is cheaper than the fastest forward and a second pass.
        ride = reader.rides(problem, frame, statistics)
        if ride is not None and ride.names == statistics.keys():
            return reader, ride
    return chosen, NO_RIDE


def _chosen(problem: Problem, name: str) -> Backend:
    """The backend of a forward pass that must return its log-sum-exp."""
    chosen = choose(problem, name).backend
    hidden = chosen.hides_lse(problem)
    if hidden is None:
        return chosen
    if name != "auto":
        use = f"Use backend={reference().name!r}."
        raise BackendError(f"backend={name!r} cannot observe this call: {hidden}. {use}")
    return reference()


def _check_differentiable(
    problem: Problem, statistics: Mapping[str, Statistic], ride: Ride, name: str
) -> None:
    why = None if name == "auto" else named(problem, name).without_riders
    if why is not None and statistics:
        use = f"Use backend={reference().name!r} with differentiable=True."
        raise BackendError(f"backend={name!r} cannot give statistics a gradient: {why}. {use}")
    for each, statistic in statistics.items():
        if each not in ride.names or not ride.has_gradient(statistic):
            raise StatisticError(
                f"differentiable=True cannot give {each} a gradient; Entropy, SinkMass, SegmentMass and "
                "ValueWeighted have one. Observe the others in a call of their own."
            )
