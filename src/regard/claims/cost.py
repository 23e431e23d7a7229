"""Claims about what attention costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.words import listed, percent, slope
from regard.cost import FULL, Attention, ModelShape, Print, cache_bytes, parameters, prefill, preset, prints
from regard.cost.prints import verdict as print_verdict

__all__ = ["CLAIMS", "plain_scores", "score_prints"]


def plain_scores(q: Tensor, k: Tensor) -> Tensor:
    """The score matrix, whole."""
    return q @ k.mT


def score_prints() -> list[Print]:
    """The printed tables of what the score matrix of one head costs."""
    return [found for found in prints() if found.what.startswith("scores of one head")]


def measure_quadratic(
    scores: Callable[[Tensor, Tensor], Tensor] = plain_scores,
    printed: Callable[[], list[Print]] = score_prints,
    lengths: Sequence[int] = (128, 256, 512, 1024),
) -> Measurement:
    """FLOPs and bytes of real score matrices by length, and printed tables against exact counts."""
    flops, size = [], []
    for n in lengths:
        q, k = torch.randn(2, n, 64).unbind()
        with FlopCounterMode(display=False) as counter:
            size.append(scores(q, k).untyped_storage().nbytes())
        flops.append(counter.get_total_flops())
    stands = {one.what: one.verdict for one in printed()}
    wrong = {one.what: (one.printed, str(one.exact)) for one in printed() if one.verdict == "wrong"}
    return Measurement(
        {
            "lengths": list(lengths),
            "bytes": size,
            "flops": flops,
            "exponent_of_bytes": slope(lengths, size),
            "exponent_of_flops": slope(lengths, flops),
            "numbers_printed": len(stands),
            "numbers_binary": sum("binary" in stand for stand in stands.values()),
            "wrong": {what: f"{given} should be {exact}" for what, (given, exact) in wrong.items()},
        },
        Curves(
            {"bytes": (lengths, size), "FLOPs": (lengths, flops)}, "n", "cost of Q·Kᵀ, one head", log="xy"
        ),
    )


def judge_quadratic(m: Measurement) -> Verdict:
    grows = (
        f"from {m['lengths'][0]} to {m['lengths'][-1]} tokens bytes grow as n^{m['exponent_of_bytes']:.2f} "
        f"and FLOPs as n^{m['exponent_of_flops']:.2f}"
    )
    if abs(m["exponent_of_bytes"] - 2) > 0.05 or abs(m["exponent_of_flops"] - 2) > 0.05:
        return Verdict.folklore(grows)
    if m["wrong"]:
        places = "; ".join(f"{what}: {said}" for what, said in m["wrong"].items())
        return Verdict.misprint(f"{grows}, but of the printed tables {places}")
    if m["numbers_binary"]:
        return Verdict.conditional(
            f"{grows}; of {m['numbers_printed']} printed numbers none is wrong, but {m['numbers_binary']} "
            f"are right only if K, M, G and B are powers of 1024"
        )
    return Verdict.holds(f"{grows}, and all {m['numbers_printed']} printed numbers are right")


def measure_gqa(
    heads: int = 40, kv_heads: int = 8, claimed: Fraction = Fraction(1, 5), context: int = 8192
) -> Measurement:
    """Bytes of the cache of Llama 4 Maverick's shape, as it is and with a key head for every query head."""
    shape = preset("llama-4-maverick")

    def bytes_with(kept: int) -> int:
        layers = tuple(
            replace(layer, attention=replace(layer.attention, heads=heads, kv_heads=kept), reach=FULL)
            for layer in shape.layers
        )
        return cache_bytes(replace(shape, layers=layers), context)

    grouped, full = bytes_with(kv_heads), bytes_with(heads)
    real = [
        sum(
            x.untyped_storage().nbytes()
            for x in torch.empty(2, 1, kept, 64, 128, dtype=torch.bfloat16).unbind()
        )
        for kept in (kv_heads, heads)
    ]
    return Measurement(
        {
            "context": context,
            "bytes_grouped": grouped,
            "bytes_full": full,
            "ratio": str(Fraction(grouped, full)),
            "ratio_of_real_tensors": str(Fraction(*real)),
            "claimed": str(claimed),
            "heads": heads,
            "kv_heads": kv_heads,
        }
    )


def judge_gqa(m: Measurement) -> Verdict:
    found = (
        f"{m['heads']} query heads on {m['kv_heads']} key heads keep {m['bytes_grouped']:,} bytes of "
        f"{m['context']:,} tokens, and on {m['heads']} key heads {m['bytes_full']:,}: {m['ratio']}"
    )
    if m["ratio"] != m["claimed"] or m["ratio_of_real_tensors"] != m["ratio"]:
        return Verdict.misprint(f"{found}, and not {m['claimed']}")
    return Verdict.holds(found)


