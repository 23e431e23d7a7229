"""Known mistakes: for each step, the tables that result from one mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from regard.checking.arithmetic import Exact, Matrix, transpose
from regard.checking.chain import Chain

__all__ = ["Mistake", "mistakes"]

Get = Callable[[str], Matrix]
# Decimals to which intermediate results are often rounded.
ROUNDINGS = (1, 2, 3, 4)
# Head widths to try for √d in a printed scale.
LARGEST_ROOT = 4096


@dataclass(frozen=True)
class Mistake:
    """The result of one mistake in a step.

    `rounding` means that the formula is right but rounded; `fitted` means that a number was searched for, so
    it counts only if it gives every digit.
    """

    cause: str
    table: Matrix
    rounding: bool = False
    fitted: bool = False


def mistakes(chain: Chain, name: str, get: Get, printed: Matrix) -> Iterator[Mistake]:
    """The possible mistakes of a step, likeliest first; `get` returns the previous steps."""
    makers = {
        "q": _projection,
        "k": _projection,
        "v": _projection,
        "scores": _scores,
        "scaled": _scaled,
        "masked": _masked,
        "exps": _exps,
        "weights": _weights,
        "output": _output,
    }
    if name == "output" and chain.heads:
        yield from _joins(chain, get)
    elif name in makers:
        yield from makers[name](chain, name, get, printed)


def _joins(chain: Chain, get: Get) -> Iterator[Mistake]:
    """Mistakes in joining heads."""
    parts = [get(name) for name in chain.heads]
    width = sum(len(part[0]) for part in parts)
    flat = [x for part in parts for row in part for x in row]
    yield Mistake(
        "the heads were joined by a reshape without a transpose, row after row of head 1 and then of head 2",
        [flat[at : at + width] for at in range(0, len(flat), width)],
    )
    turned = [[x for row in rows for x in row] for rows in zip(*reversed(parts), strict=True)]
    yield Mistake("the heads were joined in the opposite order", turned)
    if len({len(part[0]) for part in parts}) == 1:
        mixed = [[x for cells in zip(*rows, strict=True) for x in cells] for rows in zip(*parts, strict=True)]
        yield Mistake("the numbers of the heads alternate; they belong head by head", mixed)


def _projection(chain: Chain, name: str, get: Get, printed: Matrix) -> Iterator[Mistake]:
    source, own = chain.parents(name)
    x = get(source)
    w = get(own)
    if len(w) == len(w[0]):
        yield Mistake(
            f"a transposed product: W_{name} was transposed, x W_{name}ᵀ", Exact.product(x, transpose(w))
        )
    for other in ("w_q", "w_k", "w_v"):
        if other != own and chain.has(other):
            matrix = get(other)
            if len(matrix) == len(w) and len(matrix[0]) == len(w[0]):
                yield Mistake(f"W_{other[-1]} was used in place of W_{name}", Exact.product(x, matrix))


def _scores(chain: Chain, name: str, get: Get, printed: Matrix) -> Iterator[Mistake]:
    q, k = get("q"), get("k")
    right = Exact.product(q, transpose(k))
    if len(q) == len(k):
        yield Mistake("a transposed product: k qᵀ stands where q kᵀ belongs", transpose(right))
    if len(k) == len(k[0]):
        yield Mistake("a transposed product: k was not transposed, q k", Exact.product(q, k))
    if chain.scale is not None and chain.scale.value != 1:
        yield Mistake(f"these are scaled already: {chain.scale.words}", Exact.times(right, chain.scale.value))
    if chain.has("v"):
        v = get("v")
        if len(v) == len(k) and len(v[0]) == len(k[0]):
            yield Mistake("values were taken for keys, q vᵀ", Exact.product(q, transpose(v)))
    if len(q) == len(k):
        yield Mistake("keys were multiplied with keys, k kᵀ", Exact.product(k, transpose(k)))
        yield Mistake("queries were multiplied with queries, q qᵀ", Exact.product(q, transpose(q)))
    norms = [math.hypot(*row) for row in q], [math.hypot(*row) for row in k]
    if all(norms[0]) and all(norms[1]):
        cosine = [
            [x / (a * b) for x, b in zip(row, norms[1], strict=True)]
            for row, a in zip(right, norms[0], strict=True)
        ]
        yield Mistake("these are cosines: each product was divided by the lengths of its two vectors", cosine)


def _scaled(chain: Chain, name: str, get: Get, printed: Matrix) -> Iterator[Mistake]:
    s, scale = get("scores"), chain.scale
    if chain.has("q") and len(s) == len(s[0]):
        right = s if scale is None else Exact.times(s, scale.value)
        yield Mistake("a transposed product: k qᵀ stands where q kᵀ belongs", transpose(right))
    if scale is not None and scale.value != 1:
        yield from _scalings(chain, s, lambda a: a)
        if scale.root:
            for decimals in (0, 1, 2):
                root = round(math.sqrt(scale.root), decimals)
                if root and root != math.sqrt(scale.root):
                    cause = f"rounded too early: √{scale.root:g} was taken as {root:g}"
                    yield Mistake(cause, Exact.times(s, 1 / root), rounding=True)
    # Several large roots fit equally well; powers of two are the likeliest.
    for dim in sorted(range(1, LARGEST_ROOT + 1), key=lambda d: (d > 64 and d.bit_count() > 1, d)):
        if _first(s, printed, 1 / math.sqrt(dim)):
            yield Mistake(
                f"the scores were divided by √{dim}", Exact.times(s, 1 / math.sqrt(dim)), fitted=True
            )


def _first(s: Matrix, printed: Matrix, scale: float) -> bool:
    """Whether a scale roughly gives the printed value of the largest score; a cheap test before others."""
    cells = [
        (abs(x), y, x) for row, line in zip(s, printed, strict=True) for x, y in zip(row, line, strict=True)
    ]
    _, y, x = max(((a, y, x) for a, y, x in cells if math.isfinite(a)), default=(0.0, 0.0, 0.0))
    return x != 0 and abs(x * scale - y) <= 0.05 * abs(y) + 1e-9


def _scalings(chain: Chain, s: Matrix, after: Callable[[Matrix], Matrix]) -> Iterator[Mistake]:
    """The scale left out, applied twice, with d instead of √d, or inverted."""
    scale = chain.scale
    if scale is None or scale.value == 1:
        return
    yield Mistake(f"the scale was left out: the scores are not {scale.words}", after(s))
    twice = "the scale was applied twice"
    if scale.root:
        # Dividing twice by √d equals dividing by d, so the numbers can't distinguish the two.
        twice = (
            f"divided by {scale.root:g}, not by √{scale.root:g}: by d for √d, or the scale was applied twice"
        )
    yield Mistake(twice, after(Exact.times(s, scale.value**2)))
    yield Mistake(
        "the scores were multiplied where they should be divided", after(Exact.times(s, 1 / scale.value))
    )


def _masked(chain: Chain, name: str, get: Get, printed: Matrix) -> Iterator[Mistake]:
    s, allowed = get("scaled"), chain.example.allowed
    if allowed is None:
        return
    yield Mistake("the mask was ignored", s)
    zeros = [
        [x if seen else 0.0 for x, seen in zip(row, line, strict=True)]
        for row, line in zip(s, allowed, strict=True)
    ]
    yield Mistake("hidden scores were set to 0, and e^0 is 1; −∞ belongs there", zeros)
    if len(allowed) == len(allowed[0]):
        yield Mistake(
            "the mask was transposed: it hides the past, not the future", Exact.hidden(s, transpose(allowed))
        )


def _exps(chain: Chain, name: str, get: Get, printed: Matrix) -> Iterator[Mistake]:
    s = get("masked")
    yield Mistake("2 was raised to the scores, not e", Exact.exps(Exact.times(s, math.log(2))))
    yield Mistake("10 was raised to the scores, not e", Exact.exps(Exact.times(s, math.log(10))))
    if chain.has("scores"):
        hide = _hider(chain)
        yield from _scalings(chain, get("scores"), lambda a: Exact.exps(hide(a)))
    for decimals in ROUNDINGS:
        cause = f"rounded too early: the scores were rounded to {_decimals(decimals)} first"
        yield Mistake(cause, Exact.exps(_rounded(s, decimals)), rounding=True)


def _weights(chain: Chain, name: str, get: Get, printed: Matrix) -> Iterator[Mistake]:
    s = get("masked") if chain.has("masked") else None
    if s is None:
        return
    if chain.has("scores"):
        hide = _hider(chain)
        yield from _scalings(chain, get("scores"), lambda a: Exact.softmax(hide(a)))
    yield Mistake(
        "base 2 in place of e: 2 was raised to the scores", Exact.softmax(Exact.times(s, math.log(2)))
    )
    yield Mistake(
        "base 10 in place of e: 10 was raised to the scores", Exact.softmax(Exact.times(s, math.log(10)))
    )
    if len(s) > 1:
        yield Mistake(
            "softmax over the wrong axis: it ran down the columns, not along the rows",
            transpose(Exact.softmax(transpose(s))),
        )
        flat = Exact.softmax([[x for row in s for x in row]])[0]
        width = len(s[0])
        yield Mistake(
            "softmax ran over the whole table at once",
            [flat[i : i + width] for i in range(0, len(flat), width)],
        )
    yield Mistake("softmax was applied twice", Exact.softmax(Exact.softmax(s)))
    yield from _masks(chain, get)
    if all(x >= 0 or math.isinf(x) for row in s for x in row):
        plain = [[0.0 if math.isinf(x) else x for x in row] for row in s]
        yield Mistake(
            "the exponential was left out: each score was divided by the sum of its row", Exact.shares(plain)
        )
    yield Mistake("e^score was not divided by the sum of its row", Exact.exps(s))
    yield Mistake(
        "sigmoid of each score, not softmax of the row",
        [[1 / (1 + math.exp(-min(max(x, -700), 700))) for x in row] for row in s],
    )
    yield from _early(s)
    if chain.has("scores"):
        yield from _temperatures(chain, get("scores"), printed)


def _masks(chain: Chain, get: Get) -> Iterator[Mistake]:
    allowed = chain.example.allowed
    if allowed is None or all(all(row) for row in allowed) or not chain.has("scaled"):
        return
    s = get("scaled")
    if any(math.isinf(x) for row in s for x in row):
        return
    open_ = Exact.softmax(s)
    yield Mistake("the mask was ignored", open_)
    after = [
        [x if seen else 0.0 for x, seen in zip(row, line, strict=True)]
        for row, line in zip(open_, allowed, strict=True)
    ]
    yield Mistake("the mask was applied after softmax, so rows no longer add up to 1", after)
    zeros = [
        [x if seen else 0.0 for x, seen in zip(row, line, strict=True)]
        for row, line in zip(s, allowed, strict=True)
    ]
    yield Mistake("hidden scores were set to 0, and e^0 is 1; −∞ belongs there", Exact.softmax(zeros))
    if len(allowed) == len(allowed[0]):
        yield Mistake(
            "the mask was transposed: it hides the past, not the future",
            Exact.softmax(Exact.hidden(s, transpose(allowed))),
        )


def _early(s: Matrix) -> Iterator[Mistake]:
    for decimals in ROUNDINGS:
        digits = _decimals(decimals)
        yield Mistake(
            f"rounded too early: the scores were rounded to {digits} before softmax",
            Exact.softmax(_rounded(s, decimals)),
            True,
        )
        exps = _rounded(Exact.exps(s), decimals)
        if all(math.isfinite(x) for row in exps for x in row):
            yield Mistake(
                f"rounded too early: e^score was rounded to {digits}", Exact.shares(exps), rounding=True
            )


def _temperatures(chain: Chain, s: Matrix, printed: Matrix) -> Iterator[Mistake]:
    """Unprinted scales 1/√d with integer d, from the ratio of the row's two largest weights."""
    if sum(x > 0 for row in printed for x in row) < 3:
        return
    hide = _hider(chain)
    used = 1.0 if chain.scale is None else chain.scale.value
    for dim in range(2, LARGEST_ROOT + 1):
        scale = 1 / math.sqrt(dim)
        if math.isclose(scale, used, rel_tol=1e-9):
            continue
        if _ratio_fits(s, printed, scale):
            cause = f"a scale that is not printed: softmax of the scores divided by √{dim} gives these"
            yield Mistake(cause, Exact.softmax(hide(Exact.times(s, scale))), fitted=True)


