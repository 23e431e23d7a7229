"""Reads one example from pasted text, with names and numbers in many notations."""

from __future__ import annotations

import re

from regard.checking.equations import equations_in
from regard.checking.names import TABLES as STEPS
from regard.checking.names import step_named
from regard.checking.reading.columns import with_columns
from regard.checking.reading.dialects import without_dialects
from regard.checking.reading.draft import MAPS, Draft, is_head, scale_in
from regard.checking.reading.entries import without_entries
from regard.checking.reading.latex import without_latex
from regard.checking.reading.lists import HELD, held_lists
from regard.checking.reading.markdown import add_table, is_row
from regard.checking.reading.numbers import CELL, cleaned, maps_of, only_numbers, pairs_in, rows_of
from regard.checking.reading.told import sentences, told
from regard.checking.reading.transcript import without_prompts

__all__ = ["JOINED", "Text"]

TABLES = (*STEPS, "mask")
_INDEXED = re.compile(
    r"^(?:[-*•]\s*)?([qkvx]|(?<![a-z])(?:query|key|value)(?=[\s_]*\d))[\s_]*\{?"
    r"(\d+|(?<=_)\w+|(?<=_\{)\w+)\}?$",
    re.IGNORECASE,
)
# Scores of vectors with themselves, without projections.
_OWN = re.compile(r"\bX\s*[@·*]?\s*X\s*(?:ᵀ|⊤|\^\{?T|\.T\b)")
# A word before its vector; the first one follows the name of the table.
_OWNED = re.compile(
    r"^[\s,;]*(?:and\s+)?(?:(?P<step>[^:=→\x01]+):\s*)?(?P<word>['\"“]?\w[\w'’-]*['\"”]?)\s*(?:→|->|=>|=|:)\s*$"
)
# Words and calls for joining heads.
JOINED = re.compile(
    r"\b(?:concat\w*|hstack|side by side|joined)\b|\b(?:torch|np|numpy|tf|jnp|mx)\.(?:cat|hstack)\b"
    r"|\b[hv]cat\(",
    re.IGNORECASE,
)
_JOIN = re.compile(
    r"^[\W\d]*(?:step\s*\d+\W+)?(?:the\s+)?(?:\w+\s*=\s*)?(?:(?:torch|np|numpy|tf|jnp|mx)\.)?"
    r"(?:concat\w*|cat|hstack|hcat|joined)\b[^=:\x01]*[\W]*$",
    re.IGNORECASE,
)
_SOFTMAX = re.compile(
    r"\W*softmax\s*\(\s*\x01(?P<list>\d+)\x02\s*(?:[/÷]\s*(?P<by>[√\d.]+)\s*)?\)\s*[=≈→:]+\s*(?P<rest>.+)",
    re.IGNORECASE,
)


