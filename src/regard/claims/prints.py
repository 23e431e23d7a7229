"""The claim that printed examples are right, digit by digit."""

from __future__ import annotations

from collections.abc import Mapping

from regard.checking import check
from regard.checking.printed import PRINTED
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.words import listed

__all__ = ["CLAIMS"]


def measure_prints(printed: Mapping[str, str] = PRINTED) -> Measurement:
    """Judge every printed number from the others of its example."""
    reports = {name: check(text) for name, text in printed.items()}
    return Measurement(
        {
            "numbers_printed": sum(example.checked for report in reports.values() for example in report),
            "numbers_wrong": sum(len(report.wrong) for report in reports.values()),
            "wrong": {
                name: listed(f"{cell.printed.text} should be {cell.right}" for cell in report.wrong)
                for name, report in reports.items()
                if report.wrong
            },
            "causes": {name: "; ".join(report.causes) for name, report in reports.items() if report.causes},
        }
    )


def judge_prints(m: Measurement) -> Verdict:
    if not m["wrong"]:
        return Verdict.holds(f"all {m['numbers_printed']} printed numbers are the computed ones, rounded")
    places = "; ".join(f"{name}: {what} ({m['causes'][name]})" for name, what in m["wrong"].items())
    return Verdict.misprint(
        f"{m['numbers_wrong']} of {m['numbers_printed']} printed numbers are wrong: {places}"
    )


CLAIMS = (
    Claim(
        "row-prints",
        "The softmax rows, worked examples and scaled logits that textbooks print are right.",
        "Every printed number as `regard check` judges it: right is what the numbers before it give, rounded "
        "to the printed digits.",
        measure_prints,
        judge_prints,
    ),
)
