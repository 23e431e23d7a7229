"""Claims about what small attention models learn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars
from regard.claims.training import train
from regard.claims.words import number, percent
from regard.masks import Causal, Mask
from regard.nn import MultiHeadAttention

__all__ = ["CLAIMS"]

SYMBOLS, LENGTH = 16, 12


class Reader(nn.Module):
    """A small transformer: layers of attention and a feed-forward part, with learned places."""

    def __init__(
        self, layers: int, classes: int, symbols: int, length: int, mask: Mask | None = None
    ) -> None:
        super().__init__()
        self.mask = mask
        self.embed, self.place = nn.Embedding(symbols, 32), nn.Parameter(0.3 * torch.randn(length, 32))
        self.attend = nn.ModuleList(MultiHeadAttention(32, 4) for _ in range(layers))
        self.feed = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
            for _ in range(max(layers, 1))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(layers))
        self.out = nn.Linear(32, classes)

    def forward(self, symbols: Tensor) -> Tensor:
        x = self.embed(symbols) + self.place[: symbols.shape[1]]
        for index, feed in enumerate(self.feed):
            if index < len(self.attend):
                x = x + self.attend[index](self.norms[index](x), mask=self.mask)
            x = x + feed(x)
        return self.out(x)


def counting(size: int) -> tuple[Tensor, Tensor]:
    """Sequences that count up by a step of their own, and the next number at every place."""
    start, step = torch.randint(SYMBOLS, (2, size, 1))
    every = (start + (1 + step % 7) * torch.arange(LENGTH + 1)) % SYMBOLS
    return every[:, :-1], every[:, 1:]


@torch.no_grad()
def _written(model: nn.Module, size: int = 256) -> float:
    """How often the next number is right where the model sees only what is there so far."""
    symbols, wanted = counting(size)
    hits = [
        (model(symbols[:, : n + 1])[:, -1].argmax(-1) == wanted[:, n]).double().mean()
        for n in range(2, LENGTH)
    ]
    return torch.stack(hits).mean().item()


def measure_cheating(mask: Mask | None = None, steps: int = 250) -> Measurement:
    """The same model trained to name the next number, with a causal mask and without (or with another)."""
    found: dict[str, tuple[float, float]] = {}
    for name, used in (("causal", Causal()), ("open", mask)):
        torch.manual_seed(0)
        model = Reader(1, SYMBOLS, SYMBOLS, LENGTH, used)
        losses = train(model, counting, steps, rate=5e-3)
        found[name] = (sum(losses[-20:]) / 20, _written(model))
    return Measurement(
        {
            "steps": steps,
            "chance": 1 / SYMBOLS,
            **{f"training_loss_{name}": loss for name, (loss, _) in found.items()},
            **{f"right_when_writing_{name}": share for name, (_, share) in found.items()},
        },
        Bars(
            ["with the mask", "without"],
            {"right when writing": [found[name][1] for name in ("causal", "open")]},
            "next number right",
            level=1 / SYMBOLS,
        ),
    )


def judge_cheating(m: Measurement) -> Verdict:
    found = (
        f"after {m['steps']} steps the model without the mask has a training loss of "
        f"{number(m['training_loss_open'], 2)} and writes {percent(m['right_when_writing_open'])} of "
        f"numbers rightly; "
        f"with it {number(m['training_loss_causal'], 2)} and {percent(m['right_when_writing_causal'])}"
    )
    if m["right_when_writing_open"] > m["right_when_writing_causal"] - 0.1:
        return Verdict.folklore(found)
    if m["training_loss_open"] < m["training_loss_causal"]:
        return Verdict.holds(f"it copies what it should foretell: {found}")
    return Verdict.conditional(f"it writes worse, though its loss is no lower: {found}")


PAIRS = 8


def brackets(size: int) -> tuple[Tensor, Tensor]:
    """Nested brackets of two kinds, with the kind of every closing one hidden; and the kind of each.

    0 and 1 open, 2 closes. The class of an opening bracket is its own kind.
    """
    symbols, kinds = torch.zeros(2, size, 2 * PAIRS, dtype=torch.long)
    drawn = torch.rand(size, 2 * PAIRS)
    for row in range(size):
        open_kinds: list[int] = []
        left = PAIRS
        for place in range(2 * PAIRS):
            if left and (not open_kinds or drawn[row, place] < 0.5):
                kind = int(drawn[row, place] * 1000) % 2
                open_kinds.append(kind)
                left -= 1
                symbols[row, place], kinds[row, place] = kind, kind
            else:
                symbols[row, place], kinds[row, place] = 2, open_kinds.pop()
    return symbols, kinds


def measure_brackets(layers: Sequence[int] = (0, 1, 2), steps: int = 250) -> Measurement:
    """Name the kind of closing brackets that it is hidden of: by models of so many attention layers."""
    torch.manual_seed(1)
    pool, test = brackets(1024), brackets(256)
    closing = test[0] == 2

    def batch(size: int) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(pool[0]), (size,))
        return pool[0][chosen], pool[1][chosen]

    shares = {}
    for count in layers:
        torch.manual_seed(0)
        model = Reader(count, 2, 3, 2 * PAIRS, Causal())
        train(model, batch, steps, rate=3e-3)
        with torch.no_grad():
            hits = model(test[0]).argmax(-1) == test[1]
        shares[str(count)] = hits[closing].double().mean().item()
    return Measurement(
        {"steps": steps, "pairs": PAIRS, "chance": 0.5, "right_by_layers": shares},
        Bars(
            list(shares),
            {"right": list(shares.values())},
            "closing brackets named rightly",
            "attention layers",
            level=0.5,
        ),
    )


def judge_brackets(m: Measurement) -> Verdict:
    shares = m["right_by_layers"]
    fewest, *more = shares
    said = ", ".join(f"{percent(share)} with {count}" for count, share in shares.items())
    found = (
        f"after {m['steps']} steps models name the kind of closing brackets rightly in {said} "
        f"attention layers"
    )
    best = max(shares.values())
    if not more or best < shares[fewest] + 0.15:
        return Verdict.folklore(f"{found}; without any it is {percent(shares[fewest])}")
    if shares[more[0]] > 0.97:
        return Verdict.holds(found)
    return Verdict.conditional(f"attention is what finds them, though one layer does not find all: {found}")


CLAIMS = (
    Claim(
        "cheating",
        "Trained without a causal mask, a model learns to copy the next token.",
        "A small model that counts up by an unknown step, trained with the mask and without, then made "
        "to write.",
        measure_cheating,
        judge_cheating,
    ),
    Claim(
        "brackets",
        "Attention can match brackets.",
        "Nested brackets of two kinds: models with no, one and two attention layers name each closing one.",
        measure_brackets,
        judge_brackets,
    ),
)
