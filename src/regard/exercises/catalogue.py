"""The exercises, from a dot product to "which mask is this?"."""

from __future__ import annotations

import math
from random import Random

from regard.checking.arithmetic import Exact
from regard.errors import RegardError
from regard.exercises.problem import Choice, Exercise, Posed, Sheet

__all__ = ["EXERCISES", "exercise"]


def _row(rng: Random, n: int, low: int, high: int) -> list[int]:
    return [rng.randint(low, high) for _ in range(n)]


def _table(rng: Random, rows: int, columns: int, low: int = -2, high: int = 3) -> list[list[int]]:
    return [_row(rng, columns, low, high) for _ in range(rows)]


def _shown(table: list[list]) -> str:
    return "\n".join("  " + "  ".join(f"{x:>4}" for x in row) for row in table)


def _dot(rng: Random) -> Posed:
    q, k = _table(rng, 1, 3), _table(rng, 3, 3)
    text = f"One query and three keys. What are the three scores, q kᵀ?\nq =\n{_shown(q)}\nk =\n{_shown(k)}"
    return Sheet(text, {"q": q, "k": k}, "scores", 0)


def _sign(rng: Random) -> Posed:
    q = [rng.randint(1, 3), rng.randint(1, 3)]
    word, k = rng.choice([("alike", q), ("unrelated", [-q[1], q[0]]), ("opposite", [-q[0], -q[1]])])
    text = f"q = {q} and k = {k}. Are they alike, unrelated or opposite, to a dot product?"
    score = q[0] * k[0] + q[1] * k[1]
    return Choice(text, ("alike", "unrelated", "opposite"), word, f"q · k = {score}: its sign says which.")


def _scale(rng: Random) -> Posed:
    dim, scores = rng.choice([4, 16, 64, 100]), _row(rng, 4, -20, 40)
    text = f"Scores {scores}, d_k = {dim}. What does softmax see? Two decimals."
    return Sheet(text, {"scores": scores, "d_k": dim}, "scaled", 2)


def _softmax(rng: Random) -> Posed:
    scores = [x / 10 for x in _row(rng, 3, -20, 30)]
    text = f"Softmax of {scores}, to two decimals."
    return Sheet(text, {"scores": " ".join(map(str, scores))}, "weights", 2)


def _large(rng: Random) -> Posed:
    top = rng.randint(100, 900)
    scores = [top, top - rng.randint(1, 2), top - rng.randint(3, 4)]
    text = f"Softmax of {scores}, to three decimals. e^{top} is more than a calculator holds: what helps?"
    return Sheet(text, {"scores": scores}, "weights", 3)


def _mixture(rng: Random) -> Posed:
    tenths = [1, rng.randint(1, 6), 2]
    weights = [x / 10 for x in (*tenths, 10 - sum(tenths))]
    v = _table(rng, 4, 2, 0, 9)
    text = f"The weights {weights} mix four values. What comes out? One decimal.\nv =\n{_shown(v)}"
    return Sheet(text, {"weights": " ".join(map(str, weights)), "v": v}, "output", 1)


def _whole(rng: Random) -> Posed:
    q, k, v = _table(rng, 1, 2, 0, 2), _table(rng, 3, 2, 0, 2), _table(rng, 3, 2, 0, 9)
    text = "The whole of attention, softmax(q kᵀ / √2) v, to two decimals."
    text += f"\nq =\n{_shown(q)}\nk =\n{_shown(k)}\nv =\n{_shown(v)}"
    return Sheet(text, {"q": q, "k": k, "v": v}, "output", 2)


def _causal(rng: Random) -> Posed:
    scores = [[x / 2 for x in row] for row in _table(rng, 3, 3, -2, 4)]
    text = f"Three tokens under a causal mask. Their weights, to two decimals?\nscores =\n{_shown(scores)}"
    return Sheet(text, {"scores": _shown(scores), "causal": True}, "weights", 2)


def _projected(rng: Random) -> Posed:
    x, w = _table(rng, 2, 3), _table(rng, 3, 2)
    text = f"Two tokens, each of three numbers. Their queries, x W_q?\nx =\n{_shown(x)}\nW_q =\n{_shown(w)}"
    return Sheet(text, {"x": x, "w_q": w}, "q", 0)


MISTAKES = {
    "scale": ("the scale was left out", 1.0),
    "base": ("2 was raised to the scores, not e", None),
    "none": ("nothing went wrong", 0.5),
}


