"""One sentence per step: what it does and why, with the numbers of the computation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.masks import Mask
from regard.scores import Additive, Concat, DotProduct, General, Score
from regard.tracing.labels import count
from regard.tracing.numerals import short

__all__ = [
    "about_bias",
    "about_cap",
    "about_input",
    "about_mask",
    "about_modification",
    "about_output",
    "about_projection",
    "about_scale",
    "about_scores",
    "about_sink",
    "about_vectors",
    "about_weights",
    "score_formula",
]

ROLES = {
    "q": ("query", "what the token is looking for"),
    "k": ("key", "what the token can be found by"),
    "v": ("value", "what the token hands over when it is found"),
}

FORMULAS = {
    DotProduct: "q kᵀ",
    General: "q W kᵀ",
    Additive: "v · tanh(q W_q + k W_k)",
    Concat: "v · tanh([q; k] W)",
}


def about_input(x: Tensor, asks: bool, answers: bool) -> str:
    """The sentence about token vectors: for queries, for keys and values, or both."""
    length, dim = x.shape[-2:]
    role = "" if asks and answers else ": these ask" if asks else ": these are asked"
    return f"{count(length, 'token', 'tokens')}, each a vector of {count(dim, 'number', 'numbers')}{role}."


def about_vectors(name: str, value: Tensor, matrix: Tensor | None, shared: int) -> str:
    """The sentence about q, k or v, given or projected; `shared` query heads use each of its heads."""
    role, meaning = ROLES[name]
    heads, numbers = value.shape[1], count(value.shape[-1], "number", "numbers")
    head = f" in each of {heads} heads" if heads > 1 else ""
    made = f"Given: one {role} per row" if matrix is None else f"Each vector times W_{name} gives a {role}"
    if matrix is not None:
        made = made.replace(f"W_{name}", f"W_{name} ({matrix.shape[0]} × {matrix.shape[1]})")
    group = f" Every {shared} query heads share one." if shared > 1 else ""
    return f"{made}, {numbers}{head}: {meaning}.{group}"


def score_formula(score: Score) -> str:
    """The formula of a score function's raw score."""
    return FORMULAS.get(type(score), f"{type(score).__name__}(q, k)")


def about_scores(score: Score, q: int, k: int, dim: int) -> str:
    """The sentence about the raw scores of q queries and k keys with dim numbers each."""
    pairs = f"{count(q, 'query', 'queries')} × {count(k, 'key', 'keys')} = {count(q * k, 'score', 'scores')}"
    if isinstance(score, DotProduct):
        made = (
            f"each the sum of {count(dim, 'product', 'products')}: vectors that point the same way score high"
        )
    else:
        made = f"each what {type(score).__name__} makes of the pair"
    return f"Every query meets every key, {pairs}, {made}."


def about_scale(scale: float, root: int | None) -> tuple[str, str]:
    """The formula and the sentence about the scale; `root` is d if the scale is 1/√d."""
    if root is None:
        return (
            f"scores × {short(scale)}",
            f"Multiply by {short(scale)}: a smaller scale evens weights out, a larger one sharpens them.",
        )
    why = (
        f"so that scores spread as widely for {root} numbers as for one, and softmax does not run to one key"
    )
    return f"scores / √{root}", f"Divide by √{root} = {short(math.sqrt(root))}, {why}."


def about_bias(bias: Tensor) -> str:
    """The sentence about a bias, broadcast or not."""
    low, high = short(float(bias.min())), short(float(bias.max()))
    spread = f"{low} for every pair" if low == high else f"from {low} to {high}"
    return f"Add the bias, {spread}: what the model knows about a pair before it reads the tokens."


def about_cap(cap: float, before: Tensor, after: Tensor) -> str:
    """The sentence about the soft cap."""
    start, end = short(_largest(before)), short(_largest(after))
    moved = f"small scores hardly move, the largest goes from {start} to {end}"
    return f"Squeeze into (−{short(cap)}, {short(cap)}): {moved}."


def about_modification(before: Tensor, after: Tensor) -> str:
    """The sentence about the user's score_mod."""
    changed = int((before != after).sum())
    return f"score_mod rewrites {changed:,} of {count(after.numel(), 'score', 'scores')}."


def about_mask(mask: Mask, allowed: Tensor) -> str:
    """The sentence about a mask, given its matrix."""
    name = repr(mask)
    name = name if len(name) <= 60 else "The mask"
    hidden = int((~allowed).sum())
    if not hidden:
        return f"{name} lets every query see every key here, so nothing changes."
    pairs = count(allowed.numel(), "pair", "pairs")
    return f"{name} hides {hidden:,} of {pairs}: a score of −∞ becomes a weight of exactly 0."


def about_weights(weights: Tensor, sink: bool) -> str:
    """The sentence about the softmax."""
    together = "a row and its sink add up to 1" if sink else "every row adds up to 1"
    text = f"e to the power of each score, divided by the sum of its row: nothing is negative and {together}."
    dead = int((weights == 0).all(-1).sum()) if not sink else 0
    if dead:
        rows = "row has" if dead == 1 else "rows have"
        text += f" {dead} {rows} nothing to attend to and stay{'s' if dead == 1 else ''} 0."
    return text


def about_sink(share: Tensor) -> str:
    """The sentence about the sink's share of each row."""
    low, high = (f"{100 * float(x):.1f} %" for x in (share.min(), share.max()))
    took = low if low == high else f"{low} to {high}"
    return f"The sink takes part in the softmax and has no value to give: it swallows {took} of a row."


def about_output(k: int, dim: int) -> str:
    """The sentence about the mixture of k values with dim numbers each."""
    values = f"{count(k, 'value', 'values')} of {count(dim, 'number', 'numbers')}"
    return f"Each query gets a mixture of the {values}, in the proportions of its row of weights."


def about_projection(matrix: Tensor, heads: int) -> str:
    """The sentence about the output projection."""
    size = f"{matrix.shape[0]} × {matrix.shape[1]}"
    mixes = "this is where the heads meet" if heads > 1 else "the result returns to the model's own space"
    return f"Times W_o ({size}): {mixes}, {count(matrix.shape[1], 'number', 'numbers')} per token."


def _largest(x: Tensor) -> float:
    finite = x[x.isfinite()]
    return float(finite[torch.argmax(finite.abs())]) if finite.numel() else math.nan
