"""Converts lists, prompts and decimals of other languages to the notation of Python and Markdown."""

from __future__ import annotations

import re

from regard.checking.names import TABLES, step_named
from regard.checking.reading.numbers import CELL

__all__ = ["without_dialects"]

_BLOCK = re.compile(r"</?(?:p|div|li|ul|ol|br|h\d|pre|section|figure)\b[^<>]*>", re.IGNORECASE)
_INLINE = re.compile(r"</?(?:span|code|strong|em|b|i|u|sub|sup|var|samp|font|a)\b[^<>]*>", re.IGNORECASE)
_PROMPT = re.compile(
    r"^(?:> (?=[\w(])|>> |(?:julia|ghci|scala|irb)> |(?:let|var|const|val|auto) (?=\w+ *[=:]))", re.MULTILINE
)
# A type between a name and its value, C comments before output, MATLAB's `ans`.
_TYPED = re.compile(r"^(\s*\w+)\s*:\s*(?:\[+\w+\]+|Array<\w+>|Vec<\w+>|List<\w+>)\s*=", re.MULTILINE)
_SLASHES = re.compile(r"^[ \t]*//[ \t]*(?=\S)", re.MULTILINE)
_ANSWER = re.compile(r"^(?P<of>[^\n=]+)\n\s*ans\s*=[ \t]*$", re.MULTILINE)
# R prints indices above and beside a matrix.
_ABOVE = re.compile(r"^[ \t]*(?:\[,\d+\][ \t]*)+\n", re.MULTILINE)
_BESIDE = re.compile(r"^[ \t]*\[\d+,\][ \t]+", re.MULTILINE)
# Julia writes the broadcast sign in front of an operator, and the axis after the array.
_DOTTED = re.compile(r"(?<=[\w)'\]]) *\.([-+*/^])(?=[ \w(])")
_DIMS = re.compile(r",\s*dims\s*=\s*2\s*\)")
_ROWS = re.compile(r"\[(?P<rows>[^\[\]=\n]*;[^\[\]=\n]*)\]")
_DASHES = re.compile(
    r"^(?P<name>[ \t]*\w+:)[ \t]*\n(?P<items>(?:[ \t]+- (?:- )?\S+[ \t]*(?:\n|\Z))+)", re.MULTILINE
)
_OUTER = re.compile(r"^[ \t]*[┌┏╔╭└┗╚╰][^\n]*(?:\n|$)", re.MULTILINE)
_INNER = re.compile(r"^[ \t]*[├┣╠┡╞][^\n]*$", re.MULTILINE)
_CROSSES = "[├┼┤┣╋┫╠╬╣┡╇┩╞╪╡]"
_RULE = re.compile(r"^[ \t]*\|[-=+]+\|[ \t]*$", re.MULTILINE)
_GRID = re.compile(r"^[ \t]*\+(?:-+\+){2,}[ \t]*\n?", re.MULTILINE)
_GRID_HEAD = re.compile(r"^[ \t]*\+(?:=+\+)+[ \t]*$", re.MULTILINE)
_BRACKETS = (("⎡", "⎤", "[[", "],"), ("⎢", "⎥", "[", "],"), ("⎣", "⎦", "[", "]]"))
_SUBJECT = re.compile(
    r"(?i)\bscores? (?:of|are|being) (?P<scores>[-\d.]+(?:(?:, | and |, and )[-\d.]*\d)+)"
    r"(?P<words>[^\n%:=]*?\b(?:puts?|places?|gives?|spends?)) "
    r"(?P<shares>[\d.]+%(?:(?:, | and |, and )[\d.]+%)+) (?:of (?:its|the) )?attention"
)
# Prefixes of arrays in R and Julia.
_HEADER = re.compile(r"^\s*\d+(?:-element| ?[×x] ?\d+) [\w{}, .]+:\s*\n", re.MULTILINE)
_INDEX = re.compile(r"^\s*\[\d+\][ \t]+(?=[-+.\d])", re.MULTILINE)
_BRACES = re.compile(rf"\{{(?:\s*|,|;|{CELL}|\{{(?:\s|,|{CELL})*\}})*\}}")
_ITEMS = re.compile(r"(?:^[ \t]*[-*•][ \t]*\[[^\[\]\n]*\][ \t]*(?:\n|\Z)){2,}", re.MULTILINE)
_VECTOR = r"\[[^\[\]\n]*\]|\((?:[^()\n]*,[^()\n]*)\)"
_VECTORS = re.compile(r"\[[^\[\]]*\]")
_TERM = rf"(?P<w>{CELL})\s*[*×·]\s*(?P<v>{_VECTOR})"
_ANY = rf"(?:{CELL})\s*[*×·]\s*(?:{_VECTOR})"
_MIXTURE = re.compile(
    rf"^[^\n\d\[(]*?(?P<terms>{_ANY}(?:\s*\+\s*{_ANY})+)\s*[=≈]\s*(?P<made>{_VECTOR})\s*\.?\s*$",
    re.MULTILINE,
)
_SHARE = re.compile(
    r"(?P<share>\d+(?:\.\d+)?)\s?%\s*(?:of \w+ )?(?:(?:attention|weight|focus)\s+)?(?:for|to|on)\s+"
    r"(?:the\s+)?(?:word\s+|token\s+)?['\"“‘]?(?P<word>[^\W\d]\w*)['\"”’]?",
    re.IGNORECASE,
)