def _mistake(rng: Random) -> Posed:
    scores = [float(x) for x in rng.sample(range(-2, 5), 4)]
    word = rng.choice(list(MISTAKES))
    cause, factor = MISTAKES[word]
    row = Exact.softmax([[x * (0.5 * math.log(2) if factor is None else factor) for x in scores]])[0]
    printed = " ".join(f"{x:.3f}" for x in row)
    text = (
        f"A tutorial divides the scores {[int(x) for x in scores]} by √4 and prints the weights {printed}."
        " What went wrong: scale (it was left out), base (2 in place of e), or none?"
    )
    return Choice(
        text, tuple(MISTAKES), word, f"It is this: {cause}. `regard check` finds it from the numbers."
    )


def _mask(rng: Random) -> Posed:
    from regard.masks import Causal, Chunk, Global, Prefix, Window

    shapes = {
        "causal": Causal(),
        "window": Causal() & Window(3),
        "chunk": Causal() & Chunk(3),
        "prefix": Causal() | Prefix(3),
        "global": (Causal() & Window(2)) | (Causal() & Global([0])),
    }
    word = rng.choice(list(shapes))
    text = f"Rows are queries, columns keys, # may attend. Which mask is this: {', '.join(shapes)}?\n"
    drawn = "\n".join(f"  {line}" for line in shapes[word].draw(7).splitlines())
    return Choice(text + drawn, tuple(shapes), word, f"It is {shapes[word]!r}.")


def _cost(rng: Random) -> Posed:
    n = rng.choice([512, 1024, 2048, 4096])
    right = n * n * 2 // 2**20 if n >= 1024 else n * n * 2 / 2**20
    options = tuple(str(x) for x in sorted({right, right * 2, right * 4, n * 2 / 2**20}))
    text = (
        f"How many MiB (2²⁰ bytes) does the score matrix of one head take for {n} tokens in float16? One of "
        f"{', '.join(options)}."
    )
    return Choice(text, options, str(right), f"{n} × {n} scores × 2 bytes.")


def _groups(rng: Random) -> Posed:
    kv = rng.choice([1, 2, 4, 8])
    heads = kv * rng.choice([2, 4, 5, 8])
    ratio = heads // kv
    options = tuple(f"1/{x}" for x in sorted({ratio, kv + 1, heads, ratio + 1}))
    text = (
        f"{heads} query heads share {kv} key head{'s' if kv > 1 else ''}. What part of the cache of keys and "
        f"values is left: {', '.join(options)}?"
    )
    return Choice(
        text, options, f"1/{ratio}", f"The cache holds the keys and values of {kv}, not of {heads}."
    )


WORDS = ("A", "cat", "sat", "on", "the", "mat")


def _row_of_a_map(rng: Random) -> Posed:
    tenths = rng.sample([4, 2, 1, 0, 0, 1], 6)
    # The largest weight is unique: 4 tenths, and the others fill up to ten.
    tenths[tenths.index(4)] += 10 - sum(tenths)
    row = ", ".join(f"{word} {x / 10}" for word, x in zip(WORDS, tenths, strict=True))
    text = f"The row of 'mat' in a map: {row}. Which word does 'mat' read most?"
    most = max(tenths)
    return Choice(
        text,
        WORDS,
        WORDS[tenths.index(most)],
        f"Its weight is {most / 10}; a row is a query, a column a key.",
    )


def _recipe(rng: Random) -> Posed:
    score, below = rng.randint(-10, 20) / 10, rng.randint(5, 25) / 10
    lse = round(score + below, 1)
    right = math.exp(-below)
    options = (right, 1 - right, score / lse if lse else 0.0, math.exp(-2 * below))
    text = (
        f"A map keeps q, k and one number per row, the log-sum-exp of its scores. The score of a cell is "
        f"{score}, the log-sum-exp of its row {lse}. What is its weight: "
    )
    shown = tuple(sorted({f"{x:.3f}" for x in options}))
    return Choice(
        f"{text}{', '.join(shown)}?",
        shown,
        f"{right:.3f}",
        f"e^({score} − {lse}) = e^(−{below}) ≈ {right:.3f}.",
    )


