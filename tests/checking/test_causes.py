"""Every mistake that is named: made on purpose, printed, and found again from the print alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from effort import examples
from regard import Causal
from regard.checking import Verdict, check
from regard.tracing import trace

torch.manual_seed(0)
N, D = 5, 3
Q, K, V = (4 * torch.randn(3, N, D, dtype=torch.float64)).round(decimals=1)
SCORES = Q @ K.T
ALLOWED = Causal().dense(N, N)
# Rows far apart, so that no axis and no base can be taken for another.
SMALL = torch.randn(4, 5, dtype=torch.float64).round(decimals=3)


def printed(x: Tensor, decimals: int = 3) -> str:
    """A table as people print it."""
    return "\n".join(
        " ".join(f"{value:.{decimals}f}" for value in row) for row in x.reshape(-1, x.shape[-1]).tolist()
    )


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def hidden(x: Tensor, fill: float = -torch.inf) -> Tensor:
    return x.masked_fill(~ALLOWED, fill)


GIVEN = {"q": printed(Q, 1), "k": printed(K, 1)}
ROOT = D**0.5
WEIGHTS = softmax(SCORES / 20)
SHARP = {"scores": printed(SMALL)}
OF_A_STEP = {
    "scaled": [
        ({}, SCORES, "the scale was left out: the scores are not divided by √3"),
        ({}, SCORES / ROOT / ROOT, "divided by 3, not by √3: by d for √d, or the scale was applied twice"),
        ({}, SCORES * ROOT, "the scores were multiplied where they should be divided"),
        ({}, SCORES / 7**0.5, "the scores were divided by √7"),
        ({"scale": "1/8"}, SCORES / 64, "the scale was applied twice"),
        ({}, SCORES / 1.7, "rounded too early: √3 was taken as 1.7"),
    ],
    "scores": [
        ({}, K @ Q.T, "a transposed product: k qᵀ stands where q kᵀ belongs"),
        ({"v": printed(V, 1)}, Q @ V.T, "values were taken for keys, q vᵀ"),
        ({}, K @ K.T, "keys were multiplied with keys, k kᵀ"),
        ({"scaled": printed(SCORES / ROOT)}, SCORES / ROOT, "these are scaled already: divided by √3"),
        ({}, torch.cosine_similarity(Q[:, None], K[None], dim=-1),
         "these are cosines: each product was divided by the lengths of its two vectors"),
    ],
}  # fmt: skip
OF_SOFTMAX = [
    ({"scale": "0.5"}, softmax(SMALL), "the scale was left out: the scores are not times 0.5"),
    ({"scale": "0.5"}, softmax(SMALL / 4), "the scale was applied twice"),
    (
        {"d_k": 16},
        softmax(SMALL / 16),
        "divided by 16, not by √16: by d for √d, or the scale was applied twice",
    ),
    ({}, SMALL.softmax(0), "softmax over the wrong axis: it ran down the columns, not along the rows"),
    ({}, SMALL.flatten().softmax(0).view_as(SMALL), "softmax ran over the whole table at once"),
    ({}, (SMALL * torch.tensor(2.0).log()).softmax(-1), "base 2 in place of e: 2 was raised to the scores"),
    (
        {},
        (SMALL * torch.tensor(10.0).log()).softmax(-1),
        "base 10 in place of e: 10 was raised to the scores",
    ),
    ({}, SMALL.exp(), "e^score was not divided by the sum of its row"),
    ({}, SMALL.sigmoid(), "sigmoid of each score, not softmax of the row"),
    (
        {},
        softmax(SMALL.round(decimals=1)),
        "rounded too early: the scores were rounded to 1 decimal before softmax",
    ),
    (
        {},
        softmax(SMALL / 6**0.5),
        "a scale that is not printed: softmax of the scores divided by √6 gives these",
    ),
]


@pytest.mark.parametrize(
    ("step", "more", "table", "cause"), [(step, *case) for step, cases in OF_A_STEP.items() for case in cases]
)
def test_a_mistake_before_softmax_is_named(step, more, table, cause):
    report = check({**GIVEN, **more, step: printed(table)})
    assert report[step].causes == [cause]
    assert report[step].verdict is (Verdict.ROUNDED if "rounded too early" in cause else Verdict.WRONG)


@pytest.mark.parametrize(("more", "table", "cause"), OF_SOFTMAX)
def test_a_mistake_in_softmax_is_named(more, table, cause):
    assert check({**SHARP, **more, "weights": printed(table, 4)})["weights"].causes == [cause]


def test_scores_divided_by_their_sum_are_no_softmax():
    scores = SMALL.abs()
    shares = scores / scores.sum(-1, keepdim=True)
    report = check(scores=printed(scores), weights=printed(shares))
    assert report["weights"].causes == [
        "the exponential was left out: each score was divided by the sum of its row"
    ]


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        (softmax(SCORES / 10), "the mask was ignored"),
        (softmax(SCORES / 10) * ALLOWED, "the mask was applied after softmax, so rows no longer add up to 1"),
        (softmax(hidden(SCORES / 10, 0.0)), "hidden scores were set to 0, and e^0 is 1; −∞ belongs there"),
        (softmax((SCORES / 10).masked_fill(~ALLOWED.T, -torch.inf)),
         "the mask was transposed: it hides the past, not the future"),
    ],
)  # fmt: skip
def test_a_mistake_with_the_mask_is_named(table, cause):
    report = check(scores=printed(SCORES / 10), mask="causal", weights=printed(table))
    assert report["weights"].causes == [cause]


def test_a_mask_that_was_right_is_right_as_table_and_as_word():
    weights = printed(softmax(hidden(SCORES / 10)))
    for mask in ("causal", printed(ALLOWED.double(), 0)):
        assert check(scores=printed(SCORES / 10), mask=mask, weights=weights).ok
    seen = check(scores=printed(SCORES / 10), weights=weights)
    assert seen.ok
    assert seen.examples[0].notes == ("The zeros above the diagonal are those of a causal mask.",)


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        (WEIGHTS.T @ V, "a transposed product: weightsᵀ v stands where weights v belongs"),
        (SCORES / 20 @ V, "softmax was left out: the scaled scores were multiplied with v"),
        (WEIGHTS @ K, "keys were mixed, not values: weights k"),
        (V.mean(0).expand(N, D), "this is the plain mean of the values; the weights were left out"),
        (V.sum(0).expand(N, D), "this is the plain sum of the values; the weights were left out"),
        (softmax(SCORES) @ V, "the scale was left out: the scores are not divided by 20"),
        (WEIGHTS.round(decimals=2) @ V, "rounded too early: the weights were rounded to 2 decimals first"),
    ],
)
def test_a_mistake_in_the_mixture_is_named(table, cause):
    given = {**GIVEN, "v": printed(V, 1), "scale": "1/20"}
    assert check({**given, "output": printed(table, 4)})["output"].causes == [cause]


def test_a_matrix_that_was_transposed_or_mistaken_is_named():
    x, w_q, w_k = torch.randn(3, 4, 4, dtype=torch.float64).round(decimals=1)
    given = {"x": printed(x, 1), "w_q": printed(w_q, 1), "w_k": printed(w_k, 1)}
    assert check({**given, "q": printed(x @ w_q, 2)}).ok
    assert check({**given, "q": printed(x @ w_q.T, 2)}).causes == [
        "a transposed product: W_q was transposed, x W_qᵀ"
    ]
    assert check({**given, "q": printed(x @ w_k, 2)}).causes == ["W_k was used in place of W_q"]


def test_exponentials_and_their_sum_are_checked_too():
    row = (
        "scores: 2.1 0.5 -1.0 0.8\nexp(scores): 8.17 1.65 0.37 2.23\nsum: 12.41\nsoftmax: 0.66 0.13 0.03 0.18"
    )
    assert check(row).ok
    wrong = check(row.replace("12.41", "12.51"))
    assert [(cell.printed.text, cell.right) for cell in wrong.wrong] == [("12.51", "12.41")]
    base = check("scores: 2.1 0.5 -1.0 0.8\nexp(scores): 4.29 1.41 0.50 1.74")
    assert base.causes == ["2 was raised to the scores, not e"]
    shifted = check("scores: 2.1 0.5 -1.0 0.8\nexp(scores): 1.000 0.202 0.045 0.273")
    assert shifted.ok


def test_a_mistake_is_named_also_where_its_inputs_were_rounded_for_print():
    unrounded = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 2
    report = check(scores=printed(unrounded, 2), d_k=4, weights=printed(softmax(unrounded)))
    assert report.causes == ["the scale was left out: the scores are not divided by √4"]


def test_an_error_is_told_once_and_what_follows_inherits_it():
    weights = printed(softmax(SCORES / 10))
    output = printed(
        torch.tensor([[float(x) for x in row.split()] for row in weights.splitlines()]).double() @ V, 2
    )
    report = check(scores=printed(SCORES / 10), scale="0.5", weights=weights, v=printed(V, 1), output=output)
    assert {cell.verdict for cell in report["weights"].wrong} == {Verdict.WRONG}
    assert {cell.verdict for cell in report["output"].wrong} == {Verdict.INHERITED}
    assert report["output"].causes == ["it follows from the printed weights, which are wrong"]


def test_a_wrong_step_between_does_not_make_the_next_one_wrong():
    report = check(
        "scores:\n0.125 0.276\n0.113 0.264\nd_k = 2\ncausal\nweights:\n1.0 0\n0.473 0.572\n"
        "V = [[0.61, 0.67], [-0.16, 0.64]]\noutput = [[0.610, 0.670], [0.205, 0.654]]"
    )
    assert report["weights"].causes == ["two digits are swapped: 0.527"]
    assert {cell.verdict for cell in report["output"].wrong} == {Verdict.ROUNDED}
    assert report["output"].causes == [
        "possible only if the printed scores and v are rounded; as printed they give another number"
    ]


@pytest.mark.parametrize(
    ("old", "new", "cause"),
    [
        ("0.352 0.341", "0.341 0.352", "two cells are swapped: 0.341 and 0.352 belong in each other's place"),
        ("0.352", "0.325", "two digits are swapped: 0.352"),
        ("0.352", "3.52", "the decimal point slipped by one place"),
        ("0.352", "-0.352", "the sign is wrong"),
        ("0.352", "0.351", "truncated instead of rounded: the further digits were cut off"),
        ("0.352", "0.353", "one off in its last digit"),
        ("0.352", "0.402", "a row that does not sum to 1: it adds up to 1.051"),
    ],
)
def test_a_slip_of_the_pen_is_named(old, new, cause):
    scores, weights = "0.0520 0.1857 0.1542", "0.308 0.352 0.341"
    assert check(scores=scores, weights=weights).ok
    report = check(scores=scores, weights=weights.replace(old, new))
    assert report.causes == [cause]


def test_weights_alone_are_held_to_a_sum_of_one():
    assert check("weights: 0.1 0.6 0.2 0.1").ok
    wrong = check("weights:\n0.10 0.60 0.20 0.10\n0.50 0.20 0.10 0.10")
    assert wrong.causes == ["a row that does not sum to 1: it adds up to 0.9"]
    assert {cell.row for cell in wrong.wrong} == {1}


def test_whole_numbers_are_exact_and_said_to_be_rounded_where_they_are_not():
    assert check(scores="18 2", scale="1/2", scaled="9 1").ok
    report = check(scores="18 2", scale="1/8", scaled="2 0")
    assert report.causes == ["rounded to a whole number"]


def test_scores_that_are_scaled_already_are_no_mistake_where_nothing_else_is_printed():
    report = check({**GIVEN, "scores": printed(SCORES / ROOT), "weights": printed(softmax(SCORES / ROOT), 2)})
    assert report.ok
    assert report.examples[0].notes == ("What is called scores is divided by √3 already.",)


tables = st.integers(1, 5).flatmap(
    lambda d: st.tuples(st.just(d), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**31))
)


@examples(60)
@given(tables, st.booleans(), st.integers(2, 5), st.integers(1, 3))
def test_what_is_computed_and_rounded_is_right(sizes, causal, decimals, given_decimals):
    dim, queries, keys, seed = sizes
    assume(not causal or queries <= keys)
    made = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn(n, dim, generator=made, dtype=torch.float64).round(decimals=given_decimals)
        for n in (queries, keys, keys)
    )
    steps = trace(q, k, v, Causal() if causal else None)
    tables = {name: printed(steps[name].value, decimals) for name in ("scores", "weights", "output")}
    tables |= {name: printed(x, given_decimals) for name, x in (("q", q), ("k", k), ("v", v))}
    if dim > 1:
        tables["scaled"] = printed(steps.scaled, decimals)
    report = check({**tables, "causal": causal})
    assert [(cell.printed.text, cell.right) for cell in report.wrong] == []


@examples(60)
@given(tables, st.integers(2, 6), st.sampled_from(["scores", "weights", "output"]), st.data())
def test_a_changed_number_is_found_and_the_right_one_put_beside_it(sizes, by, step, data):
    dim, queries, keys, seed = sizes
    assume(keys > 1)
    made = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randint(-3, 4, (n, dim), generator=made).double() for n in (queries, keys, keys))
    steps = trace(q, k, v)
    texts = {name: [t.split() for t in printed(steps[name].value).splitlines()] for name in (step,)}
    i = data.draw(st.integers(0, queries - 1))
    j = data.draw(st.integers(0, len(texts[step][0]) - 1))
    right = texts[step][i][j]
    texts[step][i][j] = f"{float(right) + by / 1000:.3f}"
    given_tables = {name: printed(x, 0) for name, x in (("q", q), ("k", k), ("v", v))}
    report = check({**given_tables, step: "\n".join(" ".join(row) for row in texts[step])})
    found = [(cell.row, cell.column) for cell in report.wrong]
    if step == "scores" and not found:  # scores of −0.000 and the like may happen to be the scaled ones
        return
    assert (i, j) in found
    cell = next(cell for cell in report.wrong if (cell.row, cell.column) == (i, j))
    assert abs(float(cell.right) - float(right)) < 1e-9
    assert cell.cause


@pytest.mark.parametrize(
    ("printed", "causes"),
    [("1.24 0.35", ["one digit is wrong: 2.24"]), ("2.24 0.39", ["no known mistake gives this number"])],
)
def test_one_other_digit_is_named_unless_it_is_the_last_of_a_few(printed, causes):
    (found,) = check(f"q:\n1 1\n\nk:\n1.20 1.04\n0.10 0.25\n\nscores:\n{printed}\n")
    assert found["scores"].causes == causes
