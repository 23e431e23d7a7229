"""Whatever people paste: the same example in every form, and one sentence for what cannot be read."""

from __future__ import annotations

import re

import numpy
import pytest
import torch

from regard.checking import check
from regard.checking.names import step_named
from regard.checking.reading import read
from regard.errors import RegardError, ShapeError

BRACKETS = """
Q = [[1, 0]]
K = [[1, 0], [0, 1], [1, 1]]
V = [[10, 0], [0, 10], [5, 5]]
scores = [[1, 0, 1]]
scaled = [[0.707, 0, 0.707]]
weights = [[0.401, 0.198, 0.401]]
output = [[6.015, 3.985]]
"""
FORMS = {
    "brackets": BRACKETS,
    "json": """{"q": [[1, 0]], "k": [[1, 0], [0, 1], [1, 1]], "v": [[10, 0], [0, 10], [5, 5]],
      "scores": [[1, 0, 1]], "scaled": [[0.707, 0, 0.707]], "weights": [[0.401, 0.198, 0.401]],
      "output": [[6.015, 3.985]]}""",
    "vector by vector": """
        q1 = [1, 0]
        k1 = [1, 0], k2 = [0, 1], k3 = [1, 1]
        v1 = (10, 0)
        v2 = (0, 10)
        v3 = (5, 5)
        Scores: 1, 0, 1
        Scaled scores: 0.707, 0, 0.707
        Attention weights: 0.401, 0.198, 0.401
        Output: 6.015, 3.985""",
    "torch": """
        q = tensor([[1., 0.]])
        k = tensor([[1., 0.],
                [0., 1.],
                [1., 1.]])
        v = tensor([[10.,  0.],
                [ 0., 10.],
                [ 5.,  5.]], dtype=torch.float64)
        scores = tensor([[1., 0., 1.]], grad_fn=<MmBackward0>)
        scores / sqrt(d_k) = tensor([[0.707, 0.000, 0.707]])
        weights = tensor([[0.401, 0.198, 0.401]], device='cuda:0', grad_fn=<SoftmaxBackward0>)
        output = tensor([[6.015, 3.985]])""",
    "numpy": """
        Q = [[1. 0.]]
        K = [[1. 0.]
             [0. 1.]
             [1. 1.]]
        V = [[10.  0.]
             [ 0. 10.]
             [ 5.  5.]]
        QK^T = [[1. 0. 1.]]
        scaled = array([[0.707, 0.   , 0.707]])
        softmax(QK^T/sqrt(d_k)) = [[0.401 0.198 0.401]]
        softmax(QK^T/sqrt(d_k)) V = [[6.015 3.985]]""",
    "columns": """
        Queries:
        1 0

        Keys:
        1 0
        0 1
        1 1

        Values:
        10  0
         0 10
         5  5

        Now we compute the raw scores:
        1  0  1
        ### Step 2: scaled scores
        0.707  0  0.707
        The attention weights are:
        0.401  0.198  0.401
        **Output**
        6.015  3.985""",
    "markdown": """
Q:

| query | 0 | 1 |
| --- | --- | --- |
| query | 1 | 0 |

| key | k | v | score | scaled score | weight |
| :-- | --- | --- | ---: | ---: | ---: |
| first | [1, 0] | [10, 0] | 1 | 0.707 | **0.401** |
| second | [0, 1] | [0, 10] | 0 | 0 | 0.198 |
| third | [1, 1] | [5, 5] | 1 | 0.707 | 0.401 |

Output: 6.015, 3.985
""",
    "markdown rows": """
Q = [1, 0]
K = [[1, 0], [0, 1], [1, 1]]
V = [[10, 0], [0, 10], [5, 5]]

|  | first | second | third |
|---|---|---|---|
| scores | 1 | 0 | 1 |
| scaled | 0.707 | 0 | 0.707 |
| weights | 0.401 | 0.198 | 0.401 |

output: 6.015 3.985
""",
    "latex": r"""
$Q = \begin{bmatrix} 1 & 0 \end{bmatrix}$, $K = \begin{bmatrix} 1 & 0 \\ 0 & 1 \\ 1 & 1 \end{bmatrix}$ and
$V = \begin{pmatrix} 10 & 0 \\ 0 & 10 \\ 5 & 5 \end{pmatrix}$
\[ QK^\top = \begin{bmatrix} 1 & 0 & 1 \end{bmatrix} \]
\[ \frac{QK^\top}{\sqrt{d_k}} = \begin{bmatrix} 0.707 & 0 & 0.707 \end{bmatrix} \]
\[ \text{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right)
   = \begin{bmatrix} 0.401 & 0.198 & 0.401 \end{bmatrix} \]
Output:
\begin{tabular}{cc}
\hline
6.015 & 3.985 \\
\hline
\end{tabular}
""",
    "latex tabular": r"""
Q = [1, 0]
\begin{tabular}{l|ccccc}
\toprule
key & k & v & score & scaled & weight \\ \midrule
first & (1, 0) & (10, 0) & 1 & 0.707 & 0.401 \\
second & (0, 1) & (0, 10) & 0 & 0 & 0.198 \\
third & (1, 1) & (5, 5) & 1 & 0.707 & 0.401 \\
\bottomrule
\end{tabular}
output = (6.015, 3.985)
""",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_the_same_example_is_read_from_every_form(form):
    (example,) = check(FORMS[form])
    assert [step.name for step in example.steps] == ["q", "k", "v", "scores", "scaled", "weights", "output"]
    assert example.checked == 11
    assert [(cell.printed.text, cell.right) for cell in example.wrong] == [
        ("6.015", "6.017"),
        ("3.985", "3.983"),
    ]


def test_lists_arrays_and_tensors_are_read_with_the_digits_of_their_table():
    weights = [[0.4, 0.201, 0.399]]
    for given in (weights, numpy.array(weights), torch.tensor(weights, dtype=torch.float64)):
        (example,) = read({"scores": [[1, 0, 1]], "weights": given})
        assert [cell.half for cell in example.tables["weights"].cells[0]] == [0.0005] * 3
    (example,) = read({"scores": [[1, 0, 1]], "weights": torch.tensor(weights)})
    assert [cell.text for cell in example.tables["weights"].cells[0]] == ["0.4", "0.201", "0.399"]


def test_text_keeps_the_digits_of_every_number():
    (example,) = read(
        '{"scores": [1], "weights": [0.40, 0.6, 1e-3, 5%]}'.replace("5%", '"5%"').replace(
            "[1]", "[1, 2, 3, 4]"
        )
    )
    assert [cell.half for cell in example.tables["weights"].cells[0]] == pytest.approx(
        [0.005, 0.05, 0.0005, 0.005]
    )


@pytest.mark.parametrize(
    "scale",
    ["d_k = 64", "√d_k = 8", "sqrt(d_k) = 8", "d_k = 64, √d_k = 8", "scale = 1/√64", "scale: 0.125",
     "scale = 1/8",
     "We divide by sqrt(64).", r"$\sqrt{d_k} = \sqrt{64} = 8$", "Then everything is divided by 8"],
)  # fmt: skip
def test_a_scale_is_read_however_it_is_told(scale):
    report = check(f"scores: 18 2 -2 1\n{scale}\nscaled: 2.25 0.25 -0.25 0.125")
    assert report.ok
    assert report.examples[0].checked == 4


def test_a_division_in_one_line_is_scores_a_scale_and_scaled_scores():
    assert check("(18, 2, −2, 1) / √64 = 2.25, 0.25, −0.25, 0.125").ok
    assert check("[18, 2, -2, 1] / 8 = [2.25, 0.25, -0.25, 0.125]").ok
    assert not check("[18, 2, -2, 1] / 9 = [2.25, 0.25, -0.25, 0.125]").ok


def test_every_line_of_softmax_rows_is_an_example():
    report = check(
        "softmax(2.1, 0.5, −1.0, 0.8) ≈ 0.66, 0.13, 0.03, 0.18\n"
        "softmax([18, 2, -2, 1]) = [1.0, 1.1×10⁻⁷, 2.1e-9, 4.1e-8]"
    )
    assert [example.checked for example in report] == [4, 4]
    assert report.ok


def test_a_mask_is_read_as_ones_as_words_and_as_minus_infinity():
    weights = "weights:\n1.00 0.00\n0.27 0.73"
    for mask in ("mask:\n1 0\n1 1", "mask = [[0, -inf], [0, 0]]", "causal mask", "mask: causal"):
        assert check(f"scores:\n1 2\n3 4\n{mask}\n{weights}").ok, mask
    assert check(f"scores:\n1 −∞\n3 4\n{weights}").ok


def test_words_name_the_rows_and_columns():
    (example,) = check(
        "| | The | cat |\n|---|---|---|\n| The | 1.0 | 0 |\n| cat | 0.473 | 0.600 |\n".join(
            ["scores:\n        The  cat\nThe  0.088 0.195\ncat  0.080 0.187\n\ncausal weights:\n", ""]
        )
    )
    step = example["weights"]
    assert [step.place(cell) for cell in step.wrong] == ["cat, cat"]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("Attention scores", "scores"), ("Q @ K.T", "scores"), ("QKᵀ", "scores"), ("Q·Kᵀ", "scores"),
        ("scores / √d_k", "scaled"), ("(QK^T)/sqrt(64)", "scaled"), ("### 3. Attention weights", "weights"),
        ("α", "weights"), ("Z", "output"), ("Attention(Q, K, V)", "output"), ("W^Q", "w_q"),
        ("W_Q (4x2)", "w_q"),
        ("exp(scores)", "exps"), ("d_k", "dim"), ("√d_k", "divisor"), ("cat", None),
        ("the queries of a database", None),
    ],
)  # fmt: skip
def test_a_label_means_its_step(label, name):
    assert step_named(label) == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "the text holds no number; paste the numbers of an example with their names.",
        ),
        (
            "Q and K and softmax",
            "the text holds no number; paste the numbers of an example with their names.",
        ),
        (
            "In 2017 attention was all you need.",
            "no table of attention was found: write a name and its numbers, such as Q = [[1, 0]], "
            "scores: 1 0 1 or weights: 0.4 0.2 0.4.",
        ),
        (
            "[[1, 0], [0, 1]]",
            "the numbers have no name; write what they are, such as weights = [[0.4, 0.6]].",
        ),
        (
            "scores: 1 2\nscores: 3 4",
            "scores is given twice; give each table once, or check the two examples one after the other.",
        ),
        (
            '{"weights": [1], "attention": [1]}',
            "weights is given twice, the second time as 'attention'; give each table once.",
        ),
        (
            '{"weights": [1], "weights": [1]}',
            "weights is given twice; give each table once.",
        ),
        (
            "k1 = [1, 0]\nk1 = [0, 1]",
            "k1 is given twice; give each vector once.",
        ),
        (
            "k1 = [1, 0]\nk2 = [0]",
            "k1 has 2 numbers and k2 has 1; they must have equally many.",
        ),
        (
            "Q = [[1, 0, 2]]\nK = [[1, 0]]\nscores: 1",
            "q is 1 × 3 and k is 1 × 2; a dot product needs q and k of equal width.",
        ),
        (
            "scores: 1 2 3\nweights: 0.5 0.5",
            "scores is 3 numbers and weights is 2 numbers; weights has one cell per cell of scores.",
        ),
        (
            "weights: 0.5 0.5\nV = [[1], [2], [3]]\noutput: 2",
            "weights is 2 numbers and v is 3 × 1; weights needs one column per row of v.",
        ),
        (
            "scores = [[1, 2], [3]]\nweights: 1 0",
            "scores has rows of 2 and 1 cells; row 1 is short. Give every cell.",
        ),
        (
            "weights:\n\n| a | b |\n|---|---|\n| 0.5 | |\n",
            "weights has no number in row 0, column 1. Give every cell.",
        ),
        (
            "weights = [0.5, , 0.5]",
            "weights has no number in row 0, column 1. Give every cell.",
        ),
        (
            '{"weights": [[0.5, null]]}',
            "weights has no number in row 0, column 1. Give every cell.",
        ),
        (
            '{"weights": [["half", 0.5]]}',
            "weights holds 'half', which is no number; write digits, such as 0.40.",
        ),
        (
            '{"q": [[1, 0]], "k": [[1, 0]], "v": [[1, 0]]}',
            "q, k, v alone: nothing that is printed follows from the rest. Add what was computed "
            "from them: scores, weights or output.",
        ),
        (
            '{"q": [[1]], "frobs": [1]}',
            "no step is called 'frobs'; names are x, context, w_q, w_k, w_v, w_o, q, k, v, scores, "
            "scaled, masked, exps, total, weights, output, projected, mask, scale, causal and tokens.",
        ),
        (
            '{"scores": [[[1]], [[1]], [[1]]], "weights": [[[1]], [[1]]]}',
            "scores has 3 maps and weights has 2; check one head at a time.",
        ),
        (
            "| a | b |\n|---|---|\n| 1 | 2 |",
            "a table has no name of a step; write one above it, such as 'weights:', or name its columns.",
        ),
        (
            "scores: 1 2\nd_k = 64\ndivided by 4\nscaled: 1 2",
            "the scale is given twice, divided by √64 and divided by 4; give the one that was used.",
        ),
        (
            '{"scores": [1, 2], "scale": 0, "weights": [0.5, 0.5]}',
            "scale is 0; it must be a positive number.",
        ),
        (
            "mask:\n1 0 1\n1 1 1\nscores:\n1 2\n3 4\nweights:\n1 0\n0.5 0.5",
            "mask is 2 × 3 and scores is 2 × 2; a mask has one cell per score.",
        ),
        (
            '{"d_model": 512, "heads": 8}',
            "a shape is given and no size was printed for it; add w_q, per_layer_millions or bytes.",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(text, said):
    with pytest.raises(RegardError) as caught:
        check(text)
    assert str(caught.value) == said


def test_a_text_and_tables_together_are_refused():
    with pytest.raises(
        RegardError, match=re.escape("check got a text or a mapping and also weights; give one")
    ):
        check("scores: 1 2", weights=[0.3, 0.7])
    with pytest.raises(
        RegardError, match=re.escape("the text has 200,001 characters, at most 200,000 are read")
    ):
        check("1" * 200_001)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "Suppose the raw scores are [2.1, 0.5, -1.0, 0.8].\n"
            "After softmax we get [0.65, 0.13, 0.03, 0.19]. Great!",
            ["0.65", "0.19"],
        ),
        (
            "scores: 18, 2, -2, 1. Dividing by sqrt(64) gives 2.3, 0.26, -0.20, 0.10, "
            "and softmax: 0.75, 0.10, 0.06, 0.09",
            ["0.26", "-0.20", "0.10"],
        ),
        (
            "Now the scores are 5.0, 2.5, 2.0.\nTaking the softmax yields 0.85, 0.10, 0.06.",
            ["0.85", "0.10", "0.06"],
        ),
    ],
    ids=["brackets", "one line", "lines"],
)  # fmt: skip
def test_numbers_are_found_among_the_words_of_a_text(text, wrong):
    found = [
        cell.printed.text for cell in check(text).wrong if cell.cause and "printed scaled" not in cell.cause
    ]
    assert found == wrong


def test_a_step_in_the_header_of_a_table_counts_and_a_missing_cell_is_named():
    table = "| scores | 1 | 2 | 3 |\n|---|---|---|---|\n| weights | 0.09 | 0.24 | {} |"
    assert [cell.printed.text for cell in check(table.format("0.76")).wrong] == ["0.76"]
    with pytest.raises(ShapeError, match="scores is 3 numbers and weights is 2 numbers"):
        check("| scores | 1 | 2 | 3 |\n|---|---|---|---|\n| weights | 0.1 | 0.2 |")


def test_nan_is_refused_by_name():
    with pytest.raises(RegardError, match="scores holds nan, and nothing follows from nan"):
        check("scores = [nan, 1]\nweights = [0, 1]")
