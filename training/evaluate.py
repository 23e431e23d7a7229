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
    "repetition_losses",
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


def repetition_losses(model: Llama, rows: int, context: int, device: torch.device) -> tuple[float, float]:
    """Mean loss on random tokens, and on the same tokens when they come again in the same order."""
    losses = token_losses(model, *shifted(_twice(model, rows, context, device)))
    first, second = losses.chunk(2, 1)
    return float(first.mean()), float(second.mean())


def head_scores(model: Llama, text: Int[Tensor, "batch context"]) -> dict[str, list[list[float]]]:
    """How far each head (layers × heads) is one of the known kinds: mean weights, from 0 to 1.

    previous: on the token before, in text. sink: on the first token, in text, over queries from 32 on.
    induction: on the token after the last time this token was seen, in random tokens that come twice.
    """
    batch, context = text.shape
    ids = shifted(text)[0]
    twice = _twice(model, batch, context, text.device)
    period = context // 2
    weights = (_mean_over_rows(model, ids, _previous_and_sink), _mean_over_rows(
        model, shifted(twice)[0], lambda w: w.diagonal(1 - period, -2, -1)[:, 2:].mean(-1)[None]
    ))  # fmt: skip
    (previous, sink), (induction,) = weights
    return {
        name: [[round(x, 4) for x in layer] for layer in scores.tolist()]
        for name, scores in (("previous", previous), ("induction", induction), ("sink", sink))
    }


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


def _twice(model: Llama, rows: int, context: int, device: torch.device) -> Int[Tensor, "batch context"]:
    """Random tokens, the second half of each row equal to the first."""
    random = torch.Generator().manual_seed(1)
    half = torch.randint(1, model.shape.vocabulary, (rows, context // 2), generator=random)
    return half.repeat(1, 2).to(device)