def measure_irope(shape: ModelShape | None = None, context: int = 2**20) -> Measurement:
    """FLOPs of Llama 4 Maverick's own layers, and of the same layers if all of them saw everything."""
    shape = preset("llama-4-maverick") if shape is None else shape
    full = replace(shape, layers=tuple(replace(layer, reach=FULL) for layer in shape.layers))

    def spent(one: ModelShape, n: int) -> tuple[int, int]:
        work = prefill(one, n)
        return work.flops_by_part["scores"] + work.flops_by_part["mix"], work.flops

    contexts = [2**i for i in range(11, 21)]
    pairs = [spent(shape, n)[0] / spent(full, n)[0] for n in contexts]
    ours, theirs = spent(shape, context), spent(full, context)
    return Measurement(
        {
            "context": context,
            "ratio_of_attention_flops": ours[0] / theirs[0],
            "ratio_of_all_flops": ours[1] / theirs[1],
            "ratio_of_cache_bytes": cache_bytes(shape, context) / cache_bytes(full, context),
            "ratio_at_8192": spent(shape, 8192)[0] / spent(full, 8192)[0],
        },
        Curves({"scores and mix": (contexts, pairs)}, "context", "FLOPs relative to full layers", log="x"),
    )


def judge_irope(m: Measurement) -> Verdict:
    found = (
        f"at {m['context']:,} tokens scores and mixing take {percent(m['ratio_of_attention_flops'])} of the "
        f"FLOPs that full layers would, the whole prefill {percent(m['ratio_of_all_flops'])}, and the cache "
        f"{percent(m['ratio_of_cache_bytes'])} of the bytes"
    )
    if m["ratio_of_attention_flops"] > 0.9:
        return Verdict.folklore(found)
    return Verdict.holds(f"{found} (of the FLOPs at 8,192 tokens: {percent(m['ratio_at_8192'])})")


def measure_maverick(
    attention: Attention | None = None, per_layer: str = "62.9M", all_layers: str = "3.0B"
) -> Measurement:
    """The attention parameters of Llama 4 Maverick, counted from its config."""
    shape = preset("llama-4-maverick")
    if attention is not None:
        shape = replace(shape, layers=tuple(replace(layer, attention=attention) for layer in shape.layers))
    one, every = shape.layers[0].attention.parameters(shape.d_model), parameters(shape).attention
    return Measurement(
        {
            "layers": len(shape.layers),
            "per_layer": one,
            "all_layers": every,
            "printed_per_layer": per_layer,
            "printed_all_layers": all_layers,
            "stands_per_layer": print_verdict(per_layer, Decimal(one)),
            "stands_all_layers": print_verdict(all_layers, Decimal(every)),
        }
    )


def judge_maverick(m: Measurement) -> Verdict:
    wrong = [name for name in ("per_layer", "all_layers") if m[f"stands_{name}"] == "wrong"]
    if wrong:
        said = listed(f"{m[f'printed_{name}']} is printed, and {m[name]:,} is right" for name in wrong)
        return Verdict.misprint(said)
    return Verdict.holds(
        f"a layer has {m['per_layer']:,} ({m['printed_per_layer']} is {m['stands_per_layer']}) and "
        f"{m['layers']} layers have {m['all_layers']:,} ({m['printed_all_layers']} is "
        f"{m['stands_all_layers']})"
    )


CLAIMS = (
    Claim(
        "quadratic",
        "The cost of the score matrix grows as n², as the printed tables say.",
        "FLOPs and bytes of real score matrices, and every number of the tables against exact counts.",
        measure_quadratic,
        judge_quadratic,
    ),
    Claim(
        "gqa-saves",
        "40 query heads on 8 key and value heads need a fifth of the key–value cache.",
        "Bytes of the cache of Llama 4 Maverick's shape, and of real tensors.",
        measure_gqa,
        judge_gqa,
    ),
    Claim(
        "irope-saves",
        "Global attention in every fourth layer, and chunks of 8,192 in the others, cut the cost at a "
        "million tokens.",
        "FLOPs of Llama 4 Maverick's layers against the same layers with full attention.",
        measure_irope,
        judge_irope,
    ),
    Claim(
        "maverick-params",
        "Attention in Llama 4 Maverick has 62.9 million parameters a layer and 3.0 billion in all.",
        "Counted from its config.",
        measure_maverick,
        judge_maverick,
    ),
)
