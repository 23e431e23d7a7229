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
from regard.engine.triton.replay.call_key import call_key, growing_key
from regard.engine.triton.replay.growth import Growth, Lengths, growing_parts, grown
from regard.engine.triton.replay.recorder import Recorder
from regard.engine.triton.replay.tape import Tape
from regard.engine.triton.replay.templates import same_template
from regard.engine.triton.support import MAX_DECODE_QUERIES
from regard.memo import Recent

__all__ = ["forget", "growing_tape_of", "replay_or_call", "replay_or_record", "tape_of"]

Result = TypeVar("Result")

# The most recordings kept, and the most hashes of keys seen once. Many keys never come again and a recording
# keeps its mask alive, so a key seen once leaves only its hash. The oldest are dropped first.
MOST, MOST_HASHES = 64, 1024
# Called when all recordings are dropped, by modules that keep some of their own.
ALSO_FORGET: list[Callable[[], None]] = []


def replay_or_call(
    problem: Problem, more: Sequence[Tensor | None], asked: Hashable, call: Callable[[], Result]
) -> Result:
    """Return `call()`, replayed if a call with the same key was recorded.

    `call` may depend on `problem`, on the tensors `more` and on `asked` only, and must return new tensors.
    """
    if _inside.a_call or torch.compiler.is_compiling():
        return call()
    found = _recordable(problem, more, asked)
    if found is None:
        return call()
    _inside.a_call = True
    try:
        run = partial(precompile_and_run, call)
        if not replay_is_on():
            return run()
        growing = None if more else _growing(problem, asked)
        if growing is not None:
            return replay_or_record(growing.key, growing.inputs, run, growing)
        return replay_or_record(*found, run)
    finally:
        _inside.a_call = False


@dataclass(frozen=True)
class _Growing:
    """A decode step whose recording can be replayed for other lengths: its key, inputs and lengths."""

    key: Hashable
    inputs: Sequence[Tensor]
    growth: Growth
    lengths: Lengths
    k_len: int


def _growing(problem: Problem, asked: Hashable) -> _Growing | None:
    """A decode step as one of many whose keys grow; None if each length needs a recording of its own."""
    if problem.q_len > MAX_DECODE_QUERIES:
        return None
    from regard.engine.triton.decode.lengths import growth_of

    growth = growth_of(problem)
    lengths = None if growth is None else growth.lengths(problem)
    keyed = None if growth is None else growing_key(problem, (asked, growth))
    if growth is None or lengths is None or keyed is None:
        return None
    key = _with_identities(*keyed)
    with _lock:
        history = _histories.get(key)
    if history is not None and (history.unreplayable or problem.k_len < history.least):
        return None
    return _Growing(*keyed, growth, lengths, problem.k_len)


def tape_of(problem: Problem, asked: Hashable) -> Tape | None:
    """The recording of a call with these arguments that reads no tensors but q, k and v; None if there is
    none yet."""
    found = _recordable(problem, (), asked)
    if found is None or len(found[1]) != 3:
        return None
    history = _histories.get(_with_identities(*found))
    return None if history is None else history.tape


def growing_tape_of(problem: Problem, asked: Hashable) -> tuple[Tape, Growth, int] | None:
    """The same for decode steps whose keys grow; how they do, and the least number of keys."""
    if _recordable(problem, (), asked) is None:
        return None
    growing = _growing(problem, asked)
    if growing is None or len(growing.inputs) != 3:
        return None
    history = _histories.get(_with_identities(growing.key, growing.inputs))
    if history is None or history.tape is None:
        return None
    return history.tape, growing.growth, history.least


def _recordable(
    problem: Problem, more: Sequence[Tensor | None], asked: Hashable
) -> tuple[Hashable, list[Tensor]] | None:
    """The key of a call and its tensors; None if the call can't be recorded."""
    found = call_key(problem, more, asked) if _is_determined_by_key(problem) else None
    return None if found is None or not _are_plain_tensors(found[1]) else found


class _Inside(local):
    """Whether this thread is inside `replay_or_call`: nested calls belong to the same recording."""

    a_call = False


_inside = _Inside()


def replay_or_record(
    key: Hashable, inputs: Sequence[Tensor], call: Callable[[], Result], growing: _Growing | None = None
) -> Result:
    """Return `call()`, which depends on nothing but the key and the inputs, and on lengths that are
    `growing`."""
    history = _history_of(_with_identities(key, inputs))
    if history is None:
        return call()
    if history.tape is not None:
        return history.tape.play(inputs, growing.lengths if growing else None)
    # Another thread is recording this key: run this call unrecorded.
    if not history.lock.acquire(blocking=False):
        return call()
    try:
        return history.record(inputs, call, growing)
    finally:
        history.lock.release()


def _with_identities(key: Hashable, inputs: Sequence[Tensor]) -> Hashable:
    """A key that also says which inputs are the same tensor.

    If a tensor is passed twice, a recording can't tell which of the two a step reads.
    """
    identities = [id(x) for x in inputs]
    return (key, *(identities.index(identity) for identity in identities))


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
    for clear in ALSO_FORGET:
        clear()


@dataclass
class _History:
    """The recordings of one key; `lock` is held while a call is recorded.

    least: the number of keys from which on growing calls may be replayed: statistics may want that many.
    """

    tape: Tape | None = None
    recording: Recorder | None = None
    unreplayable: bool = False
    least: int = 0
    lock: Any = field(default_factory=Lock)

    def record(self, inputs: Sequence[Tensor], call: Callable[[], Any], growing: _Growing | None) -> Any:
        """Run a call, and record it unless recording this key has failed before."""
        if self.unreplayable:
            return call()
        before, recording = self.recording, Recorder(inputs)
        self.least = max(self.least, growing.k_len if growing else 0)
        with recording:
            hooks.recorder = recording
            try:
                result = call()
            finally:
                hooks.recorder = None
        recording.result = recording.template(result)
        parts = growing_parts(recording.steps, growing.growth) if growing else None
        expected = [recording.steps] if before is None else [recording.steps, before.steps]
        if growing and parts is not None:
            # What these recordings, the earlier perhaps of another length, would have replayed now.
            expected = [grown(steps, parts, growing.lengths) for steps in expected]
        same_steps = all(same_template(steps, recording.steps) for steps in expected)
        if not recording.replayable or not same_steps or (growing and parts is None):
            self.unreplayable, self.recording = True, None
        elif before is None or not same_template(before.result, recording.result):
            self.recording = recording
        else:
            self.tape, self.recording = Tape(len(inputs), recording, parts), None
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
