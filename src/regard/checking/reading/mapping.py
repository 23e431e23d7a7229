"""Reads examples from JSON or Python dictionaries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from regard.checking.counts import Counts, counts_in
from regard.checking.example import Scale
from regard.checking.names import GIVEN, STEPS, TABLES, step_named
from regard.checking.numeral import numeral
from regard.checking.reading.draft import Draft, is_head, scale_in
from regard.errors import RegardError

__all__ = ["drafts_of", "from_json", "scale_of"]


class Digits(str):
    """A number of a JSON document with its original digits."""

    __slots__ = ()


def from_json(text: str) -> Any:
    """Parse JSON with the original digits of numbers; None if the text isn't JSON.

    >>> from_json('{"weights": [0.40, 0.6]}')
    {'weights': ['0.40', '0.6']}
    """
    for written in (text, _as_json(text)):
        try:
            return json.loads(
                written, parse_float=Digits, parse_int=Digits, parse_constant=Digits, object_pairs_hook=_once
            )
        except json.JSONDecodeError:
            continue
    return None


def _as_json(text: str) -> str:
    """A printed Python dictionary as JSON."""
    if not text.strip().startswith("{"):
        return text
    text = re.sub(
        r"\b(?:np\.|numpy\.)?(?:array|tensor)\((\[[^()]*\])(?:,[^()]*)?\)", r"\1", text.replace("'", '"')
    )
    text = re.sub(r",(?=\s*[}\]])", "", re.sub(r"(?<=\d)\.(?=\s*[,\]}])", "", text))
    return re.sub(r"\bTrue\b", "true", re.sub(r"\bFalse\b", "false", re.sub(r"\bNone\b", "null", text)))


def drafts_of(given: Mapping[str, Any], name: str = "") -> Iterator[Draft | Counts]:
    """The examples in a mapping: one whose keys are steps, or several by name."""
    if (counts := counts_in(given, name)) is not None:
        yield counts
        return
    known = {key: step_named(key) for key in given if isinstance(key, str)}
    unnamed = "printed" in given or "vectors" in given
    if not unnamed and not any(step in TABLES for step in known.values()):
        inner = [(key, value) for key, value in given.items() if isinstance(value, Mapping)]
        rows = [(key, value) for key, value in given.items() if _is_rows(value)]
        sized = [(key, value) for key, value in given.items() if _is_size(key, value)]
        if not inner and not rows and not sized:
            raise RegardError(
                f"nothing in {name or 'the document'} is called as a step of attention is; it has "
                f"{', '.join(map(repr, given)) or 'nothing'}. Names are {', '.join(STEPS)}."
            )
        for key, value in inner:
            yield from drafts_of(value, key)
        for key, values in rows:
            for number, value in enumerate(values):
                yield from drafts_of(
                    value, f"{key if inner or len(rows) > 1 or not name else name}, {number + 1}"
                )
        for key, value in sized:
            n = re.search(r"(\d+k)", key)
            yield Counts(key, {"n": n[1] if n else "", "bytes": value})
        return
    yield from _draft(given, known, name).split()


def _draft(given: Mapping[str, Any], known: Mapping[str, str | None], name: str) -> Draft:
    draft = Draft(name=name)
    flat: dict[str, Any] = {}
    for key, value in given.items():
        if key == "printed" and isinstance(value, Mapping) and any(step_named(k) in TABLES for k in value):
            for inner, table in value.items():
                _put(flat, step_named(inner) or inner, table, inner)
        elif key == "printed":
            flat["printed"] = value
        else:
            _put(flat, known.get(key) or key, value, key)
    _vectors(draft, flat)
    for key, value in flat.items():
        _keep(draft, key, value)
    return draft


def _put(flat: dict[str, Any], key: str, value: Any, said: str) -> None:
    if key in flat:
        raise RegardError(f"{key} is given twice, the second time as {said!r}; give each table once.")
    flat[key] = value


def _keep(draft: Draft, key: str, value: Any) -> None:
    """Add one entry: a table, a setting, or prose that may contain the scale."""
    if key in (*TABLES, "mask"):
        _table(draft, key, value)
    elif key == "heads" and not isinstance(value, str | Mapping):
        for head in _listed(value):
            draft.add_head(_matrix(head))
    elif is_head(key) and not isinstance(value, str | Mapping):
        draft.add_head(_matrix(value))
    elif key == "printed":
        _table(draft, _guessed(draft, value), value)
    elif key == "causal":
        draft.causal = str(value).lower() in ("true", "1", "yes")
    elif key in ("tokens", "key_tokens"):
        words = value.split() if isinstance(value, str) else value
        setattr(draft, key, tuple(str(word) for word in words))
    elif key in ("scale", "divisor", "dim"):
        draft.set_scale(scale_of(key, value))
    elif isinstance(value, str) and not isinstance(value, Digits):
        if (scale := scale_in(value)) is not None:
            draft.set_scale(scale)
    elif isinstance(value, int | float | Digits | list | tuple | Mapping) or hasattr(value, "tolist"):
        raise RegardError(
            f"no step is called {key!r}; names are {', '.join((*GIVEN, *STEPS))}, mask, scale, causal and "
            "tokens."
        )


def _listed(value: Any) -> list[Any]:
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _matrix(value: Any) -> list[list[str]]:
    """Rows of digits; a vector is one row."""
    rows = _listed(value)
    nested = bool(rows) and (isinstance(rows[0], list | tuple) or hasattr(rows[0], "tolist"))
    return [[str(cell) for cell in _listed(row)] for row in (rows if nested else [rows])]


def scale_of(key: str, value: Any) -> Scale:
    """The scale from a value of `scale`, of √d (`divisor`), or of d (`dim`)."""
    if isinstance(value, str) and not isinstance(value, Digits) and (told := scale_in(value)) is not None:
        return told
    number = numeral(str(value))
    if not number.value > 0:
        raise RegardError(f"{key} is {value}; it must be a positive number.")
    if key == "dim":
        return Scale.root_of(number.value)
    if key == "divisor":
        return Scale(1 / number.value, f"divided by {number.text}")
    return Scale(number.value, f"times {number.text}")


def _vectors(draft: Draft, flat: dict[str, Any]) -> None:
    """Word vectors by word; one of them is the query, the others are keys."""
    vectors = flat.get("x")
    if not isinstance(vectors, Mapping) or not isinstance(flat.get("q"), str):
        return
    word, printed = flat.pop("q"), flat.get("printed", flat.get("scores"))
    del flat["x"]
    if word not in vectors:
        raise RegardError(f"the query {word!r} is none of the vectors, {', '.join(map(repr, vectors))}.")
    others = [k for k in vectors if (k in printed if isinstance(printed, Mapping) else k != word)]
    draft.tokens, draft.key_tokens = (word,), tuple(others)
    flat["q"], flat["k"] = vectors[word], [vectors[other] for other in others]
    if "printed" in flat and "scores" not in flat:
        flat["scores"] = flat.pop("printed")


def _guessed(draft: Draft, value: Any) -> str:
    """The step of an unnamed table: rows that sum to 1 are weights, others scaled scores."""
    texts = [str(x) for x in (value.values() if isinstance(value, Mapping) else _flattened(value))]
    numbers = [numeral(text) for text in texts]
    if "scores" not in draft.tables:
        return "scores"
    total = sum(number.value for number in numbers)
    shares = all(0 <= number.value <= 1 for number in numbers) and abs(total - 1) < 0.1
    return "weights" if shares or (draft.scale is None and all(n.value >= 0 for n in numbers)) else "scaled"


def _flattened(value: Any) -> Iterator[Any]:
    for item in value:
        if isinstance(item, list | tuple):
            yield from _flattened(item)
        else:
            yield item


def _table(draft: Draft, name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        draft.add(name, [[_text(v) for v in value.values()]], flat=True, columns=[str(k) for k in value])
        return
    if (maps := _maps(value)) is not None:
        value, *others = maps
        if others and name != "mask":
            tables = [_rows(name, each) for each in maps]
            draft.add_maps(name, [rows for rows, _, _ in tables], trimmed=any(t for *_, t in tables))
            return
    if isinstance(value, str) and not isinstance(value, Digits):
        if name == "mask" and value.strip().lower() == "causal":
            draft.causal = True
            return
        from regard.checking.reading.numbers import rows_of

        rows = rows_of(value)
        draft.add(name, rows, flat=len(rows) == 1 and "[[" not in value.replace(" ", ""))
        return
    rows, flat, trimmed = _rows(name, value)
    draft.add(name, rows, flat=flat, trimmed=trimmed)


def _maps(value: Any) -> list[Any] | None:
    """The maps in an array with leading axes such as batch and heads; None if it has at most two axes.

    >>> _maps([[[["1"]], [["2"]]]])
    [[['1']], [['2']]]
    """
    if hasattr(value, "reshape"):
        return None if len(value.shape) < 3 else list(value.reshape((-1, *value.shape[-2:])))
    deep = isinstance(value, list | tuple) and all(
        isinstance(row, list | tuple) and row and isinstance(row[0], list | tuple) for row in value
    )
    if not value or not deep:
        return None
    return [each for inner in value for each in (_maps(inner) or [inner])]


def _rows(name: str, value: Any) -> tuple[list[list[str]], bool, bool]:
    """The cells of lists or an array, whether the list was flat, and whether trailing zeros may be
    missing."""
    digits = {"float32": 7, "float16": 3, "bfloat16": 2}.get(
        str(getattr(value, "dtype", "")).rpartition(".")[2]
    )
    value = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, list | tuple):
        value = [value]
    nested = [isinstance(row, list | tuple) for row in value]
    if any(nested) and not all(nested):
        raise RegardError(f"{name} mixes numbers and lists; give a list of rows.")
    rows = [list(row) for row in value] if all(nested) and value else [list(value)]
    trimmed = any(isinstance(x, float) for row in rows for x in row)
    return [[_text(x, digits) for x in row] for row in rows], not (value and all(nested)), trimmed


def _text(value: Any, digits: int | None = None) -> str:
    if isinstance(value, float) and digits is not None:
        return f"{value:.{digits}g}"
    # Python prints whole numbers of type float with a decimal point.
    return (
        str(int(value))
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15
        else str(value)
    )


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _is_size(key: str, value: Any) -> bool:
    """Whether an entry such as "float16_32k_per_head": "about 2 GB" prints the bytes of a score matrix."""
    return isinstance(value, str) and bool(
        re.search(r"\d\s*[KMG]B$", value) and re.search(r"_\d+k\b|_\d+k_", key)
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RegardError(f"{key} is given twice; give each table once.")
        found[key] = value
    return found
