"""What Python and notebooks print around numbers: prompts, print(…), comments in front of output."""

from __future__ import annotations

import re

__all__ = ["without_prompts"]

_PROMPT = re.compile(r"^[ \t]*(?:>>> ?|\.\.\. |In ?\[\d*\]: ?|Out ?\[\d*\]: ?)", re.MULTILINE)
_PRINTED = re.compile(r"^[ \t]*print\((?:f?[\"'][^\"'\n]*[\"'],\s*)?([^\n]*)\)[ \t]*;?[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*#[ \t]*(?=(?:\w*\(?\[|[-+]?[\d.]))", re.MULTILINE)


def without_prompts(text: str) -> str:
    """The same text as if its author had written names and numbers only.

    >>> without_prompts(">>> print(scores)\\n[[1 2]]\\n# [[3 4]]")
    'scores\\n[[1 2]]\\n[[3 4]]'
    """
    text = _PROMPT.sub("", text)
    return _COMMENT.sub("", _PRINTED.sub(r"\1", text))
