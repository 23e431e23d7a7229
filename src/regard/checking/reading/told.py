"""Finds the step that a sentence before numbers is about."""

from __future__ import annotations

import re

from regard.checking.names import TABLES, step_named

__all__ = ["sentences", "told"]

# Words between a name and its numbers.
BETWEEN = (
    r"(?:is|are|was|were|as|be|get|gets|got|obtain|have|gives?|give us|yields?|becomes?|we|you|then|now|of|to"
    r"|follows)"
)
# The name of the next step after a number on the same line.
_NEXT = re.compile(r"(?<=[\d%])[,;]?[ \t]+(?P<name>[A-Za-z_][\w ]*?)(?=\s*[:=]\s*[-+.\d])")


def told(words: str) -> str | None:
    """The step named at the end of a sentence, ignoring words that only introduce the numbers.

    >>> told("Suppose the raw scores are"), told("After softmax we get"), told("Dividing by √64 gives")
    ('scores', 'weights', 'scaled')
    >>> told("The cat sat")
    """
    words = re.sub(rf"(?:[\s:=,]+{BETWEEN})*[\s:=,]*$", "", words.strip(), flags=re.IGNORECASE)
    parts = words.split()
    for length in range(min(4, len(parts)), 0, -1):
        tail = parts[-length:]
        name = step_named(" ".join(tail))
        # "a" and "sum" are also words, so such a name must be the whole sentence.
        if name in TABLES and (len("".join(tail)) > 1 or len(parts) == 1):
            return name
    if re.search(r"\bdivid(?:e|ed|ing)\b|\bscal(?:e|ed|ing)\b", words, re.IGNORECASE):
        return "scaled"
    return "weights" if re.search(r"\bsoftmax\b", words, re.IGNORECASE) else None


def sentences(text: str) -> list[str]:
    """The lines of a text, split where a sentence ends with a number or continues with another step.

    >>> sentences("scores: 1, 2. Softmax gives 0.27, 0.73, and the output: 5")
    ['scores: 1, 2', 'Softmax gives 0.27, 0.73', 'the output: 5']
    """
    text = _NEXT.sub(lambda m: f"\n{m['name']}" if step_named(m["name"]) in TABLES else m[0], text)
    return re.sub(
        r"(?<=\d)\.\s+(?=[A-Z])|(?<=\d),?\s+and\s+(?=[A-Za-z ]+[:=]\s*[-+\d])|(?<=\d);\s+(?=[A-Za-z])",
        "\n",
        text,
    ).splitlines()
