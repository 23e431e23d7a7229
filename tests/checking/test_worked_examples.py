"""Every printed example that regard is held to, judged from its numbers alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.checking import CheckedExample, Verdict, check

TEXT = (Path(__file__).parent / "data" / "worked_examples.json").read_text(encoding="utf-8")
EARLY = "rounded too early: it follows from the printed weights with 3 decimals, not from the unrounded ones"
POSSIBLE = "possible only if the printed scores are rounded; as printed they give another number"
UNKNOWN = "no known mistake gives this number"
CLOSEST = "closest to the scores times {} and still off by {}"
FLATTER = f"{UNKNOWN}; the row is flatter than softmax makes it, {CLOSEST}"

# For each example the numbers that are not right, what belongs there, and the cause.
WRONG = {
    "three_tokens_two_dims": [("6.015", "6.017", EARLY), ("3.985", "3.983", EARLY)],
    "softmax_rows, 1": [
        ("0.65", "0.66", POSSIBLE),
        ("0.19", "0.18", POSSIBLE),
    ],
    "softmax_rows, 2": [("1.5e-9", "2.1e-9", UNKNOWN), ("4.2e-8", "4.1e-8", "one off in its last digit")],
    "softmax_rows, 4": [
        (printed, right, "a scale that is not printed: softmax of the scores divided by √3 gives these")
        for printed, right in (("0.05", "0.01"), ("0.94", "0.99"), ("0.01", "0.00"))
    ],
    "softmax_rows, 6": [
        (printed, right, FLATTER.format(0.88, 0.0063))
        for printed, right in (("0.85", "0.88"), ("0.10", "0.07"), ("0.06", "0.04"))
    ],
    "scaled_by_eight": [
        ("0.26", "0.25", "one off in its last digit"),
        ("-0.20", "-0.25", "divided by 10; the others are divided by √64"),
        ("0.10", "0.13", "divided by 10; the others are divided by √64"),
    ],
    "sat_on_the_mat": [
        (printed, right, FLATTER.format(0.58, 0.052))
        for printed, right in (
            ("0.35", "0.45"), ("0.28", "0.33"), ("0.12", "0.09"), ("0.12", "0.09"), ("0.13", "0.04")
        )
    ],
}  # fmt: skip
NAMES = [
    "three_tokens_two_dims", "the_cat_sat_down", "request_dot_products",
    *(f"softmax_rows, {i}" for i in range(1, 7)), "scaled_by_eight", "sat_on_the_mat",
    "transformer-base", "transformer-big", "llama-4-maverick",
    *(f"float32_bytes, {i}" for i in range(1, 5)), *(f"float16_d128, {i}" for i in range(1, 5)),
    "float16_32k_per_head",
]  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, CheckedExample]:
    return {example.name: example for example in check(TEXT)}


def test_every_example_with_a_print_is_judged(found):
    assert list(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_wrong_in_these_numbers_and_no_others_for_these_causes(found, name):
    wrong = [(cell.printed.text, cell.right, cell.cause) for cell in found[name].wrong]
    assert wrong == WRONG.get(name, [])


def test_all_that_is_printed_is_judged(found):
    checked = {name: example.checked for name, example in found.items()}
    assert checked["the_cat_sat_down"] == 80
    assert checked["llama-4-maverick"] == 7
    assert sum(checked.values()) == 155


def test_rounding_is_told_from_being_wrong(found):
    kinds = {name: {cell.verdict for cell in example.wrong} for name, example in found.items()}
    assert kinds["three_tokens_two_dims"] == kinds["softmax_rows, 1"] == {Verdict.ROUNDED}
    assert kinds["softmax_rows, 4"] == kinds["scaled_by_eight"] == {Verdict.WRONG}


def test_k_and_m_of_the_printed_tables_are_powers_of_1024(found):
    assert found["float32_bytes, 4"].notes == (
        "entries: 16B is right if K, M and G are powers of 1024.",
        "bytes: 64 GB is right if K, M and G are powers of 1024.",
    )
    assert found["float16_d128, 4"].notes == ()


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"d_model": 5120, "heads": 40, "kv_heads": 8, "d_k": 128, "printed": {"w_k": 26214400}},
         "every head was counted with keys of its own"),
        ({"n": 1000, "d_k": 128, "qk_flops": "128000000"},
         "a multiplication and an addition were counted as one"),
        ({"n": 1000, "entries": "1000"}, "it grows with n, not with n²"),
    ],
)  # fmt: skip
def test_a_wrong_size_has_its_cause(given, cause):
    assert [cell.cause for cell in check(given).wrong] == [cause]
