"""Claims about what single tokens and single heads add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars, Curves
from regard.claims.subjects import model_name, subject
from regard.claims.timing import Clock, medians
from regard.claims.words import listed, number, percent
from regard.engine import attention
from regard.masks import Causal

__all__ = ["CLAIMS", "LOOP"]


def model_weights(queries: int = 64) -> Tensor:
    """Rows of weights of every layer and head of the model, late in the text: (heads, queries, keys).

    NaN where the mask of a layer, such as a window, hides a key: that is no weight.
    """
    read = subject()
    n = read.ids.shape[1]
    rows = slice(n - queries, n)
    found = []
    for layer in read.recording.all_layers:
        weights, mask = layer.map[0, :, rows, :].double(), layer.map.problem.mask
        if mask is not None:
            allowed = mask.allows(torch.arange(n)[rows, None], torch.arange(n)[None])
            weights = weights.masked_fill(~allowed.reshape(-1, *allowed.shape[-2:]), torch.nan)
        found.append(weights)
    return torch.cat(found)


def measure_each(weights: Callable[[], Tensor] = model_weights) -> Measurement:
    """The weights of keys that a query may see: the smallest, and those that half precision makes zero."""
    found = weights()
    _, queries, keys = found.shape
    seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries) & ~found.isnan()
    visible = found[seen]
    ordered = found.nan_to_num(0.0).sort(dim=-1, descending=True).values.cumsum(-1)
    needed = ((ordered < 0.99).sum(-1) + 1).double() / seen.sum(-1)
    return Measurement(
        {
            "model": model_name(),
            "weights": visible.numel(),
            "smallest": visible.min().item(),
            "share_zero": (visible == 0).double().mean().item(),
            "share_zero_in_float16": (visible.half() == 0).double().mean().item(),
            "share_below_a_millionth": (visible < 1e-6).double().mean().item(),
            "share_of_keys_with_99_percent": needed.median().item(),
            "share_masked": (~seen).double().mean().item(),
        }
    )


def judge_each(m: Measurement) -> Verdict:
    found = (
        f"in {m['model']} the smallest of {m['weights']:,} weights on visible keys is "
        f"{number(m['smallest'], 2)}, "
        f"and half of all rows have 99 % of their weight on "
        f"{percent(m['share_of_keys_with_99_percent'])} of the keys"
    )
    if m["share_zero"] > 0.01:
        return Verdict.folklore(f"{found}; {percent(m['share_zero'])} are exactly 0")
    if m["share_zero_in_float16"] > 0 or m["share_below_a_millionth"] > 0.001:
        return Verdict.conditional(
            f"softmax is never 0, and next to nothing is something: {found}; "
            f"{percent(m['share_below_a_millionth'])} "
            f"are below a millionth, {percent(m['share_zero_in_float16'])} are exactly 0 in float16, and "
            f"masked keys "
            f"are 0 always"
        )
    return Verdict.holds(found)


def _looped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    outs = [attention(q[:, [h]], k[:, [h]], v[:, [h]], Causal()) for h in range(q.shape[1])]
    return torch.cat(outs, 1)


def measure_loop(
    clock: Clock = medians, lengths: tuple[int, ...] = (32, 128, 512), heads: int = 16
) -> Measurement:
    """All heads in one call, and in a loop over heads: the results, and the seconds."""
    ratios, apart = {}, 0.0
    for n in lengths:
        q, k, v = torch.randn(3, 1, heads, n, 32).unbind()
        tasks: dict[str, Callable[[], Any]] = {
            "together": lambda q=q, k=k, v=v: attention(q, k, v, Causal()),
            "loop": lambda q=q, k=k, v=v: _looped(q, k, v),
        }
        apart = max(apart, (tasks["together"]() - tasks["loop"]()).abs().max().item())
        seconds = clock(tasks)
        ratios[str(n)] = seconds["loop"] / seconds["together"]
    return Measurement(
        {"heads": heads, "loop_by_together": ratios, "largest_difference": apart},
        Curves(
            {"loop ÷ together": (list(lengths), list(ratios.values()))}, "tokens", "ratio of times", log="x"
        ),
    )


def judge_loop(m: Measurement) -> Verdict:
    said = listed(f"{number(ratio)} times at {n} tokens" for n, ratio in m["loop_by_together"].items())
    found = (
        f"on this machine a loop over {m['heads']} heads takes {said} as long, with results that differ by "
        f"{number(m['largest_difference'], 2)}"
    )
    ratios = list(m["loop_by_together"].values())
    if min(ratios) > 1.1:
        return Verdict.holds(found)
    if max(ratios) > 1.1:
        return Verdict.conditional(f"where the overhead of calls counts: {found}")
    return Verdict.folklore(found)


WORD = "bank"
CONTEXTS = ("The boat drifted slowly to the bank", "The merchant carried his gold to the bank")


def measure_word(depth: int | None = None, contexts: tuple[str, str] = CONTEXTS) -> Measurement:
    """The cosine of one word's two vectors, layer by layer, in two contexts."""
    read = subject()
    states = []
    for text in contexts:
        ids = read.tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            out = read.model(ids, output_hidden_states=True)
        states.append(torch.stack([layer[0, -1].double() for layer in out.hidden_states[: depth or None]]))
    cosine = torch.cosine_similarity(*states, dim=-1)
    return Measurement(
        {
            "model": model_name(),
            "word": WORD,
            "contexts": list(contexts),
            "cosine_by_layer": cosine.tolist(),
            "cosine_of_embeddings": cosine[0].item(),
            "cosine_at_the_end": cosine[-1].item(),
        },
        Bars(
            [str(layer) for layer in range(len(cosine))],
            {"cosine": cosine.tolist()},
            "cosine of the two vectors",
            "layer (0: the embedding)",
            level=1.0,
        ),
    )


def judge_word(m: Measurement) -> Verdict:
    first, last = m["cosine_of_embeddings"], m["cosine_at_the_end"]
    found = (
        f"in {m['model']} the last token of {m['word']!r} after {m['contexts'][0]!r} and "
        f"{m['contexts'][1]!r} has "
        f"vectors of cosine {first:.3f} in the embedding and {last:.3f} at the last layer"
    )
    if last > 0.999:
        return Verdict.folklore(found)
    if first < 0.999:
        return Verdict.conditional(f"they differ from the start: {found}")
    return Verdict.holds(found)


CLAIMS = (
    Claim(
        "each-token",
        "Each token contributes something to every output.",
        "Late rows of every head of one model: the smallest weights, and what half precision leaves of them.",
        measure_each,
        judge_each,
        of_a_model=True,
    ),
    Claim(
        "two-vectors",
        "The same word in two contexts gets two vectors.",
        "The word bank after a boat and after a merchant: the cosine of its two vectors, layer by layer.",
        measure_word,
        judge_word,
        of_a_model=True,
    ),
)
LOOP = (
    Claim(
        "loop-over-heads",
        "One matrix product for all heads beats a loop over heads.",
        "Sixteen heads at once and one by one, at three lengths: results and times.",
        measure_loop,
        judge_loop,
    ),
)
