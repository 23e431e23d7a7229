"""Replays repeated calls.

`observe` runs much Python before it reaches the device: it reads the mask, chooses kernels and tile shapes.
For short texts this takes several times as long as the device. Calls with the same key (shapes, mask,
statistics) run the same steps, so the second and the third call with a key are recorded. If both recordings
agree, later calls are replayed from it. REGARD_REPLAY=0 turns this off (`launch/switch.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, local
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from regard.engine.problem import Problem
from regard.engine.triton.launch.precompile import precompile_and_run
from regard.engine.triton.launch.start import hooks
from regard.engine.triton.launch.switch import replay_is_on
from regard.engine.triton.replay.call_key import call_key
from regard.engine.triton.replay.recorder import Recorder
from regard.engine.triton.replay.tape import Tape
from regard.engine.triton.replay.templates import same_template
from regard.engine.triton.support import MAX_DECODE_QUERIES
from regard.memo import Recent

__all__ = ["forget", "replay_or_call", "replay_or_record"]

Result = TypeVar("Result")

# The most recordings kept, and the most hashes of keys seen once. Many keys never come again and a recording
# keeps its mask alive, so a key seen once leaves only its hash. The oldest are dropped first.
MOST, MOST_HASHES = 64, 1024


def replay_or_call(
    problem: Problem, more: Sequence[Tensor | None], asked: Hashable, call: Callable[[], Result]
) -> Result:
    """Return `call()`, replayed if a call with the same key was recorded.

    `call` may depend on `problem`, on the tensors `more` and on `asked` only, and must return new tensors.
    """
    if _inside.a_call or torch.compiler.is_compiling() or not _is_determined_by_key(problem):
        return call()
    found = call_key(problem, more, asked)
    if found is None or not _are_plain_tensors(found[1]):
        return call()
    _inside.a_call = True
    try:
        # Every decode step has a new length, so its recording would never be replayed.
        if not replay_is_on() or problem.q_len <= MAX_DECODE_QUERIES:
            return precompile_and_run(call)
        return replay_or_record(*found, partial(precompile_and_run, call))
    finally:
        _inside.a_call = False


class _Inside(local):
    """Whether this thread is inside `replay_or_call`: nested calls belong to the same recording."""

    a_call = False


_inside = _Inside()


def replay_or_record(key: Hashable, inputs: Sequence[Tensor], call: Callable[[], Result]) -> Result:
    """Return `call()`, which depends on nothing but the key and the inputs."""
    # If a tensor is passed twice, a recording can't tell which of the two a step reads: that is part of the
    # key.
    identities = [id(x) for x in inputs]
    key = (key, *(identities.index(identity) for identity in identities))
    history = _history_of(key)
    if history is None:
        return call()
    if history.tape is not None:
        return history.tape.play(inputs)
    # Another thread is recording this key: run this call unrecorded.
    if not history.lock.acquire(blocking=False):
        return call()
    try:
        return history.record(inputs, call)
    finally:
        history.lock.release()


def _history_of(key: Hashable) -> _History | None:
    """The recordings of a key; None if this is its first call."""
    with _lock:
        history = _histories.get(key)
        if history is None and hash(key) in _hashes_seen:
            history = _histories[key] = _History()
        elif history is None:
            _hashes_seen[hash(key)] = None
        return history


def forget() -> None:
    """Drop all recordings."""
    with _lock:
        _histories.clear()
        _hashes_seen.clear()


@dataclass
class _History:
    """The recordings of one key; `lock` is held while a call is recorded."""

    tape: Tape | None = None
    recording: Recorder | None = None
    unreplayable: bool = False
    lock: Any = field(default_factory=Lock)

    def record(self, inputs: Sequence[Tensor], call: Callable[[], Any]) -> Any:
        """Run a call, and record it unless recording this key has failed before."""
        if self.unreplayable:
            return call()
        before, recording = self.recording, Recorder(inputs)
        with recording:
            hooks.recorder = recording
            try:
                result = call()
            finally:
                hooks.recorder = None
        recording.result = recording.template(result)
        same_steps = before is None or same_template(before.steps, recording.steps)
        if not recording.replayable or not same_steps:
            self.unreplayable, self.recording = True, None
        elif before is None or not same_template(before.result, recording.result):
            self.recording = recording
        else:
            self.tape, self.recording = Tape(len(inputs), recording), None
        return result


# Guards the two tables: lookup and insertion must be atomic.
_lock = Lock()
_histories: Recent[_History] = Recent(MOST)
_hashes_seen: Recent[None] = Recent(MOST_HASHES)


def _is_determined_by_key(problem: Problem) -> bool:
    """Whether the steps of a call follow from its key: no Python callback, no bias, no random numbers."""
    scoring = problem.scoring
    return scoring.bias is None and scoring.score_mod is None and scoring.score.is_dot and not problem.dropout


def _are_plain_tensors(inputs: Sequence[Tensor]) -> bool:
    """Whether a recording may replay with other tensors in place of these: no subclasses, no gradients."""
    differentiated = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return not differentiated and all(type(x) in (Tensor, Parameter) for x in inputs)