KINDS = {
    "previous": lambda i, n: {max(i - 1, 0): 9},
    "first": lambda i, n: {0: 9},
    "itself": lambda i, n: {i: 9},
    "even": lambda i, n: dict.fromkeys(range(i + 1), min(9, 10 // (i + 1))),
}


def _kind(rng: Random) -> Posed:
    word, n = rng.choice(list(KINDS)), 6
    rows = [[KINDS[word](i, n).get(j, 0) for j in range(n)] for i in range(n)]
    drawn = "\n".join("  " + " ".join(str(x) if x else "·" for x in row) for row in rows)
    text = (
        "The map of a head, in tenths, rounded down; rows are queries. What does the head look at: the token "
        f"before (previous), the first one (first), itself, or all alike (even)?\n{drawn}"
    )
    return Choice(text, tuple(KINDS), word, "The atlas asks every head of a model such questions.")


def _matters(rng: Random) -> Posed:
    large, small = rng.choice([(0.9, 0.1), (0.8, 0.2)])
    tiny, long = rng.choice([(0.01, 5), (0.1, 9), (1, 2)])
    word = "first" if large * tiny > small * long else "second"
    text = (
        f"A query gives the first key the weight {large} and the second {small}. Their values are {tiny} and "
        f"{long}. Which of the two adds more to the output: first or second?"
    )
    parts = f"{large} × {tiny} = {large * tiny:g} and {small} × {long} = {small * long:g}"
    because = f"{parts}: a weight is half of it."
    return Choice(text, ("first", "second"), word, because)


def _shape(rng: Random) -> Posed:
    heads, size, tokens = rng.choice([4, 8, 12]), rng.choice([16, 32, 64]), rng.choice([100, 300, 500])
    right = f"{heads}x{tokens}x{tokens}"
    options = (right, f"{heads}x{tokens}x{size}", f"{tokens}x{heads}x{size}", f"{heads}x{size}x{size}")
    text = (
        f"A model with {heads} heads of {size} numbers in every layer reads {tokens} tokens. What is the "
        f"size of the map of one layer: {', '.join(sorted(options))}?"
    )
    return Choice(
        text, options, right, "One weight for every head, query and key, whatever the size of a head."
    )


_WRITTEN = (
    ("a dot product by hand", "4", "Multiply number by number and add up.", _dot),
    ("alike, unrelated, opposite", "4", "The sign of q · k.", _sign),
    ("why √d_k: scale the scores", "4", "Divide by √d_k, not by d_k.", _scale),
    ("softmax by hand", "4", "e to the power of each score, divided by the sum of all three.", _softmax),
    ("softmax of large scores", "4", "Subtract the largest score from all: no weight changes.", _large),
    ("mix the values", "4", "Each column of v, weighted and added up.", _mixture),
    ("attention by hand", "4", "Scores, divided by √2, softmax, then the weighted sum.", _whole),
    ("a causal mask", "2", "Row i sees the keys 0 to i: softmax over those, 0 elsewhere.", _causal),
    ("queries from vectors", "4", "Rows of x with columns of W_q.", _projected),
    ("what went wrong here?", "4", "Do it yourself, with e and with the scale, and compare.", _mistake),
    ("which mask is this?", "2", "How far back does a row see, and does a column stay open?", _mask),
    ("what does it cost?", "2", "One number for every pair of tokens.", _cost),
    ("shared key heads", "2", "The cache holds keys and values, not queries.", _groups),
    ("read a row of a map", "1", "Look for the largest number.", _row_of_a_map),
    ("a weight from its recipe", "3", "α = e^(s − lse).", _recipe),
    ("what does this head look at?", "5", "Follow the large numbers from row to row.", _kind),
    ("does it matter?", "6", "What a key adds is its weight times its value.", _matters),
    ("the map of a layer", "7", "A map has a row for every query and a column for every key.", _shape),
)
EXERCISES: tuple[Exercise, ...] = tuple(
    Exercise(number, title, lesson, hint, pose)
    for number, (title, lesson, hint, pose) in enumerate(_WRITTEN, start=1)
)
"""All exercises, in the order in which they build on each other; `lesson` is the tutorial's lesson."""


def exercise(number: int) -> Exercise:
    """An exercise by its number, counted from 1.

    >>> exercise(4).title, exercise(4).posed(seed=1).grade("0.5 0.3 0.2").right
    ('softmax by hand', False)
    """
    if not 1 <= number <= len(EXERCISES):
        raise RegardError(f"there is no exercise {number}; they are numbered 1 to {len(EXERCISES)}.")
    return EXERCISES[number - 1]