def without_dialects(text: str) -> str:
    """The text in the notation of Python, Markdown and English.

    >>> print(without_dialects("> softmax(s)\\n[1] 0.27 0.73"))
    softmax(s)
    0.27 0.73
    >>> without_dialects("Softmax[{1, 2}] = {0.27, 0.73}"), without_dialects("weights: 0,27 0,73")
    ('Softmax([1, 2]) = [0.27, 0.73]', 'weights: 0.27 0.73')
    """
    if "<" in text:
        text = _INLINE.sub("", _BLOCK.sub("\n", text))
    text = _SLASHES.sub("", _TYPED.sub(r"\1 =", _PROMPT.sub("", _drawn(text))))
    text = _ANSWER.sub(r"\g<of> =", _BESIDE.sub("", _ABOVE.sub("", text)))
    text = _DIMS.sub(")", _DOTTED.sub(r" \1 ", text))
    text = _ROWS.sub(_semicolons, _DASHES.sub(_dashed, text))
    text = _SUBJECT.sub(r"\nscores: \g<scores>\nweights: \g<shares>\n", text)
    text = _INDEX.sub("", _HEADER.sub("", text))
    text = _BRACES.sub(_bracketed, text)
    text = re.sub(r"(?i)\b(softmax)\[(\[[^\[\]]*\])\]", r"\1(\2)", text)
    text = _ITEMS.sub(lambda m: f"[{', '.join(_VECTORS.findall(m[0]))}]\n", text)
    text = _MIXTURE.sub(_mixed, text)
    return _decimal_points(_shares(_columns(text)))


def _drawn(text: str) -> str:
    """Convert tables and brackets drawn with lines to | columns | and lists."""
    if re.search("[│┃║]", text):
        text = _OUTER.sub("", re.sub("[│┃║]", "|", text))
        text = _INNER.sub(lambda m: re.sub("[^|]", "-", re.sub(_CROSSES, "|", m[0].strip())), text)
    # Emacs' rules cross columns with a plus; a grid table has a rule above each row.
    text = _RULE.sub(lambda m: m[0].replace("+", "|"), text)
    if _GRID.search(text):
        text = _GRID_HEAD.sub(lambda m: m[0].replace("+", "|").replace("=", "-"), text)
        text = _GRID.sub("", text)
    for opening, closing, left, right in (
        ("⎡", "⎤", "[[", "],"),
        ("⎢", "⎥", "[", "],"),
        ("⎣", "⎦", "[", "]]"),
    ):
        text = re.sub(f"{opening}([^\\n{closing}]*){closing}", rf"{left}\1{right}", text)
    return text


