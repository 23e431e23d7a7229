"""`Draft`: tables and settings as read, before they are checked against each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from regard.checking.example import Scale, Table
from regard.checking.numeral import Numeral, numeral
from regard.errors import RegardError

__all__ = ["Draft", "is_head", "scale_in"]

MOST_CELLS = 4096
MAPS = ("scores", "scaled", "masked", "exps", "weights")
_HEAD = re.compile(
    r"^(?:attention\s+)?head[\s_]*#?\d+(?:\s*(?:'s\s+)?(?:output|out|result))?$", re.IGNORECASE
)
# Names of head outputs in texts that join heads.
_PART = re.compile(r"^(?:z|o|out|output|context|result|head|h)[\s_]*\{?\d+\}?$", re.IGNORECASE)
YES, NO = ("true", "1", "✓", "x", "yes"), ("false", "0", "✗", "no", "-inf", "∞", "-∞")


def is_head(label: str, joined: bool = False) -> bool:
    """Whether a label names one head's output; z1 and the like only if heads are `joined` later.

    >>> is_head("Head 1 output"), is_head("z_2"), is_head("z_2", joined=True)
    (True, False, True)
    """
    return bool(_HEAD.match(label) or (joined and _PART.match(label)))


@dataclass
class Draft:
    """The tables and settings read so far."""

    tables: dict[str, Table] = field(default_factory=dict)
    name: str = ""
    scale: Scale | None = None
    divisor: Numeral | None = None
    causal: bool = False
    mask: list[list[bool]] | None = None
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    indexed: dict[str, list[str]] = field(default_factory=dict)
    maps: dict[str, list[Table]] = field(default_factory=dict)
    own: bool = False
    heads: list[list[list[str]]] = field(default_factory=list)

    def add(
        self,
        name: str,
        texts: Sequence[Sequence[str]],
        *,
        flat: bool = False,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        trimmed: bool = False,
    ) -> None:
        """Add a table; `trimmed` numbers may lack trailing zeros, as in Python and numpy."""
        if name == "mask":
            self.set_mask(texts)
            return
        if name in MAPS:
            texts = _with_hidden(name, texts)
        if name == "k_t":
            if "k" in self.tables:
                return  # kᵀ says again what k says
            _check_rows(name, texts, rows)
            name, texts, rows, columns = "k", list(zip(*texts, strict=True)), columns, rows
        elif name in MAPS and _turned(rows, columns):
            _check_rows(name, texts, rows)
            texts, rows, columns = list(zip(*texts, strict=True)), columns, rows
            self.notes.append(f"{name} stands with its keys in rows, and is read with its queries in rows.")
        table = self._table(name, texts, flat, rows, columns, trimmed)
        again = name == "output" and name in self.tables and self.tables[name].values != table.values
        if again and "w_o" in self.tables and "projected" not in self.tables:
            # After W_o, "output" means the projected output.
            name = "projected"
        if name in self.tables:
            if self.tables[name].values == table.values:
                return  # said again
            raise RegardError(
                f"{name} is given twice; give each table once, or check the two examples one after the other."
            )
        self.tables[name] = table

    def add_head(self, rows: Sequence[Sequence[str]]) -> None:
        """Add the output of one head; W_o multiplies the joined heads."""
        if self.heads and len(self.heads[0]) != len(rows):
            raise RegardError(f"the heads have {len(self.heads[0])} and {len(rows)} rows; give equally many.")
        self.heads.append([list(row) for row in rows])

    def add_maps(self, name: str, maps: Sequence[Sequence[Sequence[str]]], *, trimmed: bool = False) -> None:
        """Add several tables of one name, such as those of several heads; each becomes an example."""
        if name in self.maps or name in self.tables:
            raise RegardError(f"{name} is given twice; give each table once.")
        turned = [list(zip(*rows, strict=True)) if name == "k_t" else rows for rows in maps]
        name = "k" if name == "k_t" else name
        self.maps[name] = [self._table(name, rows, False, (), (), trimmed) for rows in turned]

    def split(self) -> Iterator[Draft]:
        """One example, or one per map; tables that occur once are used in all."""
        if self.heads and "output" not in self.tables:
            joined = [[x for part in parts for x in part] for parts in zip(*self.heads, strict=True)]
            self.add("output", joined, flat=len(joined) == 1)
        elif len(self.heads) > 1:
            # The joined heads are printed too: check them.
            for number, rows in enumerate(self.heads):
                self.tables[f"head {number + 1}"] = self._table("head", rows, len(rows) == 1, (), (), False)
        most = max(map(len, self.maps.values()), default=0)
        if not most:
            yield self
            return
        first = max(self.maps, key=lambda name: len(self.maps[name]))
        for name, tables in self.maps.items():
            if most % len(tables):
                raise RegardError(
                    f"{first} has {most} maps and {name} has {len(tables)}; check one head at a time."
                )
        for number in range(most):
            own = {name: tables[number * len(tables) // most] for name, tables in self.maps.items()}
            name = f"{self.name}, map {number}" if self.name else f"map {number}"
            yield replace(self, tables={**self.tables, **own}, maps={}, name=name, notes=list(self.notes))

    @staticmethod
    def _table(
        name: str,
        texts: Sequence[Sequence[str]],
        flat: bool,
        rows: Sequence[str],
        columns: Sequence[str],
        trimmed: bool,
    ) -> Table:
        _check_rows(name, texts, rows)
        cells = tuple(tuple(_cell(name, t) for t in row) for row in texts)
        if sum(map(len, cells)) > MOST_CELLS:
            raise RegardError(f"{name} has more than {MOST_CELLS:,} cells; check a part that was printed.")
        if trimmed or any(re.fullmatch(r"-?\d+\.", cell.text) for row in cells for cell in row):
            most = max(cell.decimals for row in cells for cell in row)
            cells = tuple(tuple(cell.widened(most) for cell in row) for row in cells)
        return Table(cells, flat, tuple(rows), tuple(columns))

    def add_row(self, name: str, label: str, row: Sequence[str]) -> None:
        """Add one row of a table that is given vector by vector: k1 = …, k2 = …."""
        labels = self.indexed.setdefault(name, [])
        if label in labels:
            raise RegardError(f"{name}{label} is given twice; give each vector once.")
        labels.append(label)
        before = self.tables.pop(name, None)
        cells = () if before is None else before.cells
        if cells and len(cells[0]) != len(row):
            raise RegardError(
                f"{name}{labels[0]} has {len(cells[0])} numbers and {name}{label} has {len(row)}; "
                "they must have equally many."
            )
        self.tables[name] = Table((*cells, tuple(_cell(name, t) for t in row)), rows=tuple(labels))

    def set_mask(self, texts: Sequence[Sequence[str]]) -> None:
        """Set the mask: 1 or True means may attend; or an additive mask of 0 and −∞."""
        if self.mask is not None:
            raise RegardError("mask is given twice; give it once.")
        _check_rows("mask", texts, ())
        words = [[str(t).strip().lower().replace("−", "-") for t in row] for row in texts]
        additive = any(word in ("-inf", "-∞") for row in words for word in row)
        for word in (word for row in words for word in row):
            if word not in (*YES, *NO) and not re.fullmatch(r"-?\d+(\.\d*)?(e\d+)?", word):
                raise RegardError(f"mask holds {word!r}; write 1 where a query may look and 0 where not.")
        self.mask = [
            [not _hides(word) if additive else word in YES or word == "1.0" for word in row] for row in words
        ]

    def set_scale(self, scale: Scale) -> None:
        """Set the scale; raises if another one was given before."""
        if self.scale is not None and not math.isclose(self.scale.value, scale.value, rel_tol=0.02):
            raise RegardError(
                f"the scale is given twice, {self.scale.words} and {scale.words}; give the one that was used."
            )
        self.scale = self.scale if self.scale is not None and self.scale.root else scale


def scale_in(text: str) -> Scale | None:
    """The scale in a sentence or a formula.

    >>> scale_in("the same logits divided by sqrt(64)").value, scale_in("√d_k = 8").words
    (0.125, 'divided by 8')
    >>> scale_in("d_k = 16").root
    16.0
    >>> scale_in("a cat")
    """
    plain = re.sub(r"\\?sqrt\s*[({]?\s*([\w.]+)\s*[)}]?", r"√\1", text.replace("−", "-"))
    plain = re.sub(r"√\s*[({]\s*([\w.]+)\s*[)}]", r"√\1", plain)
    number = r"(\d+(?:\.\d+)?)"
    root = re.search(rf"√\s*{number}", plain)
    if root:
        return Scale.root_of(float(root[1]))
    stated = re.search(rf"(?<![√\w])d(?:_?\{{?k\}}?|_?head|_?key)?\s*(?:=|is|of)\s*{number}", plain)
    divisor = re.search(rf"√\s*d\w*\s*(?:=|≈|is)\s*{number}", plain)
    if divisor:
        by = float(divisor[1])
        return Scale.root_of(float(stated[1])) if stated else Scale(1 / by, f"divided by {divisor[1]}")
    if stated:
        return Scale.root_of(float(stated[1]))
    warm = re.search(rf"\btemperature\s*(?:T\s*)?(?:=|is|of|:)?\s*{number}", plain, re.IGNORECASE)
    if warm and float(warm[1]):
        return Scale(1 / float(warm[1]), f"divided by {warm[1]}")
    by = re.search(rf"(?:divided? by|dividing by|scaled by 1/|1\s*/)\s*{number}", plain)
    return Scale(1 / float(by[1]), f"divided by {by[1]}") if by and float(by[1]) else None


def _with_hidden(name: str, texts: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """A map whose cells above the diagonal are empty, as causal maps are often printed."""
    opened = [[str(cell).strip() in ("", "-", "—", "–", ".", "·") for cell in row] for row in texts]
    square = all(len(row) == len(texts) for row in texts) and len(texts) > 1
    if not square or any(x != (j > i) for i, row in enumerate(opened) for j, x in enumerate(row)):
        return texts
    hidden = "0" if name in ("weights", "exps") else "-∞"
    return [[hidden if j > i else cell for j, cell in enumerate(row)] for i, row in enumerate(texts)]


def _turned(rows: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether the labels of a map show that its rows are keys and its columns queries."""

    def all_are(letter: str, word: str, labels: Sequence[str]) -> bool:
        named = rf"\W*(?:{letter}[\s_]*\{{?\d+\}}?|{word}\b.*)\W*"
        return bool(labels) and all(re.fullmatch(named, label, re.IGNORECASE) for label in labels)

    return all_are("k", "key", rows) and all_are("q", "query", columns)


