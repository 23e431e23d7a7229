"""Repeated observations without options: replayed before anything is validated.

Two calls with equal shapes, strides, dtypes, mask and statistics pass the same checks and run the same steps.
So from the first replayed call on, all that is left to do is to look up the recording and to play it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.engine.inputs import Options, checked_mask, readable_problem_of
from regard.engine.problem import Problem
from regard.engine.riders import Streamed
from regard.engine.transformed import may_be_transformed
from regard.engine.triton.launch.start import hooks
from regard.engine.triton.launch.switch import replay_is_on
from regard.engine.triton.replay.calls import ALSO_FORGET, growing_tape_of, tape_of
from regard.engine.triton.replay.growth import Growth
from regard.engine.triton.replay.tape import Tape
from regard.engine.triton.support import MAX_DECODE_QUERIES
from regard.masks import Causal, Mask
from regard.memo import Recent, key_of

__all__ = ["Seen", "short_observed"]

Seen = tuple[Problem, Tensor, Tensor, dict[str, Any]]
AskedOf = Callable[[Problem], Hashable | None]
# The first call that may be replayed: one is made, and two are recorded.
FIRST_REPLAY = 4
MOST = 64


@dataclass(eq=False)
class _Call:
    """Calls with the same key: how many came, and the recording that replays them."""

    came: int = 0
    replay: _Replay | _StepReplay | None = None


_calls: Recent[_Call] = Recent(MOST)
ALSO_FORGET.append(_calls.clear)


def short_observed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None,
    scale: float | None,
    statistics: tuple[object, ...],
    asked_of: AskedOf,
) -> Seen | None:
    """The problem, output, log-sum-exp and statistics of a call, if a call like it was recorded; else None.

    `asked_of` returns what the backend adds to the key of a problem, or None if it doesn't run the problem.
    """
    key = _short_key(q, k, v, mask, scale, statistics)
    if key is None:
        return None
    if mask is not None:
        # Raises if a tensor of the mask was written to.
        mask.bind(q.shape[0], q.shape[1])
    given = (q, k, v, mask)
    if q.shape[2] <= MAX_DECODE_QUERIES:
        of_k, of_v = k.shape, v.shape
        replay = _replay(
            (key, of_k[:2], of_k[3], of_v[:2], of_v[3]), partial(_of_steps, *given, scale, asked_of)
        )
        seen = None if replay is None else replay.observe(*given)
        if seen is not None:
            return seen
    key = (key, k.shape, k.stride(), v.shape, v.stride())
    replay = _replay(key, partial(_of_calls, *given, scale, asked_of))
    return None if replay is None else replay.observe(*given)


def _replay(key: Hashable, find: Callable[[], _Replay | _StepReplay | None]) -> _Replay | _StepReplay | None:
    """The replay of calls with a key, which is found when there may be a recording; None if there is none."""
    call = _calls.get(key)
    if call is None:
        call = _calls[key] = _Call()
    if call.replay is None:
        call.came += 1
        # A recording may fail, or come later because another thread makes it: ask less and less often.
        if call.came >= FIRST_REPLAY and not call.came & (call.came - 1):
            call.replay = find()
    return call.replay


def _short_key(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, scale: float | None, statistics: tuple[object, ...]
) -> Hashable | None:
    """What the steps of a call depend on, except shapes and strides of its keys and values; None if the call
    must be run in the ordinary way."""
    if hooks.recorder is not None or hooks.precompiler is not None or not replay_is_on():
        return None
    if q.requires_grad or k.requires_grad or v.requires_grad:
        return None
    shape, device = q.shape, q.device
    if len(shape) != 4 or k.ndim != 4 or v.ndim != 4 or may_be_transformed():
        return None
    if torch.is_autocast_enabled(device.type) or (q.data_ptr() | k.data_ptr() | v.data_ptr()) & 15:
        return None
    asked = key_of((mask, scale, statistics))
    if asked is None:
        return None
    same = (q is k, q is v, k is v, device == k.device == v.device)
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    return (asked, shape, q.stride(), q.dtype, k.dtype, v.dtype, device, same, modes)


def _problem(others: dict[str, Any], q: Tensor, k: Tensor, v: Tensor) -> Problem:
    """A problem of these tensors, unchecked; `others` are its other fields."""
    made = object.__new__(Problem)
    made.__dict__.update(others, q=q, k=k, v=v)
    return made


def _of_calls(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, scale: float | None, asked_of: AskedOf
) -> _Replay | None:
    problem = readable_problem_of(q, k, v, Options(mask, scale))
    asked = asked_of(problem)
    tape = None if asked is None else tape_of(problem, asked)
    return None if tape is None or not _is_of(problem, q, k, v) else _Replay(tape, _others(problem))


def _of_steps(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, scale: float | None, asked_of: AskedOf
) -> _StepReplay | None:
    problem = readable_problem_of(q, k, v, Options(mask, scale))
    asked = asked_of(problem)
    found = None if asked is None else growing_tape_of(problem, asked)
    if found is None or not _is_of(problem, q, k, v):
        return None
    return _StepReplay(*found, _others(problem))


def _is_of(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether a problem holds the tensors of the call themselves."""
    return problem.q is q and problem.k is k and problem.v is v


def _others(problem: Problem) -> dict[str, Any]:
    """The fields of a problem except q, k and v."""
    return {each.name: getattr(problem, each.name) for each in fields(problem)[3:]}


@dataclass(frozen=True)
class _Replay:
    """A recording, and the fields of its problem except the tensors."""

    tape: Tape
    others: dict[str, Any]

    def observe(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Seen:
        result: Streamed
        result, found = self.tape.play((q, k, v))
        return _problem(self.others, q, k, v), result.out, result.lse, found


@dataclass(frozen=True)
class _StepReplay:
    """The same for decode steps with at least `least` keys."""

    tape: Tape
    growth: Growth
    least: int
    others: dict[str, Any]

    def observe(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Seen | None:
        """None if the step must be run in the ordinary way."""
        q_len, k_len = q.shape[2], k.shape[2]
        # Statistics may want some number of keys.
        if k_len < self.least or v.shape[2] != k_len:
            return None
        if q_len == 1 and type(mask) is Causal and mask.shift >= 0:
            mask = None
        mask = checked_mask(mask, q, k)
        if (mask is None) is not (self.others["mask"] is None):
            return None
        others = self.others | {"mask": mask, "offset": k_len - q_len}
        problem = _problem(others, q, k, v)
        lengths = self.growth.lengths(problem)
        if lengths is None:
            return None
        result: Streamed
        result, found = self.tape.play((q, k, v), lengths)
        return problem, result.out, result.lse, found
