"""Numbers printed in textbooks, compared with exact counts."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from regard.checking import check, numeral
from regard.checking.printed import PRINTED
from regard.cost.attention import Attention
from regard.cost.count import scores
from regard.cost.parameters import parameters
from regard.cost.presets import preset

__all__ = ["Print", "prints", "verdict"]


@dataclass(frozen=True)
class Print:
    """A published number, what it measures, and its exact value.

    >>> Print("2 / √64", "0.26", Decimal("0.25")).verdict
    'wrong'
    """

    what: str
    printed: str
    exact: int | Decimal

    @property
    def verdict(self) -> str:
        """`exact`, `rounded`, `binary` (1K means 1024), `rounded binary` or `wrong`."""
        return verdict(self.printed, self.exact)


def verdict(printed: str, exact: int | Decimal) -> str:
    """Judge a printed number by the exact one, as `regard check` does.

    Rounded means within half of the last printed digit; at exactly half, both neighbours are right. Binary
    means that the number is right if its prefix is a power of 1024, and wrong if it is a power of 1000.

    >>> [verdict("4 MB", size) for size in (4000000, 4194304, 4400000, 5400000)]
    ['exact', 'binary', 'rounded', 'wrong']
    """
    return numeral(printed).stands(exact)


def prints() -> list[Print]:
    """All printed numbers in the collection.

    >>> sorted({found.verdict for found in prints()})
    ['binary', 'exact', 'rounded', 'wrong']
    """
    return [*_maverick(), *_single_precision(), *_half_precision(), *_logits()]


def _maverick() -> list[Print]:
    shape = preset("llama-4-maverick")
    attention: Attention = shape.layers[0].attention
    printed = {"w_q": "26214400", "w_k": "5242880", "w_v": "5242880", "w_o": "26214400"}
    weights = attention.weights(shape.d_model)
    found = [Print(f"Llama 4 Maverick, {name}", printed[name], weights[name]) for name in printed]
    one, all_layers = attention.parameters(shape.d_model), parameters(shape).attention
    found.append(Print("Llama 4 Maverick, attention of a layer", "62.9M", one))
    return [*found, Print("Llama 4 Maverick, attention of all layers", "3.0B", all_layers)]


def _single_precision() -> list[Print]:
    rows = (("1K", 1, "1M", "4 MB"), ("4K", 4, "16M", "64 MB"), ("32K", 32, "1B", "4 GB"))
    found = []
    for name, thousands, entries, size in (*rows, ("128K", 128, "16B", "64 GB")):
        counted = scores(thousands * 1024, dtype="float32")
        found.append(Print(f"scores of one head, n = {name}: entries", entries, counted.entries))
        found.append(Print(f"scores of one head, n = {name}: bytes in float32", size, counted.bytes))
    counted = scores(32 * 1024, dtype="float16")
    return [*found, Print("scores of one head, n = 32K: bytes in float16", "about 2 GB", counted.bytes)]


def _half_precision() -> list[Print]:
    rows = (
        (1000, "1000000", "256000000", "2000000"),
        (10000, "100000000", "25600000000", "200000000"),
        (100000, "10000000000", "2560000000000", "20000000000"),
        (1000000, "1000000000000", "256000000000000", "2000000000000"),
    )
    found = []
    for n, entries, flops, size in rows:
        counted = scores(n, head_dim=128, dtype="float16")
        found.append(Print(f"scores of one head, n = {n}: entries", entries, counted.entries))
        found.append(Print(f"scores of one head, n = {n}, d = 128: FLOPs of Q·Kᵀ", flops, counted.flops))
        found.append(Print(f"scores of one head, n = {n}: bytes in float16", size, counted.bytes))
    return found


def _logits() -> list[Print]:
    logits, scaled = check(PRINTED["(18, 2, −2, 1) / √64"]).examples[0].steps
    return [
        Print(f"{logit.printed.text} / √64", cell.printed.text, Decimal(logit.printed.text) / 8)
        for logit, cell in zip(logits, scaled, strict=True)
    ]
