"""Worked examples as tutorials print them: read whole, judged rightly, and the mistake in them named."""

from __future__ import annotations

import pytest

from regard.checking import check
from regard.checking.names import step_named
from regard.errors import RegardError

SESSION = """
>>> Q = np.array([[1, 0, 2], [2, 2, 2]])
>>> K = np.array([[0, 1, 1], [4, 4, 0]])
>>> scores = Q @ K.T
>>> scores
array([[ 2,  4],
       [ 4, 16]])
>>> softmax(scores / np.sqrt(3))
array([[0.240, 0.760],
       [0.001, 0.999]])
"""
SCRIPT = """
attn_scores_2 = tensor([0.9544, 1.4950, 1.4754])
print(attn_weights_2)
# tensor([0.2272,
#         0.3902, 0.3826])
"""
OWNED = """
| query | k1 | k2 | k3 |
|---|---|---|---|
| scores q1 | 1.0 | 0.0 | -1.0 |
| weights q1 | 0.665 | 0.245 | 0.080 |
"""
BOLD = """
**Scores**

|  | The | cat |
|---|---|---|
| The | 1.2 | 0.3 |
| cat | 0.8 | 2.1 |

**Attention weights (softmax over each row)**

|  | The | cat |
|---|---|---|
| The | 0.60 | 0.14 |
| cat | 0.40 | 0.86 |
"""
FORMULAS = """
Q = X·W_Q
| | d1 | d2 |
|---|---|---|
| The | 1.0 | 0.5 |
| cat | 0.2 | 1.2 |

K = X·W_K
| | d1 | d2 |
|---|---|---|
| The | 0.3 | 0.1 |
| cat | 0.6 | 0.9 |

QKᵀ / √2
| | The | cat |
|---|---|---|
| The | 0.25 | 0.13 |
| cat | 0.74 | 0.85 |
"""
ALIGNED = r"""
\begin{align}
S &= \frac{QK^T}{\sqrt{d_k}} = \begin{pmatrix} 0.71 & 0 \\ 0 & 0.71 \end{pmatrix} \\
A &= \mathrm{softmax}(S) = \begin{pmatrix} 0.62 & 0.38 \\ 0.38 & 0.62 \end{pmatrix} \\
V &= \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} \\
Z &= AV = \begin{pmatrix} 1.76 & 2.76 \\ 2.24 & 3.24 \end{pmatrix}
\end{align}
"""
PROSE = r"""
$q \cdot k_1 = 112$, $q \cdot k_2 = 96$, with $d_k = 64$ we divide by $8$ and obtain $14$ and $12$;
softmax gives $0.88$ and $0.12$.
"""
STEPS = """
Step 1: Compute the dot products
q1 · k1 = 1*0 + 0*1 + 2*1 = 2
q1 · k2 = 1*4 + 0*4 + 2*0 = 4
q1 · k3 = 1*2 + 0*3 + 2*1 = 5
Step 2: Divide by √3: 1.15, 2.31, 2.31
Step 3: softmax: 0.136, 0.432, 0.432
"""
FRACTIONS = r"""
$$\alpha_{1} = \frac{e^{2}}{e^{2}+e^{1}+e^{0}} = 0.665, \quad \alpha_{2} = 0.245, \quad \alpha_{3} = 0.08$$
with $s_1 = 2$, $s_2 = 1$, $s_3 = 0$.
"""
LISTED = """
Query: [1, 0, 1]
- key 1: [0, 1, 1]
- key 2: [4, 4, 0]
- key 3: [2, 3, 1]
Attention scores: [1, 4, 3]
After scaling by √3: [0.33, 1.33, 1.00]
"""
CASES = {
    "a session of Python": (SESSION, 8, [], ""),
    "a script and its output": (SCRIPT, 3, [], ""),
    "rows named after a query": (OWNED, 3, ["0.080"], "a row that does not sum to 1: it adds up to 0.99"),
    "headings in bold": (BOLD, 4, ["0.60", "0.14", "0.40", "0.86"], "softmax over the wrong axis"),
    "headings that are formulas": (FORMULAS, 4, ["0.13", "0.74"], "a transposed product"),
    "equations, aligned": (ALIGNED, 8, ["0.62", "0.38", "0.38", "0.62"], "base 2 in place of e"),
    "dot products in prose": (PROSE, 4, [], ""),
    "a sum written out": (STEPS, 9, ["5"], "the right side does not follow from the left"),
    "fractions": (FRACTIONS, 3, ["0.08"], "one off in its last digit"),
    "a list of keys": (LISTED, 6, ["0.33", "1.33", "1.00"], "divided by 3, not by √3"),
    "CSV": ("token,score,weight\nthe,1.0,0.106\ncat,3.0,0.786\nsat,1.0,0.106", 3, ["0.106"] * 2, "truncated"),
    "HTML": (
        "<table><tr><th>score</th><td>1</td><td>2</td></tr>\n<tr><th>weight</th><td>0.33</td><td>0.67</td></tr></table>",
        2,
        ["0.33", "0.67"],
        "base 2 in place of e",
    ),
    "calculations alone": (
        "sum = 11.212\n7.389/11.212 = 0.659, 2.718/11.212 = 0.252",
        2,
        ["0.252"],
        "does not",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_tutorial_is_read_whole_and_its_mistake_is_named(case):
    text, checked, wrong, cause = CASES[case]
    report = check(text)
    assert sum(example.checked for example in report) == checked
    found = [cell for cell in report.wrong if cell.verdict.value != "inherited"]
    if case != "CSV" and case != "a sum written out" and case != "equations, aligned":
        assert [cell.printed.text for cell in found] == wrong
    else:
        assert set(wrong) <= {cell.printed.text for cell in found}
    assert cause in " ".join(report.causes)


@pytest.mark.parametrize(
    ("label", "step"),
    [("attn_weights", "weights"), ("attn_scores_2", "scores"), ("context_vec_2", "output"), ("matter", None)],
)
def test_the_names_that_code_uses_are_known(label, step):
    assert step_named(label) == step


def test_a_row_of_two_digits_is_not_blamed_on_a_base():
    """Base 10 happens to give 0.0, 0.5, 0.5 as well."""
    report = check("softmax([2, 4, 4]) = [0.0, 0.5, 0.5]")
    assert [cell.printed.text for cell in report.wrong] == ["0.0"]
    assert "base" not in " ".join(report.causes)


def test_a_calculation_may_follow_from_rounded_numbers_only():
    (step,) = next(iter(check("0.401×10 + 0.198×0 + 0.401×5 = 6.017"))).steps
    assert [cell.verdict.value for cell in step] == ["rounded"]
    (step,) = next(iter(check("0.401×10 + 0.198×0 + 0.401×5 = 6.117"))).steps
    assert [cell.verdict.value for cell in step] == ["wrong"]


def test_one_number_that_is_not_right_is_said_to_be_one():
    assert str(check("scores: 1 0\nweights: 0.7311 0.2609")).startswith(
        "1 of 2 checked numbers is not right."
    )
    assert str(check("2×3 = 6")).startswith("The checked number is right.")


def test_scores_alone_still_have_nothing_to_be_judged_by():
    with pytest.raises(RegardError, match="scores alone: nothing that is printed follows from the rest"):
        check("scores: 1 2 3")
