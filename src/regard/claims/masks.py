"""Claims about masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.atlas.knockout import divergence
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars
from regard.claims.subjects import subject
from regard.claims.words import listed, number, percent
from regard.engine import attention
from regard.masks import Causal, Dense, Mask
from regard.models import watch

__all__ = ["CLAIMS"]

CAUSAL = Causal()
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def _masked(scores: Tensor, hidden: Tensor, value: float) -> Tensor:
    """Softmax with a number in place of masked scores, as in hand-written code."""
    return torch.where(hidden, torch.tensor(value, dtype=torch.float64).to(scores.dtype), scores).softmax(-1)


def _refused(value: float) -> bool:
    """Whether PyTorch refuses to fill masked float16 scores with a number."""
    try:
        torch.zeros(1, dtype=torch.float16).masked_fill(torch.ones(1, dtype=torch.bool), value)
    except RuntimeError:
        return True
    return False


def measure_inf(
    infinite: float = -math.inf, finite: float = -1e9, rows: int = 64, keys: int = 50
) -> Measurement:
    """Hidden weights in three dtypes, with −inf and with −1e9; then rows that are hidden altogether."""
    hidden = torch.rand(rows, keys) < 0.5
    hidden[:, 0], hidden[:, 1] = False, True
    nothing = torch.ones(1, keys, dtype=torch.bool)
    numbers: dict[str, Any] = {"leak_infinite": {}, "leak_finite": {}, "row_infinite": {}, "row_finite": {}}
    for name, dtype in DTYPES.items():
        scores = (8 * torch.randn(rows, keys)).to(dtype)
        for kind, value in (("infinite", infinite), ("finite", finite)):
            weights = _masked(scores, hidden, value)
            numbers[f"leak_{kind}"][name] = weights[hidden].double().max().item()
            total = _masked(scores[:1], nothing, value).double().sum().item()
            numbers[f"row_{kind}"][name] = "NaN" if math.isnan(total) else round(total, 2)
    q, k = torch.randn(1, 1, 1, 8), torch.randn(1, 1, keys, 8)
    ours = attention(q, k, torch.ones(1, 1, keys, 1), Dense(~nothing))
    return Measurement(
        numbers
        | {
            "row_of_regard": ours.sum().item(),
            "finite": finite,
            "masked_fill_refuses_it": _refused(finite),
            "float16_can_hold_it": torch.tensor(finite, dtype=torch.float64).half().item() == finite,
        }
    )


def judge_inf(m: Measurement) -> Verdict:
    leaks = {name: value for name, value in m["leak_infinite"].items() if value > 0}
    if leaks:
        worst = max(leaks.values())
        return Verdict.folklore(f"hidden keys get a weight of up to {number(worst)} in {listed(leaks)}")
    value = number(m["finite"])
    found = f"in {listed(m['leak_infinite'])} hidden keys get exactly 0 with −inf"
    leaks = {name: value for name, value in m["leak_finite"].items() if value > 0}
    if leaks:
        return Verdict.folklore(f"{found}, but up to {number(max(leaks.values()))} with {value}")
    found += f", and with {value} as well"
    differ = [
        f"{name}: {m['row_infinite'][name]} and {m['row_finite'][name]}"
        for name in m["row_infinite"]
        if m["row_infinite"][name] != m["row_finite"][name]
    ]
    if not differ and m["float16_can_hold_it"]:
        return Verdict.holds(found)
    breaks = []
    if differ:
        breaks.append(
            f"the weights of a row that may see nothing add up to other things with −inf and with "
            f"{value} ({', '.join(differ)}; regard gives {number(m['row_of_regard'])})"
        )
    if not m["float16_can_hold_it"]:
        error = ", and masked_fill refuses it" if m["masked_fill_refuses_it"] else ""
        breaks.append(f"float16 has no {value}: it becomes −inf{error}")
    return Verdict.conditional(f"{found}; but {listed(breaks)}")


def measure_after(
    masked: Callable[[Tensor, Tensor], Tensor] = lambda s, seen: s.softmax(-1) * seen, n: int = 65
) -> Measurement:
    """A causal mask put on the weights instead of the scores; then rows made to add up to one again."""
    scores = torch.randn(n, n, dtype=torch.float64, requires_grad=True)
    v = torch.randn(n, 8, dtype=torch.float64)
    seen = torch.ones(n, n, dtype=torch.bool).tril()
    honest = scores.masked_fill(~seen, -math.inf).softmax(-1)
    late = masked(scores, seen)
    mended = late / late.sum(-1, keepdim=True)
    leak = torch.autograd.grad((late @ v).square().sum(), scores)[0]
    return Measurement(
        {
            "smallest_row_sum": late.sum(-1).min().item(),
            "mean_row_sum": late.sum(-1).mean().item(),
            "largest_gradient_through_hidden": leak[~seen].abs().max().item(),
            "relative_error_of_output": ((late - honest) @ v).norm().item() / (honest @ v).norm().item(),
            "relative_error_renormalised": ((mended - honest) @ v).norm().item() / (honest @ v).norm().item(),
        },
        Bars(
            [str(i) for i in range(0, n, 8)],
            {"row sum": late.sum(-1).detach()[::8].tolist()},
            "sum of the row",
            "query",
            level=1.0,
        ),
    )


def judge_after(m: Measurement) -> Verdict:
    if m["largest_gradient_through_hidden"] < 1e-12 and m["relative_error_of_output"] < 1e-9:
        return Verdict.folklore(
            f"nothing leaks: rows add up to {number(m['smallest_row_sum'])} or more, and the output is "
            f"{number(m['relative_error_of_output'])} off"
        )
    found = (
        f"rows add up to as little as {number(m['smallest_row_sum'])} ({number(m['mean_row_sum'])} on "
        f"average), outputs are {percent(m['relative_error_of_output'])} off, and hidden scores still "
        f"steer them (gradients up to {number(m['largest_gradient_through_hidden'])})"
    )
    if m["relative_error_renormalised"] < 1e-9:
        return Verdict.conditional(
            f"{found}; but rows made to add up to one again are right within "
            f"{number(m['relative_error_renormalised'])}"
        )
    return Verdict.holds(found)


def measure_causal(mask: Mask | None = CAUSAL, n: int = 65, model: bool = True) -> Measurement:
    """What reaches an output from later tokens: gradients, and a change of every later token."""
    q, k, v = torch.randn(3, 1, 2, n, 16, requires_grad=True).unbind()
    at = n // 2
    gradients = torch.autograd.grad(attention(q, k, v, mask)[0, :, at].square().sum(), (k, v))
    late = torch.arange(n) > at
    changed = [torch.where(late[:, None], torch.randn_like(x), x).detach() for x in (q, k, v)]
    before, after = attention(q, k, v, mask), attention(changed[0], changed[1], changed[2], mask)
    moved = (after - before)[:, :, : at + 1]
    numbers: dict[str, Any] = {
        "largest_gradient_from_later": max(g[:, :, late].abs().max().item() for g in gradients),
        "largest_gradient_from_earlier": max(g[:, :, ~late].abs().max().item() for g in gradients),
        "largest_change": moved.abs().max().item(),
    }
    if model:
        read = subject()
        ids = read.ids[:, :200]
        other = torch.cat([ids[:, :100], torch.randint(3, 4000, (1, 100))], 1)
        with torch.no_grad():
            logits = [read.model(given).logits[:, :100] for given in (ids, other)]
        numbers["largest_change_of_a_logit"] = (logits[0] - logits[1]).abs().max().item()
    return Measurement(numbers)


def judge_causal(m: Measurement) -> Verdict:
    leaks = {
        name: m[name]
        for name in ("largest_gradient_from_later", "largest_change", "largest_change_of_a_logit")
        if name in m.numbers and m[name] != 0
    }
    if not leaks:
        whole = ", nor do the logits of the whole bundled model"
        whole = whole if "largest_change_of_a_logit" in m.numbers else ""
        return Verdict.holds(
            f"gradients from later tokens are exactly 0 (from earlier ones up to "
            f"{number(m['largest_gradient_from_earlier'])}), and when all later tokens are replaced the "
            f"outputs change in no bit{whole}"
        )
    said = listed(f"{name.replace('_', ' ')} is {number(value)}" for name, value in leaks.items())
    if max(leaks.values()) < 1e-5:
        return Verdict.conditional(f"to rounding: {said}")
    return Verdict.folklore(f"later tokens reach the output: {said}")


def _padded(side: str, hide: bool, words: int, pads: int) -> tuple[float, float]:
    """The share of the real tokens' weight that pads take, and the KL of the last token's prediction."""
    read = subject()
    ids = read.ids[:, :words]
    pad = torch.full((1, pads), int(read.model.config.eos_token_id or 0))
    parts, real = ([pad, ids], slice(pads, None)) if side == "left" else ([ids, pad], slice(0, words))
    given = torch.cat(parts, 1)
    valid = torch.zeros_like(given)
    valid[:, real] = 1
    options = {"attention_mask": valid} if hide else {}
    with torch.no_grad():
        alone = read.model(ids).logits[0, -1]
        with watch(read.model, stats=()) as recording:
            logits = read.model(given, **options).logits[0, real][-1]
    shares = [
        layer.map.dense()[:, :, real][..., valid[0] == 0].double().sum(-1).mean().item()
        for layer in recording.all_layers
    ]
    return sum(shares) / len(shares), float(divergence(alone, logits))


def measure_padding(hide: bool = False, words: int = 90, pads: int = 40) -> Measurement:
    """The bundled model on a text with pads before it and after it, with no padding mask; then with one."""
    left, right, masked = (
        _padded("left", hide, words, pads),
        _padded("right", hide, words, pads),
        _padded("left", True, words, pads),
    )
    return Measurement(
        {
            "words": words,
            "pads": pads,
            "share_left": left[0],
            "share_right": right[0],
            "share_left_masked": masked[0],
            "kl_left": left[1],
            "kl_right": right[1],
            "kl_left_masked": masked[1],
        },
        Bars(
            ["pads before", "pads after", "before, masked"],
            {"share": [left[0], right[0], masked[0]]},
            "weight on pads",
        ),
    )


def judge_padding(m: Measurement) -> Verdict:
    taking = {side: m[f"share_{side}"] for side in ("left", "right") if m[f"share_{side}"] > 0.001}
    if not taking:
        return Verdict.folklore(
            f"pads take {percent(m['share_left'])} of the weight before the text and "
            f"{percent(m['share_right'])} after it"
        )
    words = {"left": "before", "right": "after"}
    found = listed(
        f"{m['pads']} pads {words[side]} {m['words']} tokens take {percent(share)} of their weight "
        f"and move the next-token distribution by {number(m[f'kl_{side}'])} nats"
        for side, share in taking.items()
    )
    found += f" (with a padding mask {percent(m['share_left_masked'])} and {number(m['kl_left_masked'])})"
    if len(taking) == 2:
        return Verdict.holds(found)
    spared = next(side for side in words if side not in taking)
    return Verdict.conditional(
        f"{found}; but pads {words[spared]} the text take {percent(m[f'share_{spared}'])}: the causal mask "
        f"hides them"
    )


CLAIMS = (
    Claim(
        "mask-inf",
        "A score of −inf before softmax gives a weight of exactly zero, and −1e9 does the same.",
        "Hidden weights in float32, bfloat16 and float16, and rows of which everything is hidden.",
        measure_inf,
        judge_inf,
    ),
    Claim(
        "mask-after",
        "A mask that is applied after softmax leaks.",
        "Row sums, outputs and gradients with the mask on the weights; again with rows renormalised.",
        measure_after,
        judge_after,
    ),
    Claim(
        "causal-future",
        "Under the causal mask no output depends on a later token.",
        "Gradients from later tokens, and all later tokens replaced: a layer, and the whole bundled model.",
        measure_causal,
        judge_causal,
    ),
    Claim(
        "padding-leak",
        "Without a padding mask, pads take weight.",
        "The bundled model reads a text with pads before it, and after it: the share of weight on pads.",
        measure_padding,
        judge_padding,
    ),
)
