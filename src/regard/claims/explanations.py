"""Claims that read weights as reasons or as beliefs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas import Edge, knockout
from regard.atlas.ranks import ranks, spearman
from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.subjects import subject
from regard.claims.words import number, percent
from regard.engine import attention
from regard.maps import observe
from regard.models import watch
from regard.stats import Entropy

__all__ = ["CLAIMS", "Cuts", "Doubts"]

# The model is sure of the next letters of the name, and has seen it once.
SENTENCE = "The heron was called Osgood. The badger said to the heron, whose name was Os"


class Cuts(NamedTuple):
    """Edges of a text: their weight, and what the prediction loses when one of them is cut."""

    weight: Float[Tensor, " edges"]
    effect: Float[Tensor, " edges"]


def bundled_edges(each: int = 4) -> Cuts:
    """The heaviest edges of the last token in every head of the bundled model, each cut by itself."""
    model, tokenizer = subject().model, subject().tokenizer
    ids = tokenizer(SENTENCE, return_tensors="pt")["input_ids"]
    with torch.no_grad(), watch(model, stats=()) as recording:
        model(ids)
    weight, effect = [], []
    for layer in recording.all_layers:
        rows = layer.map[0, :, ids.shape[1] - 1, :]
        for head, row in enumerate(rows):
            top = row.topk(each)
            for share, key in zip(top.values.tolist(), top.indices.tolist(), strict=True):
                weight.append(share)
                effect.append(knockout(model, ids, edges=[Edge(layer.index, head, -1, key)]).kl)
    return Cuts(torch.tensor(weight, dtype=torch.float64), torch.tensor(effect, dtype=torch.float64))


def _tiny_value(size: float) -> tuple[float, float]:
    """The weight of one key whose value is tiny, and the share of the output that comes from it."""
    q = torch.tensor([[1.0]], dtype=torch.float64)
    k = torch.tensor([[6.0], [0.0], [0.0], [0.0]], dtype=torch.float64)
    v = torch.ones(4, 1, dtype=torch.float64)
    v[0] = size
    seen = observe(q, k, v, scale=1.0, stats=())
    weight = seen.map[0, 0, 0, :]
    rest = attention(q, k[1:], v[1:], scale=1.0) * (1 - weight[0])
    return weight[0].item(), (1 - rest / seen.out).item()


def measure_explain(edges: Callable[[], Cuts] = bundled_edges, value: float = 1e-4) -> Measurement:
    """A weight on a tiny value, and weights of a real model against what cutting their edges does."""
    weight, share = _tiny_value(value)
    cuts = edges()
    found = spearman(cuts.weight, cuts.effect)
    heavy = cuts.effect[cuts.weight >= cuts.weight.quantile(0.75)]
    return Measurement(
        {
            "weight_on_a_tiny_value": weight,
            "its_share_of_the_output": share,
            "edges": len(cuts.weight),
            "rank_correlation": found.rho,
            "rank_correlation_low": found.low,
            "rank_correlation_high": found.high,
            "smallest_effect_of_a_heavy_edge": heavy.min().item(),
            "largest_effect_of_a_heavy_edge": heavy.max().item(),
        },
        Curves(
            {"every second edge": (cuts.weight[::2].tolist(), cuts.effect[::2].clamp(min=1e-7).tolist())},
            "weight",
            "effect of cutting it (KL, nats)",
            log="y",
            dots=True,
        ),
    )


def judge_explain(m: Measurement) -> Verdict:
    rho, tiny = m["rank_correlation"], m["its_share_of_the_output"]
    found = (
        f"over {m['edges']} edges, the heaviest of every head, weight and the effect of cutting have a "
        f"rank correlation of {rho:.2f} ({m['rank_correlation_low']:.2f} to "
        f"{m['rank_correlation_high']:.2f}); among the heaviest quarter effects go from "
        f"{number(m['smallest_effect_of_a_heavy_edge'])} to "
        f"{number(m['largest_effect_of_a_heavy_edge'])} nats"
    )
    if rho > 0.9 and tiny > 0.5:
        return Verdict.holds(found)
    weight = number(m["weight_on_a_tiny_value"])
    counter = f"a weight of {weight} on a tiny value can make {percent(tiny)} of an output"
    if m["rank_correlation_low"] > 0.3:
        return Verdict.conditional(
            f"on the whole they go together, edge by edge they need not: {found}; and {counter}"
        )
    return Verdict.folklore(f"{counter}; {found}")


class Doubts(NamedTuple):
    """For every position: how sure the prediction is, and how evenly each head attends (1 is evenly)."""

    prediction: Float[Tensor, " q"]
    surest: Float[Tensor, " q"]
    heads: Float[Tensor, "heads q"]


def bundled_doubts(tokens: int = 300) -> Doubts:
    """The bundled model along the start of the story."""
    read = subject()
    ids = read.ids[:, :tokens]
    with torch.no_grad(), watch(read.model, stats=[Entropy()]) as recording:
        logits = read.model(ids).logits[0, 16:].double()
    most = torch.arange(17, ids.shape[1] + 1).log()
    heads = torch.cat([layer.stats["entropy"][0, :, 16:].double() / most for layer in recording.all_layers])
    chances = logits.softmax(-1)
    return Doubts(torch.special.entr(chances).sum(-1), chances.amax(-1), heads)


def measure_beliefs(doubts: Callable[[], Doubts] = bundled_doubts) -> Measurement:
    """Entropies of rows of weights against the entropy of what the model says next."""
    found = doubts()
    sure = found.surest > 0.9
    order = torch.stack([ranks(row) for row in (found.prediction, *found.heads)])
    alike = torch.corrcoef(order)[0, 1:]
    mean = found.heads.mean(0)
    return Measurement(
        {
            "positions": len(sure),
            "heads": len(alike),
            "sure_positions": int(sure.sum()),
            "most_even_row_where_sure": found.heads[:, sure].max().item() if sure.any() else 0.0,
            "rank_correlation_of_mean_entropy": spearman(mean, found.prediction).rho,
            "rank_correlation_of_the_best_head": alike[alike.abs().argmax()].item(),
        },
        Curves(
            {"a position each": (mean[::2].tolist(), found.prediction[::2].tolist())},
            "mean entropy of attention (1 = even)",
            "entropy of the prediction (nats)",
            dots=True,
        ),
    )


def judge_beliefs(m: Measurement) -> Verdict:
    best = m["rank_correlation_of_the_best_head"]
    found = (
        f"over {m['positions']} positions the entropy of attention, averaged over heads, has a rank "
        f"correlation of {m['rank_correlation_of_mean_entropy']:.2f} with the entropy of the prediction "
        f"(the best of {m['heads']} heads: {best:.2f})"
    )
    even = m["most_even_row_where_sure"]
    if best > 0.9 and even < 0.9:
        return Verdict.holds(found)
    counter = (
        f"at {m['sure_positions']} positions the model gives its next token more than 90 %, while a head's "
        f"row has {percent(even)} of the entropy of an even spread"
    )
    if best > 0.9:
        return Verdict.conditional(f"{found}; but {counter}")
    return Verdict.folklore(f"{counter}; {found}")


CLAIMS = (
    Claim(
        "weights-explain",
        "Attention weights explain the prediction.",
        "A weight on a tiny value; and 256 edges of the bundled model, each cut: weight against effect.",
        measure_explain,
        judge_explain,
    ),
    Claim(
        "weights-probabilities",
        "Attention weights are the model's beliefs.",
        "Heads that attend evenly where the model is sure; entropy of weights against that of predictions.",
        measure_beliefs,
        judge_beliefs,
    ),
)