class Text:
    """One pasted text, read line by line."""

    def __init__(self, text: str) -> None:
        self.held: list[str] = []
        self.draft = Draft()
        plain = cleaned(with_columns(without_dialects(without_latex(without_prompts(text)))))
        plain = without_entries(plain, self.draft)
        self.draft.own = _OWN.search(plain) is not None
        self.joined = JOINED.search(plain) is not None
        self.text = held_lists(plain, self.held)
        self.pending: str | None = None
        self.rows: list[list[str]] = []
        self.labels: list[str] = []

    def read(self) -> Draft:
        lines = sentences(self.text)
        at = 0
        while at < len(lines):
            end = at
            while end < len(lines) and is_row(lines[end]):
                end += 1
            if end - at >= 2:
                self._finish()
                add_table(self.draft, [self._restored(line) for line in lines[at:end]], self.pending)
                self.pending, at = None, end
                continue
            self._line(lines[at].strip())
            at += 1
        self._finish()
        return self.draft

    def _restored(self, text: str) -> str:
        return HELD.sub(lambda m: self.held[int(m[1])], text)

    def _line(self, line: str) -> None:
        if not line or re.fullmatch(r"[-=_*#`~]{3,}\w*", line):
            if self.rows:
                self._finish()
                self.pending = None
            return
        if re.match(r"(?i)#{1,6}\s|\W*step\s*\d", line):
            self._finish()
            self.pending = None
        label = re.sub(r"^[\W_]+|[\W_]+$", "", line)
        joins = _JOIN.match(re.sub(r",?\s*(?:dim|axis)\s*=\s*-?\d", "", line))
        if self.joined and (is_head(label, True) or joins):
            self._finish()
            self.pending = label if is_head(label, True) else "output"
            return
        if self._of_softmax(line):
            return
        if HELD.search(line):
            self._bracketed(line)
        elif self._said(line) or self._row(line) or self._sentence(line):
            return
        else:
            self._prose(line)

    def _of_softmax(self, line: str) -> bool:
        """A list, its divisor and its weights: softmax([2, 1, 0] / 0.5) = 0.867, 0.117, 0.016."""
        found = _SOFTMAX.fullmatch(line)
        if found is None or "scores" in self.draft.tables:
            return False
        numbers = only_numbers(self._restored(found["rest"]).strip("[]() ."))
        scores = rows_of(self.held[int(found["list"])])
        if numbers is None or len(scores) != 1 or len(numbers) != len(scores[0]):
            return False
        self._finish()
        self.draft.add("scores", scores, flat=True)
        self.draft.add("weights", [numbers], flat=True)
        if found["by"]:
            self._settings(f"divided by {found['by']}")
        return True

    def _sentence(self, line: str) -> bool:
        """Words that name a step and then its numbers: dividing by √64 gives 2.3, 0.26, -0.20."""
        row = rf"(?:{CELL})(?:[\s,]+(?:and\s+)?(?:{CELL}))+"
        found = re.match(rf"^(?P<words>.*(?:[^\W\d]\)?|[\d)](?=\s*[:=])))[\s:=]+(?P<rest>{row})\.?$", line)
        name = told(found["words"]) if found else None
        numbers = only_numbers(found["rest"]) if found else None
        if name is None or numbers is None or name in self.draft.tables:
            return False
        self._finish()
        self.draft.add(name, [numbers], flat=True)
        self._settings(line)
        return True

    def _bracketed(self, line: str) -> None:
        """Bracketed lists, each with the words before it: Q = […], softmax([…]) = […]."""
        self._finish()
        at, before = 0, ""
        named: list[tuple[str, list[str]]] = []
        group: str | None = None
        for found in HELD.finditer(line):
            words, text = line[at : found.start()], self.held[int(found[1])]
            owned = _OWNED.match(words)
            if owned and (group := self._group(owned, group)):
                at = found.end()
                self.draft.add_row(group, owned["word"].strip("'\"“”"), rows_of(text)[0])
                continue
            name = self._name(words, before) or self._divided(words, line[found.end() :])
            at = found.end()
            if name is None and named and re.fullmatch(r"[\s,;]*(?:and\s*)?", words) and _is_vector(text):
                named[-1][1].append(text)  # one vector of several: V = [1, 2], [3, 4]
                continue
            before = name or before
            if name is None:
                self.draft.ignored.append(words.strip(" =:,;") or text[:20])
                continue
            named.append((name, [text]))
        for name, texts in named:
            known = (*TABLES, "tokens", "key_tokens")
            if name not in known and not _INDEXED.match(name) and not is_head(name, self.joined):
                self.draft.ignored.append(name)
            self._take(name, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        self._settings(HELD.sub("", line))
        # In a session, the output of a call is below it.
        self.pending = (
            "weights" if re.fullmatch(r"(?i)softmax\s*\(\s*\x01\d+\x02\s*\)", line.strip()) else None
        )

    @staticmethod
    def _group(owned: re.Match[str], before: str | None) -> str | None:
        """The table of a vector with a word: Keys: cat → [1, 0], dog → [0, 1]."""
        if owned["step"]:
            name = _named(owned["step"])
            return name if name in ("q", "k", "v", "x") else None
        return None if _named(owned["word"]) in TABLES else before

    def _name(self, words: str, before: str) -> str | None:
        """The step named by the words before a list."""
        label = re.sub(r"^[\s,;.)•-]+|[\s:=≈(]+$|^and\s+", "", re.sub(r"[*`]+", "", words))
        label = re.sub(r"(?i)^(?:step\s*\d+|\d+)[.:)]\s*", "", label)
        if re.search(r"softmax\s*\(\s*$", words, re.IGNORECASE):
            return "scores"
        if before == "scores" and re.search(r"[=≈→]\s*$", words):
            return (
                "scaled" if re.search(r"/|÷|√|×", words) and "scaled" not in self.draft.tables else "weights"
            )
        if not label:
            return self.pending if self.pending and not before else None
        if _INDEXED.match(label) or is_head(label, self.joined):
            return label.lower()
        named = _named(label) or told(label)
        if named in ("scale", "divisor", "dim", "mask"):
            named = told(label) or named
        return named or (self.pending if not before and not re.search(r"[=:≈]\s*$", words) else None)

    def _divided(self, words: str, after: str) -> str | None:
        """Unnamed scores that are followed by a divisor: […] / 8 = […]."""
        if not words.strip() and re.match(
            r"[\s\-=>→⟶]*softmax\b[^\x01=:]*[=:≈→⟶>\s-]+\x01", after, re.IGNORECASE
        ):
            return "scores"
        by = re.match(r"\s*[/÷]\s*([√\w.(){}]+)\s*[=≈→]", after)
        if words.strip() or by is None:
            return None
        self._settings(f"divided by {by[1]}")
        return "scores"

    def _take(self, name: str, text: str) -> None:
        indexed = _INDEXED.match(name) if name not in TABLES else None
        rows = rows_of(text)
        if is_head(name, self.joined):
            self.draft.add_head(rows)
        elif indexed:
            self.draft.add_row(indexed[1][0].lower(), indexed[2], rows[0])
        elif name in STEPS and (maps := maps_of(text)):
            self.draft.add_maps(name, maps)
        elif name in TABLES:
            self.draft.add(name, rows, flat="[[" not in re.sub(r"\s", "", text))
        elif name in ("tokens", "key_tokens"):
            setattr(self.draft, name, tuple(cell.strip("'\"") for cell in rows[0]))

    def _said(self, line: str) -> bool:
        """A name and its numbers or its value in one line: `scores: 18, 2`, `√d_k = 8`, `mask: causal`."""
        line = re.sub(r"(?i)\bnan\b", "nan", line)
        found = re.match(r"^(?P<label>[^:=≈]+?)\s*(?::=|[:=≈])\s*(?P<rest>.*)$", line)
        if self._two_lists(line) or self._heading(line, found):
            return True
        if found is None:
            return False
        label, rest = found["label"], found["rest"].strip()
        numbers, name = only_numbers(rest), _named(label)
        indexed = _INDEXED.match(re.sub(r"[\s*`$]", "", label))
        if indexed and numbers and name not in TABLES:
            self.draft.add_row(indexed[1][0].lower(), indexed[2], numbers)
        elif name in TABLES and numbers:
            self._finish()
            self.draft.add(name, [numbers], flat=True)
            self.pending = None
        elif name in TABLES and not rest:
            self._finish()
            self.pending = name
        elif name in ("tokens", "key_tokens"):
            setattr(self.draft, name, tuple(word.strip("'\"") for word in re.split(r"[\s,|]+", rest) if word))
        elif name == "mask" or name in ("scale", "divisor", "dim"):
            self._setting(str(name), rest, line)
        elif name in STEPS and (pairs := pairs_in(rest)):
            self._finish()
            self.draft.add(name, [list(pairs.values())], flat=True, columns=list(pairs))
            self.draft.key_tokens = self.draft.key_tokens or tuple(pairs)
        elif numbers and self.pending and not name:
            self._add_row(label, numbers)
        else:
            return False
        return True

    def _two_lists(self, line: str) -> bool:
        """Scores and their softmax or scaled scores in one line: softmax(2, 1) = 0.73, 0.27; (4, 2) / 2 = 2,
        1."""
        softmax = re.match(
            r"^softmax\s*\((?P<label>[^()]+)\)\s*(?:/[^=≈]*)?[=≈→:]\s*(?P<rest>.+)$", line, re.IGNORECASE
        )
        divided = re.match(
            r"^\(?(?P<label>[^()=/]+)\)?\s*(?:/|÷)\s*(?P<by>[√\w().]+)\s*[=≈→:]\s*(?P<rest>.+)$", line
        )
        for match, right in ((softmax, "weights"), (divided, "scaled")):
            given = match and only_numbers(match["label"])
            made = match and only_numbers(match["rest"])
            if given and made and len(given) > 1:
                self._finish()
                self.draft.add("scores", [given], flat=True)
                self.draft.add(right, [made], flat=True)
                self._settings(line)
                return True
        return False

    def _heading(self, line: str, found: re.Match[str] | None) -> bool:
        """A heading: the whole line is a name, with or without the number of a step."""
        if found is not None and only_numbers(found["rest"]):
            return False
        name = _named(line) or (_formula_of(found) if found else None)
        bare = re.sub(
            r"^\W*(?:step\s*)?\d+\W|\s\([^()]*\)\W*$|[/÷]\s*(?:√|(?:\w+\.)?sqrt)?\s*\(?\d+\)*\W*$|(?<=\w{3})_\d+$",
            "",
            line.lower(),
        )
        if name not in TABLES or re.search(r"\d", bare):
            return False
        self._finish()
        self.pending = name
        self._settings(line)
        return True

    def _row(self, line: str) -> bool:
        """A row of the last named table, with or without a leading word."""
        if self.pending is None:
            return False
        if (numbers := only_numbers(line)) is not None:
            self._add_row("", numbers)
            return True
        found = re.match(rf"^(?P<label>\D[^\d]*?)[\s:|]+(?P<rest>(?:{CELL})(?:[\s,|]+(?:{CELL}))*)$", line)
        if found and (numbers := only_numbers(found["rest"])):
            self._add_row(found["label"], numbers)
            return True
        words = line.split()
        if not self.rows and len(words) > 1 and not re.search(r"\d", line):
            # The names of the columns, above the first row.
            self.draft.key_tokens = self.draft.key_tokens or tuple(words)
            return True
        return False

    def _add_row(self, label: str, numbers: list[str]) -> None:
        self.rows.append(numbers)
        self.labels.append(label.strip())

    def _finish(self) -> None:
        """Add the rows read so far as a table."""
        if self.rows and self.pending is not None:
            labels = self.labels if all(self.labels) else []
            if is_head(self.pending, self.joined):
                self.draft.add_head(self.rows)
            elif not labels and len(self.rows) > 1 and self.pending in MAPS and max(map(len, self.rows)) == 1:
                # One number per line: a row of the map, printed as a column.
                self.draft.add(self.pending, [[row[0] for row in self.rows]], flat=True)
            elif labels and self.pending in MAPS and all(len(r) == 1 for r in self.rows):
                # One number per word: a row of the map, printed as a column.
                self.draft.add(self.pending, [[row[0] for row in self.rows]], flat=True, columns=labels)
                if not self.draft.tokens:
                    self.draft.key_tokens = self.draft.key_tokens or tuple(labels)
            else:
                self.draft.add(self.pending, self.rows, rows=labels, flat=len(self.rows) == 1)
            self.pending = None
        self.rows, self.labels = [], []

    def _prose(self, line: str) -> None:
        self._settings(line)
        named = re.match(r"^(?P<label>[^:=≈\d]+)[:=≈](?P<rest>.*\d.*)$", line)
        if named and _named(named["label"]) in TABLES and not equations_in(line):
            self.draft.ignored.append(named["label"].strip())
        words = re.sub(
            r"\b(?:are|is|gives|give|give us|becomes|as follows|of)\b\s*$", "", line.rstrip(" :=.")
        ).split()
        if line.rstrip().endswith((":", "=")):
            for length in range(min(5, len(words)), 0, -1):
                name = _named(" ".join(words[-length:]))
                if name in TABLES:
                    self._finish()
                    self.pending = name
                    return

    def _settings(self, line: str) -> None:
        if (
            re.search(r"\bcausal(?:ly)?\b", line, re.IGNORECASE)
            and not re.search(r"\b(?:no|not|non|without)\b", line)
        ) or re.search(r"\btri[lu]\s*\(", line):
            self.draft.causal = True
        if (scale := scale_in(line)) is not None:
            self.draft.set_scale(scale)

    def _setting(self, name: str, rest: str, line: str) -> None:
        if name == "mask":
            self._settings(f"{rest} mask")
            if not self.draft.causal:
                self.pending = "mask"
        elif (scale := scale_in(line)) is not None:
            self.draft.set_scale(scale)
        elif numbers := only_numbers(rest):
            from regard.checking.reading.mapping import scale_of

            self.draft.set_scale(scale_of(name, numbers[0]))


def _is_vector(text: str) -> bool:
    return "[" not in text[1:]


def _named(label: str) -> str | None:
    return step_named(label.strip())


def _formula_of(found: re.Match[str]) -> str | None:
    """The step of a line that gives only its formula: Q = X W_Q."""
    rest = re.sub(r"\s*/\s*(?:sqrt\s*\(\s*\d+\s*\)|√\d+|\d+)(?=\W*$)", "", found["rest"])
    return None if re.search(r"\d|causal", rest) else _named(found["label"])
