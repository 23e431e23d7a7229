"""Compares the arguments of all ranks before a call, so that no rank waits for one with other arguments."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

from regard.distributed.ranks import Ranks
from regard.errors import DistributedError, MaskError, RegardError
from regard.masks import Mask

__all__ = ["agree", "described_mask"]

SHOWN = 100


def agree(ranks: Ranks, what: str, asked: dict[str, Any], error: RegardError | None = None) -> list[Any]:
    """Exchange the arguments of a call with the other ranks; either all ranks raise the same error, or none.

    Entries of `asked` must be equal on all ranks, except "own", whose values on all ranks are returned.
    `error` is an error that this rank found by itself; then the others raise one too.
    """
    note = {"call": what, **asked, "error": None if error is None else str(error)}
    number = ranks.calls[0]
    ranks.calls[0] += 1
    notes = _exchanged(ranks, what, number, json.dumps(note))
    failed = {rank: n["error"] for rank, n in enumerate(notes) if n["error"] is not None}
    if failed:
        if error is not None and set(failed.values()) == {str(error)} and len(failed) == ranks.size:
            raise error
        said = "; ".join(f"rank {rank}: {text}" for rank, text in failed.items())
        raise DistributedError(f"{what} was refused. {said}") from error
    for name in ("call", *asked):
        values = [n.get(name) for n in notes]
        if name != "own" and any(value != values[0] for value in values):
            raise DistributedError(_difference(name, values, notes))
    if number == 0:
        ranks.open()
    return [n.get("own") for n in notes]


def _exchanged(ranks: Ranks, what: str, number: int, note: str) -> list[dict[str, Any]]:
    store = ranks.store
    keys = [f"{number}/{rank}" for rank in range(ranks.size)]
    store.set(keys[ranks.rank], note)
    try:
        store.wait(keys, timedelta(seconds=ranks.timeout))
    except RuntimeError as error:
        missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
        if not missing:
            raise DistributedError(f"{what}: the store of the group failed: {error}") from error
        who = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(missing)}"
        raise DistributedError(
            f"{who} did not call {what} within {ranks.timeout:g} s: every rank of the group must make the "
            "same calls in the same order. It may have failed (see its output), or be slower than timeout."
        ) from None
    notes = [json.loads(store.get(key)) for key in keys]
    if number:
        # At this point all ranks have read the notes of the previous call, so delete them.
        store.delete_key(f"{number - 1}/{ranks.rank}")
    return notes


def _difference(name: str, values: list[Any], notes: list[dict[str, Any]]) -> str:
    """A sentence about the difference: each distinct value with the first rank that has it."""
    first: dict[str, int] = {}
    for rank, value in enumerate(values):
        first.setdefault(_short(value), rank)
    said = ", ".join(f"rank {rank} has {text}" for text, rank in first.items())
    call = "" if name == "call" else f" of {notes[0]['call']}"
    return f"ranks disagree on the {name}{call}: {said}. Give every rank the same."


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]}... (sha {_sha(text)})"


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def described_mask(mask: object) -> str:
    """The text of a mask with a hash of its contents; equal for equal masks.

    >>> from regard.masks import Causal
    >>> described_mask(Causal())
    'Causal() #a4760685bf06'
    """
    if not isinstance(mask, Mask):
        return repr(mask)
    try:
        content = json.dumps(mask.to_json(), sort_keys=True)
    except MaskError:
        # Of a user's class only the repr can be compared, without addresses.
        return type(mask).__name__ if " at 0x" in repr(mask) else repr(mask)
    return f"{mask!r} #{_sha(content)}"