def _semicolons(found: re.Match[str]) -> str:
    """[1 0; 0 1] as [[1, 0], [0, 1]]."""
    rows = [re.split(r"[\s,]+", row.strip()) for row in found["rows"].split(";") if row.strip()]
    if not rows or not all(re.fullmatch(CELL, cell) for row in rows for cell in row):
        return found[0]
    return f"[{', '.join(map(_listed, rows))}]"


def _listed(row: list[str]) -> str:
    return f"[{', '.join(row)}]"


def _dashed(found: re.Match[str]) -> str:
    """A YAML list of lists under a name, one number per line."""
    rows: list[list[str]] = []
    for line in found["items"].splitlines():
        marks = re.match(r"[ \t]+((?:- )+)(\S+)", line)
        if marks is None or not re.fullmatch(CELL, marks[2]):
            return found[0]
        if marks[1].count("-") == 2 or not rows:
            rows.append([])
        rows[-1].append(marks[2])
    nested = "- -" in found["items"]
    inside = ", ".join(map(_listed, rows))
    return f"{found['name']} [{inside}]\n" if nested else f"{found['name']} {inside}\n"


def _bracketed(found: re.Match[str]) -> str:
    """{1, 2} as [1, 2]; braces without a comma are left unchanged."""
    return found[0].replace("{", "[").replace("}", "]") if "," in found[0] else found[0]


def _mixed(found: re.Match[str]) -> str:
    """0.7 * [1, 0] + 0.3 * [0, 1] = [0.7, 0.3]: weights, values and an output."""
    terms = [(m["w"], m["v"]) for m in re.finditer(_TERM, found["terms"])]
    weights = ", ".join(w for w, _ in terms)
    values = ", ".join(f"[{v[1:-1]}]" for _, v in terms)
    return f"weights = [{weights}]\nvalues = [{values}]\noutput = [{found['made'][1:-1]}]"


def _columns(text: str) -> str:
    """Convert lines such as "cat: score 2.0 → weight 0.73", one per token, to a table."""
    lines, out = text.split("\n"), []
    while lines:
        rows: list[tuple[str, list[tuple[str, str]]]] = []
        for line in lines:
            row = _told(line)
            if row is None or (rows and [n for n, _ in row[1]] != [n for n, _ in rows[0][1]]):
                break
            rows.append(row)
        if len(rows) < 2:
            out.append(lines.pop(0))
            continue
        del lines[: len(rows)]
        out.append(f"| token | {' | '.join(name for name, _ in rows[0][1])} |")
        out += [f"| {token} | {' | '.join(number for _, number in cells)} |" for token, cells in rows]
    return "\n".join(out)


def _told(line: str) -> tuple[str, list[tuple[str, str]]] | None:
    head = re.match(r"^[-*•\s]*(?P<token>['\"]?[^\W\d][\w'’-]*['\"]?)\s*[:—]\s*(?P<rest>.+)$", line)
    if head is None:
        return None
    parts = re.split(r"\s*(?:→|->|=>|,|;|\|)\s*", head["rest"].strip().rstrip("."))
    cells = [re.fullmatch(rf"(?P<name>[^\W\d][\w ]*?)\s*[=:]?\s*(?P<number>{CELL})", part) for part in parts]
    found = [(cell["name"], cell["number"]) for cell in cells if cell is not None]
    named = [step_named(name) in TABLES for name, _ in found]
    return (head["token"], found) if len(found) == len(parts) > 1 and all(named) else None


def _shares(text: str) -> str:
    """Convert a sentence with percentages of attention per word to weights."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        found = {m["word"]: m["share"] for m in _SHARE.finditer(line)}
        if len(found) > 1 and re.search(r"\b(?:attention|weights?|attends?)\b", line, re.IGNORECASE):
            lines[at] = f"weights: {', '.join(f'{word} {share}%' for word, share in found.items())}"
    return "\n".join(lines)


def _decimal_points(text: str) -> str:
    """Convert decimal commas to points, if all commas of a text are decimal commas."""
    commas = re.findall(r"\d,\d", text)
    if not commas or re.search(r"\d\.\d|,\s|[\[({]|\d,\d+,", text):
        return text
    return re.sub(r"(?<=\d),(?=\d)", ".", text) if re.search(r"\d,\d+[\s;]+-?\d+,\d", text) else text
