"""Translates transformers' mask functions into regard's masks.

Transformers composes a mask from small functions of (batch, head, query, key): causal, a window, chunks,
packed documents, padding, joined by `and_masks` and `or_masks`. These functions are closures, so a
composition can be inspected: a function made by `sliding_window_overlay` has that factory's code, and its
closure holds the window. Recognised functions become masks that know their empty tiles; others stay
functions, as `Where`.

If several texts are packed into one row, newer releases call these functions with positions within each text.
Within one text, distances between positions equal distances between indices, so masks that depend on
distances only are translated unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import and_, or_
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from regard.masks import Causal, Chunk, Documents, Mask, Padding, Where, Window

__all__ = ["Frame", "translate"]

MaskFunction = Callable[..., Any]
# A rule returns None if it can't translate a function in this frame, and ALL if every pair is allowed.
ALL = "all"
Answer = Mask | str | None


@dataclass(frozen=True)
class Frame:
    """How transformers' indices map to regard's positions: q queries from `q_start`, k keys from `k_start`.

    Transformers counts queries and keys from the beginning of the text. regard counts keys from the first key
    in the cache, and the last query sits on the last key.
    """

    q: int
    k: int
    q_start: int = 0
    k_start: int = 0

    @property
    def q_shift(self) -> int:
        """The number to add to a query's position to get transformers' index."""
        return self.q_start - (self.k - self.q)

    @property
    def shift(self) -> int:
        """The query-key distance in transformers' indices minus that in regard's positions; 0 without spare
        keys."""
        return self.q_shift - self.k_start


def translate(function: MaskFunction, frame: Frame) -> Mask | None:
    """The mask that equals a mask function for the queries and keys of a frame; None if it allows all pairs.

    >>> from transformers.masking_utils import sliding_window_causal_mask_function
    >>> translate(sliding_window_causal_mask_function(4), Frame(q=3, k=9, q_start=6))
    Window(left=4) & Causal()
    """
    answer = _answer(function, frame)
    return None if isinstance(answer, str) else answer


def _answer(function: MaskFunction, frame: Frame) -> Mask | str:
    rule = _rules().get(_code(function))
    answer = None if rule is None else rule(_held(function), frame)
    return _kept_as_function(function, frame) if answer is None else answer


def _code(function: MaskFunction) -> CodeType | None:
    return getattr(function, "__code__", None)


def _held(function: MaskFunction) -> dict[str, Any]:
    """The variables captured by a closure, by name."""
    cells = getattr(function, "__closure__", None) or ()
    names = getattr(_code(function), "co_freevars", ())
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}


@cache
def _rules() -> dict[CodeType | None, Callable[[dict[str, Any], Frame], Answer]]:
    """The rule for each function that transformers makes, by its code object: equal code, equal meaning."""
    from transformers import masking_utils as made

    nothing = torch.zeros(0)
    rules: dict[MaskFunction, Callable[[dict[str, Any], Frame], Answer]] = {
        made.and_masks(): _all_of,
        made.or_masks(): _any_of,
        made.causal_mask_function: _causal,
        made.bidirectional_mask_function: _everything,
        made.sliding_window_overlay(1): _window,
        made.sliding_window_bidirectional_overlay(1): _two_sided_window,
        made.chunked_overlay(1, nothing): _chunks,
        made.padding_mask_function(nothing): _padding,
        made.packed_sequence_mask_function(nothing): _documents,
        made.blockwise_overlay(nothing): _blocks,
    }
    return {_code(function): rule for function, rule in rules.items()}


def _kept_as_function(function: MaskFunction, frame: Frame) -> Mask:
    def indexed(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return function(b, h, q + frame.q_shift, k + frame.k_start)

    named = _held(function)["mask_function"] if _code(function) == _remapping() else function
    indexed.__name__ = getattr(named, "__qualname__", type(named).__name__).split(".<locals>")[0]
    return Where(indexed)


def _all_of(held: dict[str, Any], frame: Frame) -> Answer:
    answers = [_answer(function, frame) for function in _unpacked(held["mask_functions"])]
    parts = [part for part in answers if not isinstance(part, str)]
    return reduce(and_, _tidied(parts, frame)) if parts else ALL


@cache
def _remapping() -> CodeType | None:
    """The code object of functions that call another one with positions within each text; None in older
    releases."""
    from transformers import masking_utils as made

    make = getattr(made, "remap_positions_for_packed_sequence", None)
    return None if make is None else make(made.causal_mask_function, torch.zeros(0)).__code__


def _unpacked(functions: Sequence[MaskFunction]) -> list[MaskFunction]:
    """Equivalent functions, with as few as possible that use positions within texts."""
    packed = (each for each in functions if _rules().get(_code(each)) is _documents)
    texts = next((_held(each)["packed_sequence_mask"] for each in packed), None)
    told: list[MaskFunction] = []
    others: list[MaskFunction] = []
    for function in functions:
        if texts is not None and _code(function) == _remapping() and _one_by_one(texts, function):
            told += _of_indices(function, texts)
        else:
            others.append(function)
    return told + others


def _one_by_one(texts: Tensor, remapped: MaskFunction) -> bool:
    """Whether every text is contiguous and its positions increase by one."""
    places, next_text = _held(remapped)["position_ids"], texts.diff()
    return bool(((next_text > 0) | ((next_text == 0) & (places.diff() == 1))).all())


def _of_indices(remapped: MaskFunction, texts: Tensor) -> list[MaskFunction]:
    """Rewrite a function of positions within texts in terms of indices, as far as possible."""
    from transformers import masking_utils as made

    inner, places = _held(remapped)["mask_function"], _held(remapped)["position_ids"]
    joined = _rules().get(_code(inner)) is _all_of
    said: list[MaskFunction] = []
    for part in _held(inner)["mask_functions"] if joined else [inner]:
        rule = _rules().get(_code(part))
        if rule in (_causal, _everything, _window, _two_sided_window):
            said.append(part)
        elif rule is _chunks:
            begins = (texts.diff() != 0) | (_chunk_of(places, _held(part)).diff() != 0)
            chunks = torch.nn.functional.pad(begins, (1, 0)).cumsum(-1)
            said.append(made.packed_sequence_mask_function(chunks))
        else:
            said.append(made.remap_positions_for_packed_sequence(part, places))
    return said


def _any_of(held: dict[str, Any], frame: Frame) -> Answer:
    parts: list[Mask] = []
    for function in held["mask_functions"]:
        part = _answer(function, frame)
        if isinstance(part, str):
            return ALL
        parts.append(part)
    return reduce(or_, parts) if parts else None


def _tidied(parts: list[Mask], frame: Frame) -> list[Mask]:
    """Under a causal mask the right side of a window has no effect: simplify it to Window(w)."""
    causal = any(isinstance(part, Causal) for part in parts)
    return [
        Window(part.left) if causal and isinstance(part, Window) and part.left > frame.shift else part
        for part in parts
    ]


def _everything(held: dict[str, Any], frame: Frame) -> Answer:
    return ALL


def _causal(held: dict[str, Any], frame: Frame) -> Answer:
    return Causal(frame.shift)


def _window(held: dict[str, Any], frame: Frame) -> Answer:
    left = held["sliding_window"] - frame.shift
    return Window(left, max(left, frame.q + frame.k)) if left >= 1 else None


def _two_sided_window(held: dict[str, Any], frame: Frame) -> Answer:
    left, right = (held["sliding_window"] + 1 + side * frame.shift for side in (-1, 1))
    return Window(left, right) if min(left, right) >= 1 else None


def _chunks(held: dict[str, Any], frame: Frame) -> Answer:
    size, pad = held["chunk_size"], torch.as_tensor(held["left_padding"])
    if frame.shift or frame.q > frame.k:
        return None
    if frame.k_start % size == 0 and not bool(pad.any()):
        return Chunk(size)
    chunk = _chunk_of(torch.arange(frame.k, device=pad.device) + frame.k_start, held)
    return Documents(ids=chunk - chunk.min())


def _chunk_of(places: Tensor, held: dict[str, Any]) -> Tensor:
    """The chunk number of each position. Chunks start where a row's padding ends, so each row has a layout of
    its own."""
    pad = torch.as_tensor(held["left_padding"]).view(-1, 1)
    return (places - pad).div(held["chunk_size"], rounding_mode="floor")


def _padding(held: dict[str, Any], frame: Frame) -> Answer:
    valid = _cut(held["padding_mask"], frame)
    if valid is None:
        return None
    valid = valid.bool()
    return ALL if bool(valid.all()) else Padding(valid)


def _documents(held: dict[str, Any], frame: Frame) -> Answer:
    ids = _cut(held["packed_sequence_mask"], frame)
    return None if ids is None or frame.shift or frame.q > frame.k else Documents(ids=ids - ids.min())


def _blocks(held: dict[str, Any], frame: Frame) -> Answer:
    ids = _cut(held["block_sequence_ids"], frame)
    return None if ids is None or frame.shift or frame.q > frame.k else Documents(ids=ids)


def _cut(table: Tensor, frame: Frame) -> Tensor | None:
    """The part of a (batch, text) table that belongs to the keys; None if the table ends before they do."""
    part = table[:, frame.k_start : frame.k_start + frame.k]
    return part if part.shape[1] == frame.k else None
