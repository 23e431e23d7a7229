"""Worked examples as other languages, pages and programs print them: read whole, and judged rightly."""

from __future__ import annotations

import pytest

from regard.checking import check

CASES = {
    "a program with its output below": (
        """
Let's define our queries, keys and values:

```python
Q = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
K = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
V = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

scores = Q @ K.T / np.sqrt(2)
mask = np.triu(np.ones((3, 3)), k=1) * -1e9
weights = softmax(scores + mask)
print(weights)
```

Output:

```
[[1.         0.         0.        ]
 [0.33023845 0.66976155 0.        ]
 [0.24825508 0.24825508 0.50348984]]
```
""",
        9,
        [],
        "",
    ),
    "batch and heads": (
        """
scores = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]]]])
>>> torch.softmax(scores, dim=-1)
tensor([[[[0.2689, 0.7311],
          [0.2689, 0.7311]],

         [[0.2689, 0.7311],
          [0.7311, 0.2689]]]])
""",
        8,
        [],
        "",
    ),
    "batch and heads, down the columns": (
        """
scores = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]]]])
>>> torch.softmax(scores, dim=-2)
tensor([[[[0.1192, 0.1192],
          [0.8808, 0.8808]],

         [[0.2689, 0.7311],
          [0.7311, 0.2689]]]])
""",
        8,
        ["0.1192", "0.1192", "0.8808", "0.8808"],
        "softmax over the wrong axis: it ran down the columns, not along the rows",
    ),
    "vectors one after the other": (
        """
Step 1: dot products: Score = [2, 4, 4]
Step 2: scale with sqrt(3): [1.15, 2.31, 2.31]
Step 3: softmax: [0.14, 0.43, 0.43]
Step 4: values are [1, 2, 3], [2, 8, 0], [2, 6, 3]
Output = [1.86, 6.3, 1.7]
""",
        9,
        [],
        "",
    ),
    "words with percentages": (
        """
scores: The 1.0, cat 2.0, sat 3.0
attention: The 9%, cat 24%, sat 67%
""",
        3,
        [],
        "",
    ),
    "keys that stand upright": (
        """
{"Q": [[1,0,2],[0,1,1]], "K^T": [[2,1],[1,3],[0,1]], "QK^T": [[2,3],[1,4]]}
""",
        4,
        [],
        "",
    ),
    "arrows": (
        """
[2.0, 1.0, 0.1] → softmax → [0.659, 0.242, 0.099]
""",
        3,
        [],
        "",
    ),
    "columns of space": (
        """
Token    Score    Weight
The      0.50     0.054
cat      2.80     0.543
mat      2.50     0.402
""",
        3,
        [],
        "",
    ),
    "cells of a notebook": (
        """
In [1]: scores = np.array([[2.0, 0.0],[1.0, 3.0]])
In [2]: softmax(scores, axis=1)
Out[2]: 
array([[0.88079708, 0.11920292],
       [0.11920292, 0.88079708]])
""",
        4,
        [],
        "",
    ),
    "keys in rows": (
        """
Scores (keys in rows, queries in columns):
| | q1 | q2 |
|---|---|---|
| k1 | 2 | 1 |
| k2 | 0 | 3 |

Weights (each column sums to 1):
| | q1 | q2 |
|---|---|---|
| k1 | 0.881 | 0.119 |
| k2 | 0.119 | 0.881 |
""",
        4,
        [],
        "",
    ),
    "a heading for each head": (
        """
Head 1:
scores = [[1, 2], [3, 4]]
weights = [[0.27, 0.73], [0.27, 0.73]]

Head 2:
scores = [[0, 1], [1, 0]]
weights = [[0.27, 0.73], [0.73, 0.27]]
""",
        8,
        [],
        "",
    ),
    "a method of a tensor": (
        """
>>> scores
tensor([[ 0.5000, -1.2002,  2.3008]], dtype=torch.float16)
>>> scores.softmax(-1)
tensor([[0.1382, 0.0252, 0.8366]], dtype=torch.float16)
""",
        3,
        [],
        "",
    ),
    "indices in mathematics": (
        r"""
The score of query $q_1$ with each key: $s_{11} = 2$, $s_{12} = 0$, $s_{13} = 1$.
The attention weights are $\alpha_{11} = 0.665$, $\alpha_{12} = 0.090$, $\alpha_{13} = 0.245$.
""",
        3,
        [],
        "",
    ),
    "a temperature": (
        """
scores: 2 1 0
temperature 0.5
weights: 0.867 0.117 0.016
""",
        3,
        [],
        "",
    ),
    "matrices of MATLAB": (
        """
Q = [1 0; 0 1]
K = [1 1; 0 1]
S = [1 0; 1 1]
""",
        4,
        [],
        "",
    ),
    "a printed dictionary": (
        """
{'scores': [1.0, 2.0], 'weights': [0.27, 0.73]}
""",
        2,
        [],
        "",
    ),
    "YAML": (
        """
scores:
  - [1.0, 2.0]
  - [0.0, 1.0]
weights:
  - [0.27, 0.73]
  - [0.27, 0.73]
""",
        4,
        [],
        "",
    ),
    "a written-out mixture": (
        """
0.67 * [1, 0] + 0.24 * [0, 1] + 0.09 * [1, 1] = [0.76, 0.33]
""",
        2,
        [],
        "",
    ),
    "shares in a sentence": (
        """
The word 'it' pays 60% attention to 'animal', 25% to 'street' and 20% to 'tired'.
""",
        3,
        ["60%", "25%", "20%"],
        "a row that does not sum to 1: it adds up to 1.05",
    ),
    "braces": (
        """
Softmax[{1, 2, 3}] = {0.09, 0.24, 0.67}
""",
        3,
        [],
        "",
    ),
    "a session of R": (
        """
> scores
[1] 1 2 3
> softmax(scores)
[1] 0.0900 0.2447 0.6652
""",
        3,
        [],
        "",
    ),
    "paragraphs of HTML": (
        """
<p>scores = [1, 2, 3]</p><p>weights = [0.09, 0.24, 0.67]</p>
""",
        3,
        [],
        "",
    ),
    "numbers in bold": (
        """
The **scores** are **[1, 2, 3]**, and after **softmax** they become **[0.09, 0.24, 0.67]**.
""",
        3,
        [],
        "",
    ),
    "one line a token": (
        """
cat: score 2.0 → weight 0.73
dog: score 1.0 → weight 0.27
""",
        2,
        [],
        "",
    ),
    "decimal commas": (
        """
scores: 1,5 2,5
weights: 0,27 0,73
""",
        2,
        [],
        "",
    ),
    "softmax twice": (
        """
scores: 3 1 0
weights: 0.52 0.25 0.23
""",
        3,
        ["0.52", "0.25", "0.23"],
        "softmax was applied twice",
    ),
    "heads side by side": (
        """
Head 1 output: [0.5, 1.0]
Head 2 output: [2.0, 3.0]
Concatenated: [0.5, 1.0, 2.0, 3.0]
W_O = [[1,0],[0,1],[1,0],[0,1]]
Final output: [2.5, 4.0]
""",
        6,
        [],
        "",
    ),
    "steps with bullets": (
        """
### Step 1: Compute Q, K, V
Given:
- Q = [1, 0, 1, 0]
- K₁ = [1, 0, 0, 1], K₂ = [0, 1, 1, 0]
- V₁ = [1, 2], V₂ = [3, 4]

### Step 2: Dot products
- Q·K₁ = 1
- Q·K₂ = 1

### Step 3: Scale by √4 = 2
- 1/2 = 0.5
- 1/2 = 0.5

### Step 4: Softmax
- [0.5, 0.5]

### Step 5: Output
0.5·[1,2] + 0.5·[3,4] = [2, 3]
""",
        9,
        [],
        "",
    ),
    "steps with bullets, unscaled": (
        """
### Step 1: Compute Q, K, V
Given:
- Q = [1, 0, 1, 0]
- K₁ = [1, 0, 1, 1], K₂ = [0, 1, 1, 0]
- V₁ = [1, 2], V₂ = [3, 4]

### Step 2: Dot products
- Q·K₁ = 2
- Q·K₂ = 1

### Step 3: Scale by √4 = 2
- 2/2 = 1.0
- 1/2 = 0.5

### Step 4: Softmax
- weights = [0.73, 0.27]

### Step 5: Output
output = [1.54, 2.54]
""",
        9,
        ["0.73", "0.27", "1.54", "2.54"],
        "the scale was left out: the scores are not divided by √4",
    ),
    "a column of sums": (
        """
Attention weights:

|       | The  | cat  | sat  | Sum |
|-------|------|------|------|-----|
| The   | 0.70 | 0.20 | 0.10 | 1.00 |
| cat   | 0.25 | 0.50 | 0.25 | 1.00 |
| sat   | 0.10 | 0.30 | 0.60 | 1.00 |
""",
        0,
        [],
        "",
    ),
    "dashes above the diagonal": (
        """
Attention weights (causal):

|       | The  | cat  | sat  |
|-------|------|------|------|
| The   | 1.00 | - | - |
| cat   | 0.40 | 0.60 | - |
| sat   | 0.20 | 0.30 | 0.50 |
""",
        0,
        [],
        "",
    ),
    "vectors with themselves": (
        """
X = [[1,0],[0,1],[1,1]]
XX^T = [[1,0,1],[0,1,1],[1,1,2]]
softmax(XX^T) = [[0.42,0.16,0.42],[0.16,0.42,0.42],[0.21,0.21,0.58]]
""",
        18,
        [],
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_elsewhere_is_read_whole_and_judged(case):
    text, checked, wrong, cause = CASES[case]
    report = check(text)
    assert sum(example.checked for example in report) == checked
    assert [cell.printed.text for cell in report.wrong] == wrong
    assert cause == "" if not report.causes else cause in report.causes[0]


def test_vectors_may_stand_behind_their_words():
    report = check(
        'Query for "love": [1, 1]\nKeys: I → [1, 0], love → [0, 1], AI → [1, 1]\n'
        "Values: I = [10, 0], love = [0, 10], AI = [5, 5]\nDot products: 1, 1, 2\nScaled: 0.71, 0.71, 1.41\n"
        "Softmax: 0.25, 0.25, 0.50\nWeighted sum: [5.0, 5.0]"
    )
    assert report.ok
    assert report.examples[0].checked == 11
    assert report.examples[0].notes == ()


@pytest.mark.parametrize("sign", [" ", ", ", "; "])
def test_steps_may_follow_each_other_on_one_line(sign):
    report = check(f"scores: 1 2{sign}attention weights: 0.27 0.73")
    assert report.ok
    assert report.examples[0].checked == 2


def test_numbers_under_a_name_that_is_no_step_are_said_to_be_left_out():
    report = check("scores = [1, 2]\nweights = [0.27, 0.73]\nfrobnicated = [3, 4]")
    assert report.ok
    assert report.examples[0].notes == (
        "Not judged, for no step is called so: the numbers of 'frobnicated'.",
    )


def test_weights_alone_are_not_said_to_be_checked_numbers():
    said = str(check("weights: 0.4 0.6"))
    assert said.startswith(
        "Nothing that is printed follows from the rest; every row of weights adds up to 1."
    )


def test_what_follows_from_rounded_weights_that_are_wrong_inherits_it():
    report = check("scores: 2 1\nd_k = 4\nweights: 0.731 0.269\nv: 30 -20\noutput: 16.554")
    assert [cell.verdict.value for cell in report["output"]] == ["inherited"]
    assert report["weights"].causes == ["the scale was left out: the scores are not divided by √4"]


def test_hidden_scores_that_are_printed_as_zeros_are_named():
    report = check(
        "scores:\n0.5 0.2 0.1\n0.3 0.8 0.4\n0.2 0.6 0.9\nAfter masking:\n0.5 0 0\n0.3 0.8 0\n0.2 0.6 0.9\n"
        "Weights:\n0.45 0.27 0.27\n0.30 0.49 0.22\n0.22 0.33 0.45"
    )
    assert report["masked"].causes == ["hidden scores were set to 0, and e^0 is 1; −∞ belongs there"]
    assert {cell.verdict.value for cell in report["weights"].wrong} == {"inherited"}


@pytest.mark.parametrize(
    "document",
    [
        '[{"scores": [1, 2], "weights": [0.27, 0.73]}, {"scores": [0, 1], "weights": [0.27, 0.73]}]',
        '{"scores": [[[[1, 2], [3, 4]]]], "mask": [[[[1, 0], [1, 1]]]], '
        '"weights": [[[[1.0, 0.0], [0.27, 0.73]]]]}',
        r"\begin{aligned} \text{scores} &= [1.0,\ 2.0] \\ "
        r"\text{softmax}(\text{scores}) &= [0.27,\ 0.73] \end{aligned}",
    ],
)
def test_other_documents_are_read(document):
    report = check(document)
    assert report.ok
    assert sum(example.checked for example in report) >= 2


def test_a_line_whose_numbers_could_not_be_read_is_named():
    report = check("exp scores: 2.72 7.39 20.09, sum 30.19\nweights: 0.09 0.24 0.67")
    assert "'exp scores'" in report.examples[0].notes[0]