def _ratio_fits(s: Matrix, printed: Matrix, scale: float) -> bool:
    for row, line in zip(s, printed, strict=True):
        order = sorted(range(len(line)), key=lambda i: -line[i])[:2]
        if len(order) == 2 and line[order[1]] > 0:
            wanted = math.log(line[order[0]] / line[order[1]])
            return abs((row[order[0]] - row[order[1]]) * scale - wanted) <= 0.1 * abs(wanted) + 0.05
    return False


def _output(chain: Chain, name: str, get: Get, printed: Matrix) -> Iterator[Mistake]:
    weights, v = get("weights"), get("v")
    if len(weights) == len(weights[0]):
        yield Mistake(
            "a transposed product: weightsᵀ v stands where weights v belongs",
            Exact.product(transpose(weights), v),
        )
    for decimals in ROUNDINGS:
        cause = f"rounded too early: the weights were rounded to {_decimals(decimals)} first"
        yield Mistake(cause, Exact.product(_rounded(weights, decimals), v), rounding=True)
    if chain.has("scaled") and not any(math.isinf(x) for row in get("scaled") for x in row):
        s = get("scaled")
        if chain.example.allowed is not None:
            yield Mistake("the mask was ignored", Exact.product(Exact.softmax(s), v))
        yield Mistake("softmax was left out: the scaled scores were multiplied with v", Exact.product(s, v))
    if chain.has("scores") and not any(math.isinf(x) for row in get("scores") for x in row):
        hide = _hider(chain)
        yield from _scalings(chain, get("scores"), lambda a: Exact.product(Exact.softmax(hide(a)), v))
        yield Mistake(
            "softmax was left out: the scores were multiplied with v", Exact.product(get("scores"), v)
        )
    if chain.has("k") and len(get("k")) == len(v) and len(get("k")[0]) == len(v[0]):
        yield Mistake("keys were mixed, not values: weights k", Exact.product(weights, get("k")))
    mean = [[1 / len(v)] * len(v)] * len(weights)
    yield Mistake("this is the plain mean of the values; the weights were left out", Exact.product(mean, v))
    total = [[1.0] * len(v)] * len(weights)
    yield Mistake("this is the plain sum of the values; the weights were left out", Exact.product(total, v))


def _hider(chain: Chain) -> Callable[[Matrix], Matrix]:
    allowed = chain.example.allowed
    return (lambda a: a) if allowed is None else (lambda a: Exact.hidden(a, allowed))


def _rounded(a: Matrix, decimals: int) -> Matrix:
    return [[x if math.isinf(x) else round(x, decimals) for x in row] for row in a]


def _decimals(number: int) -> str:
    return f"{number} decimal" if number == 1 else f"{number} decimals"
