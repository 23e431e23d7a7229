"""Reads numbers in text: bracketed lists, printed arrays, rows of columns."""

from __future__ import annotations

import re

from regard.errors import RegardError

__all__ = ["CELL", "cleaned", "is_cell", "maps_of", "only_numbers", "pairs_in", "rows_of"]

CELL = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?%?|[-+]?(?:inf|∞)|nan|[-+]?\d+/\d+"
_WORDS = r"True|False|nan|None|null"
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def cleaned(text: str) -> str:
    """Normalise minus signs, powers of ten and printed arrays.

    >>> cleaned("tensor([[1., 0.]], dtype=torch.float64)"), cleaned("−2.1×10⁻⁹")
    ('[[1., 0.]]', '-2.1e-9')
    """
    text = (
        text.translate(_SUBSCRIPTS)
        .replace("−", "-")
        .replace("–", "-")
        .replace("\u00a0", " ")
        .replace("\\infty", "∞")
    )
    text = re.sub(r"\b-?Infinity\b|\bINF\b", "inf", text)
    text = re.sub(
        r"\s*(?:×|\\times|\\cdot|·|\*|x)\s*10\s*(?:\^|\*\*)?\s*\{?\s*([-⁻]?[\d⁰¹²³⁴⁵⁶⁷⁸⁹]+)(?:\s*\})?",
        lambda m: f"e{m[1].translate(_SUPERSCRIPTS)}" if re.search(r"\^|\*\*|[⁰-⁹⁻¹²³]", m[0]) else m[0],
        text,
    )
    text = re.sub(
        r"\b(?:torch\.|np\.|numpy\.|jnp\.)?(?:tensor|array|Array|Tensor|matrix)\s*\((?=\s*\[)", "", text
    )
    # The suffix of a printed array: dtype, device and shape, and the closing bracket.
    text = re.sub(
        r"\](?:\s*,\s*(?:dtype|device|grad_fn|shape|requires_grad)\s*=\s*[^\n)]*(?:\([^)]*\))?[^\n)]*)+\)?",
        "]",
        text,
    )
    return re.sub(r"(\])\)(?=\s*(?:$|\n|[,;]))", r"\1", text)


def is_cell(text: str) -> bool:
    """Whether a text is one printed number."""
    return re.fullmatch(CELL, text.strip().replace("−", "-")) is not None


def only_numbers(text: str) -> list[str] | None:
    """The numbers of a text that contains nothing else, or None.

    >>> only_numbers("18, 2, -2, 1"), only_numbers("0.40 0.2"), only_numbers("in 2017")
    (['18', '2', '-2', '1'], ['0.40', '0.2'], None)
    """
    parts = [
        part for part in re.split(r"[\s,;|&]+(?:and\s+(?=[-+.\d]))?", text.strip().strip("()[]{}")) if part
    ]
    return parts if parts and all(is_cell(part) for part in parts) else None


def rows_of(text: str) -> list[list[str]]:
    """The rows of a table in brackets, or one row per line.

    >>> rows_of("[[1. 0.]\\n [0. 1.]]"), rows_of("0.4 0.6\\n0.5, 0.5")
    ([['1.', '0.'], ['0.', '1.']], [['0.4', '0.6'], ['0.5', '0.5']])
    """
    text = cleaned(text).strip()
    if "[" in text:
        inner = re.findall(r"\[([^\[\]]*)\]", text)
        if len(inner) == 1 and ";" in inner[0]:
            inner = inner[0].split(";")  # as MATLAB and Julia write a matrix
    else:
        inner = [line for line in text.splitlines() if line.strip()]
    rows = []
    for part in inner:
        cells = [cell for cell in re.split(r"[\s,;&]+", part.strip()) if cell]
        # Two commas with nothing between them are a missing cell.
        if re.search(r",\s*,|^\s*,|,\s*$", part.strip()) and not part.strip().endswith(","):
            cells = [cell.strip() for cell in part.split(",")]
        rows.append(cells)
    if not any(rows):
        raise RegardError(f"{text[:40]!r} holds no number; write digits, such as 0.40.")
    return rows


def maps_of(text: str) -> list[list[list[str]]]:
    """The maps in a list of lists of rows, such as those of several heads; empty if there is only one.

    >>> maps_of("[[[1, 0]], [[0, 1]]]"), maps_of("[[[1, 0], [0, 1]]]")
    ([[['1', '0']], [['0', '1']]], [])
    """
    inner = re.findall(r"\[(?:\s*\[[^\[\]]*\][\s,]*)+\]", text)
    return [rows_of(each) for each in inner] if len(inner) > 1 else []


def pairs_in(text: str) -> dict[str, str]:
    """Pairs of a word and its number; empty if the text contains anything else.

    >>> pairs_in("The 9%, cat: 24%, sat = 67%"), pairs_in("1, 2"), pairs_in("a cat")
    ({'The': '9%', 'cat': '24%', 'sat': '67%'}, {}, {})
    """
    found: dict[str, str] = {}
    for part in re.split(r"[,;]\s*(?:and\s+)?", text.strip().rstrip(".").strip("{}()")):
        pair = re.fullmatch(
            rf"['\"“]?(?P<word>[^\W\d][\w'’-]*)['\"”]?\s*[:=(→]?\s*(?P<number>{CELL})\)?", part.strip()
        )
        if pair is None or pair["word"] in found:
            return {}
        found[pair["word"]] = pair["number"]
    return found if len(found) > 1 else {}
