"""Converts LaTeX matrices and tables to brackets and | columns |."""

from __future__ import annotations

import re

from regard.checking.reading.numbers import is_cell

__all__ = ["without_latex"]

_TABLE = re.compile(
    r"\\begin\{(?P<kind>[bpvBV]?matrix|smallmatrix|array|tabular\*?|tabularx)\}(?P<spec>(?:\s*\{[^{}]*\}|\s*\[[^\]]*\])*)"
    r"(?P<body>.*?)\\end\{(?P=kind)\}",
    re.DOTALL,
)
_RULES = re.compile(r"\\(?:hline|toprule|midrule|bottomrule|cline\{[^}]*\})")
_WRAPPED = re.compile(
    r"\\(?:text|mathrm|mathbf|textbf|operatorname|mathsf|textit|emph|mathbf|boldsymbol)\s*\{([^{}]*)\}"
)
_ALIGNED = re.compile(r"\\(?:begin|end)\{(?:align|aligned|equation|gather|gathered|split|multline)\*?\}")

SIGNS = {
    r"\top": "ᵀ", r"\infty": "∞", r"\approx": "≈", r"\alpha": "α", r"\left": "", r"\right": "",
    r"\quad": "\n", r"\cdot": "·", r"\times": "×", r"\,": " ", r"\;": " ", r"\%": "%",
    r"\\": "\n", "\\ ": " ", r"\[": "", r"\]": "",
    r"\(": "", r"\)": "",
}  # fmt: skip


def without_latex(text: str) -> str:
    r"""The same text with matrices in brackets and tables in | columns |.

    >>> without_latex(r"$Q = \begin{bmatrix} 1 & 0 \\ 0 & 1 \end{bmatrix}$")
    'Q = [[1, 0], [0, 1]]'
    """
    if "\\" not in text:
        return text
    text = _WRAPPED.sub(r"\1", text)
    text = _ALIGNED.sub("", text)
    text = _TABLE.sub(_rewritten, text)
    text = re.sub(r"\\frac\s*\{([^{}]*)\}\s*\{\s*\\sqrt\s*\{([^{}]*)\}\s*\}", r"\1 / √\2", text)
    text = re.sub(r"\^\{\s*(-?[\w.]+)\s*\}", r"^\1", text)
    text = re.sub(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", _fraction, text)
    text = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"√\1", text)
    for sign, plain in SIGNS.items():
        text = text.replace(sign, plain)
    # The remaining & align equations; remove them.
    return re.sub(r"\$+|&(?=\s*[=≈])", "", text)


def _fraction(found: re.Match[str]) -> str:
    """A fraction as a quotient, with brackets around compound sides."""
    return "/".join(f"({side})" if re.search(r"\S\s*[-+]", side) else side for side in found.groups())


def _rewritten(found: re.Match[str]) -> str:
    lines = [
        line.strip()
        for line in re.split(r"\\\\(?:\[[^\]]*\])?", _RULES.sub("", found["body"]))
        if line.strip()
    ]
    rows = [
        [
            re.sub(r"[$]|\\infty", lambda m: "" if m[0] == "$" else "∞", cell).strip()
            for cell in line.split("&")
        ]
        for line in lines
    ]
    if all(is_cell(cell) for row in rows for cell in row):
        return "[" + ", ".join(f"[{', '.join(row)}]" for row in rows) + "]"
    return "\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
