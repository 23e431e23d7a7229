"""Checks printed sizes: parameters of projections; entries, bytes and FLOPs of a score matrix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.checking.numeral import Numeral, numeral
from regard.checking.verdict import Cell, CheckedExample, CheckedStep, Verdict
from regard.errors import RegardError

__all__ = ["Counts", "checked_counts", "counts_in"]

BYTES = {
    "float64": 8,
    "float32": 4,
    "fp32": 4,
    "float16": 2,
    "fp16": 2,
    "bf16": 2,
    "bfloat16": 2,
    "int8": 1,
    "fp8": 1,
}
POWERS = {"thousands": "K", "millions": "M", "billions": "B"}
MODEL = ("d_model", "heads", "kv_heads", "d_k", "layers")
SIZES = ("entries", "bytes", "flops", "qk_flops")


@dataclass(frozen=True)
class Counts:
    """A model's shape or lengths, and the sizes printed for them."""

    name: str
    given: dict[str, Any]


def counts_in(given: Mapping[str, Any], name: str) -> Counts | None:
    """A mapping as counts, if it is about sizes.

    >>> counts_in({"n": 1000, "entries": "1000000"}, "table").given["entries"]
    '1000000'
    """
    keys = set(given)
    if {"d_model", "heads"} <= keys or ("n" in keys and keys & set(SIZES)):
        return Counts(name, dict(given))
    return None


@dataclass(frozen=True)
class _Size:
    """One printed size, the exact one, and the results of mistakes."""

    name: str
    formula: str
    printed: Numeral
    exact: int
    mistakes: tuple[tuple[str, int], ...] = ()

    def checked(self) -> tuple[CheckedStep, str]:
        stand = self.printed.stands(self.exact)
        verdict, cause, note = Verdict.RIGHT, "", ""
        if "binary" in stand:
            note = f"{self.name}: {self.printed.text} is right if K, M and G are powers of 1024."
        if stand == "wrong":
            found = [cause for cause, value in self.mistakes if self.printed.stands(value) != "wrong"]
            verdict, cause = Verdict.WRONG, found[0] if found else "no known mistake gives this number"
        cell = Cell(0, 0, self.printed, verdict, float(self.exact), cause)
        return CheckedStep(self.name, f"{self.name} = {self.formula}", ((cell,),)), note


def checked_counts(counts: Counts) -> CheckedExample | None:
    """The verdicts about printed sizes; None if a shape is given but no size."""
    printed = counts.given.get("printed")
    given = {**counts.given, **(printed if isinstance(printed, Mapping) else {})}
    sizes = list(_model(given) if "d_model" in given else _matrix(given, counts.name))
    if not sizes:
        return None
    steps = [size.checked() for size in sizes]
    notes = tuple(note for _, note in steps if note)
    return CheckedExample(counts.name, tuple(step for step, _ in steps), notes)


def _model(given: Mapping[str, Any]) -> Iterable[_Size]:
    shape = {key: _whole(key, given[key]) for key in MODEL if key in given}
    d_model, heads = shape["d_model"], shape["heads"]
    kv_heads, width = shape.get("kv_heads", heads), d_model // heads
    if "d_k" in given:
        yield _Size("d_k", "d_model / heads", numeral(str(given["d_k"])), width)
        width = shape["d_k"]
    large, small = d_model * heads * width, d_model * kv_heads * width
    shared = (("every head was counted with keys of its own", large),)
    for name in ("w_q", "w_k", "w_v", "w_o"):
        exact, formula = (large, "heads") if name in ("w_q", "w_o") else (small, "kv_heads")
        if name in given:
            text = f"d_model × {formula} × d_k"
            yield _Size(name, text, numeral(str(given[name])), exact, shared if exact == small else ())
    layer = 2 * large + 2 * small
    wrong = (("every head was counted with keys of its own", 4 * large), ("W_o was left out", layer - large))
    for key, value in given.items():
        base, _, power = key.rpartition("_")
        if base in ("per_layer", "all_layers") and power in POWERS:
            number = numeral(f"{value}{POWERS[power]}")
            if base == "per_layer":
                yield _Size(base, "W_q + W_k + W_v + W_o", number, layer, wrong)
            elif "layers" in shape:
                times = shape["layers"]
                yield _Size(
                    base, "layers × per_layer", number, times * layer, tuple((c, times * x) for c, x in wrong)
                )


def _matrix(given: Mapping[str, Any], name: str) -> Iterable[_Size]:
    printed = {key: numeral(str(given[key])) for key in SIZES if key in given}
    lengths = _lengths(str(given["n"]))
    # 1K is 1000 or 1024: choose the one that makes more of the printed sizes exact.
    n = max(reversed(lengths), key=lambda n: _exactness(n, name, printed))
    entries = n * n
    once = (("it grows with n, not with n²", n), ("rows and columns were added, not multiplied", 2 * n))
    if "entries" in printed:
        yield _Size("entries", "n²", printed["entries"], entries, once)
    if "bytes" in printed:
        size = _item(name, entries, printed["bytes"])
        others = tuple(
            (f"{other} bytes were counted for a number of {size}", other * entries) for other in (1, 2, 4, 8)
        )
        yield _Size("bytes", f"n² × {size}", printed["bytes"], size * entries, (*others, *once))
    for key in ("flops", "qk_flops"):
        if key in printed:
            dim = _width(name, given, entries, printed[key])
            halved = (("a multiplication and an addition were counted as one", entries * dim),)
            yield _Size(key, f"2 n² × {dim}", printed[key], 2 * entries * dim, halved)


def _exactness(n: int, name: str, printed: Mapping[str, Numeral]) -> int:
    points = {"exact": 2, "binary": 2, "rounded": 1, "rounded binary": 1, "wrong": 0}
    found = 0
    if "entries" in printed:
        found += points[printed["entries"].stands(n * n)]
    if "bytes" in printed:
        found += points[printed["bytes"].stands(n * n * _item(name, n * n, printed["bytes"]))]
    return found


def _lengths(text: str) -> Sequence[int]:
    """The possible values of n: 1K is 1000 or 1024."""
    found = re.fullmatch(r"(\d+)\s*([kKmM]?)", text.strip())
    if not found:
        raise RegardError(f"n is {text!r}; write a length such as 1024 or 4K.")
    number, power = int(found[1]), {"": 0, "k": 1, "m": 2}[found[2].lower()]
    return (number * 1000**power, number * 1024**power) if power else (number,)


def _item(name: str, entries: int, printed: Numeral) -> int:
    told = re.search("|".join(BYTES), name)
    if told:
        return BYTES[told[0]]
    return min((1, 2, 4, 8), key=lambda size: abs(printed.value - size * entries))


def _width(name: str, given: Mapping[str, Any], entries: int, printed: Numeral) -> int:
    told = re.search(r"(?:^|_)d(\d+)", name)
    if "d" in given or "d_k" in given:
        return _whole("d_k", given.get("d_k", given.get("d")))
    return int(told[1]) if told else max(1, round(printed.value / (2 * entries)))


def _whole(name: str, value: Any) -> int:
    number = numeral(str(value)).value
    if number != int(number) or number < 1:
        raise RegardError(f"{name} is {value}; it must be a whole number, at least 1.")
    return int(number)
