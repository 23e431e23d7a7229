"""`read`: parse a text or a mapping into examples."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from regard.checking.counts import Counts
from regard.checking.example import Example
from regard.checking.reading.build import build, refused
from regard.checking.reading.draft import Draft
from regard.checking.reading.mapping import drafts_of, from_json
from regard.checking.reading.sections import drafts_of_text
from regard.errors import RegardError

__all__ = ["read"]

LONGEST = 200_000


def read(printed: str | Mapping[str, Any], *, tables_wanted: bool = True) -> list[Example | Counts]:
    """The examples in a text or a mapping, with tables by step and original digits.

    A text without tables raises if `tables_wanted`; otherwise the result is empty.

    >>> (example,) = read("scores: 18 2 -2 1, divided by √64\\nscaled: 2.3 0.26 -0.20 0.10")
    >>> example.scale.value, example.tables["scaled"].cells[0][2].text
    (0.125, '-0.20')
    """
    if isinstance(printed, str):
        if len(printed) > LONGEST:
            raise RegardError(
                f"the text has {len(printed):,} characters, at most {LONGEST:,} are read; paste a part."
            )
        if not re.search(r"\d", printed):
            raise RegardError("the text holds no number; paste the numbers of an example with their names.")
        document = from_json(printed)
        if isinstance(document, list) and document and all(isinstance(x, Mapping) for x in document):
            document = {"example": document}
        if document is not None and not isinstance(document, Mapping):
            raise RegardError(
                "the numbers have no name; write what they are, such as weights = [[0.4, 0.6]]."
            )
        drafts = list(drafts_of_text(printed) if document is None else drafts_of(document))
    else:
        drafts = list(drafts_of(printed))
    for draft in drafts:
        if isinstance(draft, Draft) and not draft.tables:
            if tables_wanted:
                raise _broken_json(printed) or refused(draft)
            return []
    return [build(draft) if isinstance(draft, Draft) else draft for draft in drafts]


def _broken_json(printed: str | Mapping[str, Any]) -> RegardError | None:
    """The error for a text that begins like JSON but is not valid."""
    if not isinstance(printed, str) or not re.match(r"\s*\{\s*\"", printed):
        return None
    try:
        json.loads(printed)
    except json.JSONDecodeError as error:
        return RegardError(
            f"the JSON cannot be read: {error.msg} (line {error.lineno}, column {error.colno}). "
            "Paste the whole document."
        )
    return None
