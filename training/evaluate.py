"""What the trained model can do: its losses, what its heads do, and what it writes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from training.llama import Attention, Llama
from training.rows import shifted, whole

__all__ = [
    "attention_weights",
    "continuations",
    "head_scores",
    "repetition",
    "token_losses",
    "validation_loss",
]

CHUNK = 16


@torch.no_grad()
def token_losses(model: Llama, ids: Tensor, targets: Tensor) -> Float[Tensor, "batch q"]:
    """Each token's loss in nats; 0 where a target does not count."""
    parts = []
    for start in range(0, len(ids), CHUNK):
        logits = model(ids[start : start + CHUNK]).float()
        wanted = targets[start : start + CHUNK]
        parts.append(F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none", ignore_index=-100))
    return torch.cat(parts)


def validation_loss(model: Llama, tokens: Int[Tensor, " stream"], context: int) -> float:
    """Mean loss over every token of a stream, in nats; each has up to `context - 1` tokens before it."""
    ids, targets = whole(tokens, context)
    return float(token_losses(model, ids, targets).sum(dtype=torch.float64) / len(tokens))


def repetition(model: Llama, period: int, rows: int, device: torch.device) -> dict:
    """What the model makes of END, `period` random tokens, and the same tokens again in the same order.

    first, second: mean loss on each copy, less the token at which the second begins, which cannot be known.
    induction: each head's (layers × heads) mean weight, in the second copy, on the token to be predicted as
    it stood in the first.
    """
    random = torch.Generator().manual_seed(1)
    once = torch.randint(1, model.shape.vocabulary, (rows, period), generator=random)
    ids, targets = shifted(once.repeat(1, 2).to(device))
    losses = token_losses(model, ids, targets)
    (induction,) = _mean_over_rows(model, ids, lambda w: w.diagonal(1 - period, -2, -1)[:, 2:].mean(-1)[None])
    return {
        "period": period,
        "first": float(losses[:, :period].mean()),
        "second": float(losses[:, period + 1 :].mean()),
        "induction": _rounded(induction),
    }


def head_scores(model: Llama, text: Int[Tensor, "batch context"]) -> dict[str, list[list[float]]]:
    """Each head's (layers × heads) mean weight in text on the token before, and on the first (from 32 on)."""
    previous, sink = _mean_over_rows(model, shifted(text)[0], _previous_and_sink)
    return {"previous": _rounded(previous), "sink": _rounded(sink)}


def _rounded(scores: Float[Tensor, "layers heads"]) -> list[list[float]]:
    return [[round(x, 4) for x in layer] for layer in scores.tolist()]


def _previous_and_sink(w: Float[Tensor, "heads q k"]) -> Float[Tensor, "2 heads"]:
    return torch.stack([w.diagonal(-1, -2, -1).mean(-1), w[:, min(32, w.shape[1] - 1) :, 0].mean(-1)])


def _mean_over_rows(model: Llama, ids: Tensor, measure) -> Float[Tensor, "kinds layers heads"]:
    rows = [torch.stack([measure(w) for w in attention_weights(model, row)], 1) for row in ids]
    return torch.stack(rows).mean(0)


@torch.no_grad()
def attention_weights(model: Llama, ids: Int[Tensor, " q"]) -> list[Float[Tensor, "heads q k"]]:
    """The whole map of every layer for one text, by the formula: slow, obvious, and independent of regard."""
    found = []

    def read(attention: Attention, inputs: tuple[Tensor, ...]) -> None:
        q, k, _ = (x[0].float() for x in attention.project(*inputs))
        k = k.repeat_interleave(len(q) // len(k), 0)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        future = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
        found.append(scores.masked_fill(future, -torch.inf).softmax(-1))

    handles = [layer.self_attn.register_forward_pre_hook(read) for layer in model.model.layers]
    try:
        model(ids[None])
    finally:
        for handle in handles:
            handle.remove()
    return found


@torch.no_grad()
def continuations(
    model: Llama, prompts: Int[Tensor, "batch q"], length: int, temperature: float = 0.8, seed: int = 0
) -> Int[Tensor, "batch longer"]:
    """Prompts and what the model writes after them, sampled."""
    random = torch.Generator(prompts.device).manual_seed(seed)
    ids = prompts
    for _ in range(length):
        logits = model(ids[:, -model.shape.context :])[:, -1].float() / temperature
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1, generator=random)], 1)
    return ids
