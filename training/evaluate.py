"""What the trained model can do: its losses, what its heads do, what it finds, and what it writes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

import regard
from training.facts import Fact
from training.hybrid import Attention, Hybrid
from training.rows import shifted, whole

__all__ = [
    "apart",
    "attention_weights",
    "continuations",
    "head_scores",
    "losses_by_position",
    "needles",
    "repetition",
    "token_losses",
    "validation_loss",
]

# Tokens that are read at a time.
CHUNK = 65536
DELIMITERS = (".", ",", '."', "\n\n", ";", "!", "?", ',"')


@torch.no_grad()
def token_losses(model: Hybrid, ids: Tensor, targets: Tensor) -> Float[Tensor, "batch q"]:
    """Each token's loss in nats; 0 where a target does not count."""
    rows = max(1, CHUNK // ids.shape[1])
    return torch.cat(
        [model.losses(ids[i : i + rows], targets[i : i + rows]).float() for i in range(0, len(ids), rows)]
    )


def validation_loss(model: Hybrid, tokens: Int[Tensor, " stream"], context: int) -> float:
    """Mean loss over every token of a stream, in nats; each has up to `context - 1` tokens before it."""
    ids, targets = whole(tokens, context)
    return float(token_losses(model, ids, targets).sum(dtype=torch.float64) / len(tokens))


def losses_by_position(model: Hybrid, rows: Int[Tensor, "batch context"]) -> list[dict]:
    """Mean loss between positions that are powers of two, over rows of text."""
    losses = torch.cat([token_losses(model, *shifted(row[None].long())) for row in rows]).double()
    found, start = [], 0
    for stop in [2**i for i in range(6, 30) if 2**i < rows.shape[1]] + [rows.shape[1]]:
        found.append({"from": start, "to": stop, "loss": float(losses[:, start:stop].mean())})
        start = stop
    return found


def apart(model: Hybrid, stream: Int[Tensor, " stream"], context: int, ranges: list[dict]) -> list[dict]:
    """The losses of a stream between positions, and in `apart` those of the same tokens in short rows."""
    losses = token_losses(model, *whole(stream, context)).flatten()[: len(stream)].double()
    return [x | {"apart": float(losses[x["from"] : x["to"]].mean())} for x in ranges]


def repetition(model: Hybrid, period: int, rows: int, device: torch.device) -> dict:
    """What the model makes of END, `period` random tokens, and the same tokens again in the same order.

    first, second: mean loss on each copy, less the token at which the second begins, which cannot be known.
    induction: each head's (layers × heads) mean weight, in the second copy, on the token to be predicted as
    it stood in the first.
    """
    generator = torch.Generator().manual_seed(1)
    once = torch.randint(1, model.shape.vocabulary, (rows, period), generator=generator)
    ids, targets = shifted(once.repeat(1, 2).to(device))
    losses, found = [], []
    for row, wanted in zip(ids, targets, strict=True):
        with _looking(model, lambda q, k, lse, attention: _ahead(q, k, lse, attention, period)) as looks:
            losses.append(token_losses(model, row[None], wanted[None])[0])
        found.append(torch.stack(looks))
    together = torch.stack(losses)
    return {
        "period": period,
        "rows": rows,
        "first": float(together[:, :period].mean()),
        "second": float(together[:, period + 1 :].mean()),
        "induction": _rounded(torch.stack(found).mean(0)),
    }


def _ahead(q: Tensor, k: Tensor, lse: Tensor, attention: Attention, period: int) -> Float[Tensor, " heads"]:
    """Mean weight that queries of the second copy give to what comes next, where it stood in the first."""
    if attention.windowed and period > _window(attention):
        return q.new_zeros(len(q)).float()
    rows = torch.arange(period + 1, q.shape[1], device=q.device)
    return _weights_at(q, k, lse, rows, rows + 1 - period).mean(1)


def _window(attention: Attention) -> int:
    """How many keys a query of a windowed layer sees."""
    return int(attention.mask.allows(torch.tensor([[1 << 20]]), torch.arange(1 << 20)[None]).sum()) + 1


def _weights_at(
    q: Tensor, k: Tensor, lse: Tensor, rows: Int[Tensor, " pairs"], keys: Int[Tensor, " pairs"]
) -> Float[Tensor, "heads pairs"]:
    """The weight of each pair of a query and a key it may attend to."""
    scores = (q[:, rows].float() * k[:, keys].float()).sum(-1) * q.shape[-1] ** -0.5
    return (scores - lse[:, rows].float()).exp()


def head_scores(
    model: Hybrid, text: Int[Tensor, "batch context"], delimiters: Sequence[int] = ()
) -> dict[str, list[list[float]]]:
    """Each head's (layers × heads) mean weight in text: on the token before, on the first, on delimiters.

    Sinks and delimiters are counted from position 32 on. Rows are read by the formula, so let them be short.
    """
    found: dict[str, list[Tensor]] = {"previous": [], "sink": [], "delimiter": []}
    marks = torch.tensor(list(delimiters), device=text.device)
    for row in shifted(text)[0]:
        maps = attention_weights(model, row)
        start, is_mark = min(32, len(row) - 1), torch.isin(row, marks)
        found["previous"].append(torch.stack([w.diagonal(-1, -2, -1).mean(-1) for w in maps]))
        found["sink"].append(torch.stack([w[:, start:, 0].mean(-1) for w in maps]))
        found["delimiter"].append(torch.stack([w[:, start:, is_mark].sum(-1).mean(-1) for w in maps]))
    return {name: _rounded(torch.stack(scores).mean(0)) for name, scores in found.items()}


def _rounded(scores: Float[Tensor, "layers heads"]) -> list[list[float]]:
    return [[round(x, 4) for x in layer] for layer in scores.tolist()]


@torch.no_grad()
def attention_weights(model: Hybrid, ids: Int[Tensor, " q"]) -> list[Float[Tensor, "heads q k"]]:
    """The whole map of every layer for one text, by the formula: slow, obvious, and independent of regard."""
    found: list[Tensor] = []

    def read(attention: Attention, inputs: tuple) -> None:
        q, k, _ = (x[0].float() for x in attention.rows(*inputs))
        k = k.repeat_interleave(len(q) // len(k), 0)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
        if attention.windowed:
            hidden |= torch.ones_like(hidden).tril(-model.shape.window)
        found.append(scores.masked_fill(hidden, -torch.inf).softmax(-1))

    with _hooked(model, read):
        model.model(ids[None])
    return found


def needles(
    model: Hybrid, hay: Int[Tensor, "rows tokens"], facts: Sequence[Fact], depths: int, paragraph_end: int,
    sentence_ends: Sequence[int], seed: int = 0,
) -> dict:  # fmt: skip
    """A fact hidden at several depths of each row of text, and asked for at its end.

    recalled: by depth, the share of rows whose whole answer is the likeliest, token by token.
    log_probability: that of the whole answer, the mean over rows. retrieval: by depth, what each head
    (layers × heads) gives to the hidden answer where it is predicted. Rows keep their length: the text that
    the fact displaces is left out.
    """
    choose = random.Random(seed)
    chosen = [choose.choice(facts) for _ in hay]
    recalled, certain, retrieval, places = [], [], [], []
    for depth in torch.linspace(0, 1, depths).tolist():
        hits, chances, looks = [], [], []
        for text, fact in zip(hay, chosen, strict=True):
            ids, source, reply = _hidden(text, fact, depth, paragraph_end, sentence_ends)
            hit, chance, look = _asked(model, ids, source, reply)
            hits.append(hit)
            chances.append(chance)
            looks.append(look)
        places.append(depth)
        recalled.append(sum(hits) / len(hits))
        certain.append(sum(chances) / len(chances))
        retrieval.append(_rounded(torch.stack(looks).mean(0)))
    return {
        "tokens": hay.shape[1],
        "rows": len(hay),
        "depths": places,
        "recalled": recalled,
        "log_probability": certain,
        "retrieval": retrieval,
    }


def _hidden(
    text: Tensor, fact: Fact, depth: float, paragraph_end: int, sentence_ends: Sequence[int]
) -> tuple[Tensor, range, range]:
    """(ids with END in front, where the answer is hidden, where it is asked for)."""
    mark = sentence_ends[:1]
    needle = torch.tensor([*fact.spaced, *fact.answer, *mark], device=text.device)
    final = torch.tensor([paragraph_end, *fact.question, *fact.answer], device=text.device)
    room = len(text) - 1 - len(needle) - len(final)
    stops = torch.isin(text[:room], torch.tensor(list(sentence_ends), device=text.device)).nonzero() + 1
    stops = torch.cat([stops.new_zeros(1), stops.flatten(), stops.new_full((1,), room)])
    stop = int(stops[(stops - depth * room).abs().argmin()])
    end = text.new_zeros(1)
    ids = torch.cat([end, text[:stop], needle.to(text.dtype), text[stop:room], final.to(text.dtype)])
    first = 1 + stop + len(fact.spaced)
    source = range(first, first + len(fact.answer))
    return ids, source, range(len(ids) - len(fact.answer), len(ids))


@torch.no_grad()
def _asked(model: Hybrid, ids: Tensor, source: range, reply: range) -> tuple[bool, float, Tensor]:
    """Whether the answer is the likeliest, its log-probability, and what heads give to it."""
    look: list[Tensor] = []
    asks = torch.arange(reply.start - 1, reply.stop - 1, device=ids.device)

    def read(attention: Attention, inputs: tuple) -> None:
        q, k, _ = (x[0].float() for x in attention.rows(*inputs))
        k = k.repeat_interleave(len(q) // len(k), 0)
        scores = q[:, asks] @ k.transpose(1, 2) / q.shape[-1] ** 0.5  # (heads, asks, k)
        keys = torch.arange(k.shape[1], device=ids.device)
        seen = keys <= asks[:, None]
        if attention.windowed:
            seen &= keys > asks[:, None] - model.shape.window
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        look.append(weights[:, :, source.start : source.stop].sum(-1).mean(-1))

    with _hooked(model, read):
        x = model.model(ids[None])
    logits = torch.nn.functional.linear(x[asks], model.model.embed_tokens.weight).float()
    wanted = ids[reply.start : reply.stop].long()
    hit = bool((logits.argmax(-1) == wanted).all())
    return hit, float(logits.log_softmax(-1).gather(1, wanted[:, None]).sum()), torch.stack(look)


@contextmanager
def _looking(
    model: Hybrid, look: Callable[[Tensor, Tensor, Tensor, Attention], Tensor]
) -> Iterator[list[Tensor]]:
    """What `look` finds in every layer, given queries, keys (of as many heads) and log-sum-exp of a row."""
    found: list[Tensor] = []

    def read(attention: Attention, inputs: tuple) -> None:
        q, k, v = attention.rows(*inputs)
        lse = regard.observe(q, k, v, mask=attention.mask, stats=[regard.Entropy()]).lse
        groups = q.shape[1] // k.shape[1]
        found.append(look(q[0], k[0].repeat_interleave(groups, 0), lse[0], attention))

    with _hooked(model, read):
        yield found


@contextmanager
def _hooked(model: Hybrid, read: Callable[[Attention, tuple], None]) -> Iterator[None]:
    handles = [layer.self_attn.register_forward_pre_hook(read) for layer in model.model.layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def continuations(
    model: Hybrid, prompts: Int[Tensor, "batch q"], length: int, temperature: float = 0.8, seed: int = 0
) -> Int[Tensor, "batch longer"]:
    """Prompts and what the model writes after them, sampled."""
    generator = torch.Generator(prompts.device).manual_seed(seed)
    ids = prompts
    for _ in range(length):
        logits = model(ids[:, -model.shape.context :])[:, -1].float() / temperature
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1, generator=generator)], 1)
    return ids
