"""`Numeral`: a printed number, with the precision that its digits claim."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal

from regard.errors import RegardError

__all__ = ["NUMBER", "Numeral", "Stand", "numeral"]

Stand = str
"""How a printed number relates to the exact one: exact, rounded, binary, rounded binary or wrong."""

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:inf|∞)\b|[-+]?∞"
DECIMAL = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "B": 10**9,
    "MB": 10**6,
    "GB": 10**9,
    "%": Decimal("0.01"),
}
BINARY = {
    "": 1,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "B": 2**30,
    "MB": 2**20,
    "GB": 2**30,
    "%": Decimal("0.01"),
}
PREFIXES = ("about", "approximately", "roughly", "≈", "~")
# The relative rounding error of a computation with a few hundred terms.
NOISE = 1e-12


@dataclass(frozen=True)
class Numeral:
    """A printed number: its text, its value, and half a unit of its last digit as rounding error.

    A number without a decimal point is exact: 1 and 0 mean exactly 1 and 0.

    >>> numeral("0.40").low, numeral("0.40").high
    (0.395, 0.405)
    >>> numeral("18").half, numeral("1.1e-7").half, numeral("35%").value
    (0.0, 5e-09, 0.35)
    """

    text: str
    value: float
    half: float
    decimals: int
    unit: str = ""

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half

    @property
    def whole(self) -> bool:
        """Whether it was printed without a decimal point, so that all digits count."""
        return self.half == 0.0

    @property
    def digits(self) -> int:
        """The number of significant digits."""
        return len(re.sub(r"^0+|[eE].*|[^\d]", "", self.text.lstrip("-0.")))

    def shows(self, exact: float) -> bool:
        """Whether the exact number, rounded to the printed digits, is this one; ties may round either way.

        >>> numeral("2.3").shows(2.25), numeral("0.26").shows(0.25), numeral("0").shows(1e-22)
        (True, False, True)
        """
        if math.isinf(exact) or math.isinf(self.value):
            return exact == self.value
        slack = NOISE * max(abs(exact), 1.0 if self.whole else 0.0) + 1e-9 * self.half
        return abs(exact - self.value) <= self.half + slack

    def truncates(self, exact: float) -> bool:
        """Whether the exact number, truncated to the printed digits, is this one."""
        if math.isinf(exact) or exact * self.value < 0:
            return False
        unit = 2 * self.half or 1.0
        over = (abs(exact) - abs(self.value)) / unit
        return -1e-9 <= over < 1 - 1e-9

    def right(self, exact: float) -> str:
        """The right number with the same number of digits.

        >>> numeral("0.65").right(0.6583), numeral("1.5e-9").right(2.06e-9), numeral("35%").right(0.4512)
        ('0.66', '2.1e-9', '45%')
        """
        if not math.isfinite(exact):
            return "nan" if math.isnan(exact) else "-inf" if exact < 0 else "inf"
        if self.unit == "%":
            return f"{_half_up(100 * exact, self.decimals)}%"
        if "e" in self.text.lower():
            digits, power = f"{exact:.{self.decimals}e}".split("e")
            return f"{digits}e{int(power)}"
        if self.whole and exact != round(exact):
            return f"{exact:.4g}"
        return _half_up(exact, self.decimals)

    def widened(self, decimals: int) -> Numeral:
        """The number with this many decimals, for tables that drop trailing zeros, as numpy does."""
        if "e" in self.text.lower() or self.unit or not math.isfinite(self.value):
            return self
        return replace(self, decimals=decimals, half=0.5 * 10.0**-decimals if decimals else 0.0)

    def stands(self, exact: int | Decimal) -> Stand:
        """How it relates to an exact count; K, M, G and B may be powers of 1000 or of 1024.

        >>> [numeral("4 MB").stands(size) for size in (4000000, 4194304, 4400000, 5400000)]
        ['exact', 'binary', 'rounded', 'wrong']
        """
        value = Decimal(_bare(self.text)[0])
        half = Decimal(1).scaleb(int(value.as_tuple().exponent)) / 2
        for exactly, units in (("exact", DECIMAL), ("binary", BINARY)):
            if value * units[self.unit] == exact:
                return exactly
        if not self.unit and "." not in self.text and "e" not in self.text.lower():
            return "wrong"
        for nearly, units in (("rounded", DECIMAL), ("rounded binary", BINARY)):
            if abs(value * units[self.unit] - exact) <= half * units[self.unit]:
                return nearly
        return "wrong"


def numeral(text: str) -> Numeral:
    """Read one printed number: digits, a sign of any kind, an exponent, %, or a unit such as MB.

    >>> numeral("−0.20"), numeral("1/8").value
    (Numeral(text='-0.20', value=-0.2, half=0.005, decimals=2, unit=''), 0.125)
    """
    shown = text.strip().replace("−", "-").replace("–", "-").replace("+", "", 1)
    if re.fullmatch(r"-?(inf|∞)", shown):
        return Numeral(shown, -math.inf if shown[0] == "-" else math.inf, 0.0, 0)
    if re.fullmatch(r"-?\d+/\d+", shown) and not shown.endswith("/0"):
        top, bottom = shown.split("/")
        return Numeral(shown, int(top) / int(bottom), 0.0, 0)
    number, unit = _bare(shown)
    try:
        value = float(number)
    except ValueError:
        raise RegardError(f"{text.strip()!r} is no number; write digits, such as 0.40.") from None
    factor = float(DECIMAL[unit])
    mantissa, _, exponent = number.lower().partition("e")
    _, point, after = mantissa.partition(".")
    exact = not point and not unit and not exponent
    half = 0.0 if exact else 0.5 * 10.0 ** (int(exponent or 0) - len(after)) * factor
    return Numeral(shown, value * factor if unit else value, half, len(after), unit)


def _half_up(exact: float, decimals: int) -> str:
    """Round halves away from zero; never −0."""
    # Round to twelve digits first, so that a computed 0.125 counts as exactly half.
    shown = str(Decimal(f"{exact:.12g}").quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP))
    return shown.removeprefix("-") if float(shown) == 0 else shown


def _bare(text: str) -> tuple[str, str]:
    """The digits and the unit of a text such as `about 2 GB` or `26,214,400`."""
    shown = text.strip()
    for prefix in PREFIXES:
        shown = shown.removeprefix(prefix).strip()
    digits = shown.rstrip("KMGBkmgb% ")
    unit = shown[len(digits) :].strip().upper()
    if unit not in DECIMAL:
        raise RegardError(f"{text.strip()!r} has the unit {unit!r}; known are K, M, G, B, MB, GB and %.")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+", digits):
        digits = digits.replace(",", "")
    return digits.replace("−", "-"), unit
