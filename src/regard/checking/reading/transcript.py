"""Removes prompts, print(…) and comment signs of Python sessions and notebooks."""

from __future__ import annotations

import re

__all__ = ["without_prompts"]

_PROMPT = re.compile(
    r"^[ \t]*(?:>>> ?|\.\.\. |In ?\[\d*\]: ?|Out ?\[\d*\]:[ \t]*\n|Out ?\[\d*\]: ?)", re.MULTILINE
)
_PRINTED = re.compile(r"^[ \t]*print\((?:f?[\"'][^\"'\n]*[\"'],\s*)?([^\n]*)\)[ \t]*;?[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*#[ \t]*(?=(?:\w*\(?\[|[-+]?[\d.]))", re.MULTILINE)
# Labels between a program and its output.
_HEADED = re.compile(
    r"^(?P<call>[ \t]*print\([^\n]*\)[ \t]*\n)(?:[ \t]*(?:```\w*)?[ \t]*\n)*"
    r"[ \t#*]*(?:Output|Out|Result|Prints|This prints)[ \t]*:?\**[ \t]*\n(?:[ \t]*(?:```\w*)?[ \t]*\n)*",
    re.MULTILINE | re.IGNORECASE,
)
_LIBRARY = re.compile(
    r"\b(?:torch\.nn\.functional|nn\.functional|tf\.nn|jax\.nn|scipy\.special|torch|F|np)\.(?=softmax\b)"
)
_METHOD = re.compile(r"(?<![\w.])(?P<of>\w+)\.softmax\(\s*(?:(?:dim|axis)\s*=\s*)?-?\d*\s*\)")
_AXIS = re.compile(r"(?:\s*,\s*(?:dim|axis)\s*=\s*-?\d|(?<=[A-Za-z_\])])\s*,\s*-?\d)\s*\)")


def without_prompts(text: str) -> str:
    """The text with only names and numbers.

    >>> without_prompts(">>> print(scores)\\n[[1 2]]\\n# [[3 4]]")
    'scores\\n[[1 2]]\\n[[3 4]]'
    """
    text = _HEADED.sub(r"\g<call>", _PROMPT.sub("", text))
    if "softmax" in text:
        lines = _METHOD.sub(r"softmax(\g<of>)", _LIBRARY.sub("", text)).split("\n")
        text = "\n".join(_AXIS.sub(")", line) if "softmax(" in line else line for line in lines)
    return _COMMENT.sub("", _PRINTED.sub(r"\1", text))
