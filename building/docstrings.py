"""How docstrings become pages of the reference: mkdocs.yml names this file as an extension of griffe."""

from __future__ import annotations

from typing import Any

import griffe

__all__ = ["DoctestsAsCode", "fenced"]


def fenced(text: str) -> str:
    """A docstring with its doctests in fences: Markdown would take `>>>` for three quotations.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nMore.").splitlines()
    ['Adds.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'More.']
    """
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith(">>>") and not inside:
            lines.append("```pycon")
            inside = True
        if inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class DoctestsAsCode(griffe.Extension):
    """Fences the doctests of every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