def _hides(word: str) -> bool:
    return word in ("-inf", "-∞") or (word.startswith("-") and float(word) < -1000)


def _cell(name: str, text: str) -> Numeral:
    if str(text).strip().lower() == "nan":
        raise RegardError(f"{name} holds nan, and nothing follows from nan; give numbers.")
    try:
        return numeral(text)
    except RegardError as error:
        raise RegardError(
            f"{name} holds {text.strip()!r}, which is no number; write digits, such as 0.40."
        ) from error


def _check_rows(name: str, texts: Sequence[Sequence[str]], rows: Sequence[str]) -> None:
    """Raise if a table has missing cells, with the place of the first one."""
    if not texts or not any(texts):
        raise RegardError(f"{name} holds no number; give its numbers after the name.")
    widest = max(map(len, texts))
    for number, row in enumerate(texts):
        where = f"row {number}" + (f" ({rows[number]})" if number < len(rows) else "")
        if len(row) != widest:
            raise RegardError(
                f"{name} has rows of {widest} and {len(row)} cells; {where} is short. Give every cell."
            )
        for column, text in enumerate(row):
            if str(text).strip() in ("", "-", "—", "?", "None", "null", "…", "..."):
                raise RegardError(f"{name} has no number in {where}, column {column}. Give every cell.")
