"""Bahdanau's attention learns where each digit of a date is written.

    python examples/bahdanau_alignment.py [--steps 200] [--out alignment.png]

A recurrent network reads a date as people write it ("the 4th of July 1976"), letter by letter, and writes it
as eight digits (19760704). The order changes and months become numbers, so each digit has a place of its own
to look at. The network is not told where: the figure shows what it found.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.nn import Bahdanau
from regard.plots import heatmap

MONTHS = ["January", "February", "March", "April", "May", "June", "July"]
MONTHS += ["August", "September", "October", "November", "December"]
ALPHABET = " ,0123456789" + "".join(sorted(set("".join(MONTHS) + "thesndrof")))
# A digit comes from the year, the month or the day; so do some of the letters read.
PARTS_WRITTEN = "yyyymmdd"


class Date(NamedTuple):
    """A date as read, the part each letter of it belongs to, and the digits to write."""

    text: str
    parts: str
    digits: str


class Result(NamedTuple):
    """Shares: a digit is right; it looks hardest at its own part of the date; it would do so by chance."""

    accuracy: float
    alignment: float
    chance: float


def random_date(rng: random.Random) -> Date:
    """Any day from 1900 to 2099, in one of four manners."""
    year, month, day = rng.randint(1900, 2099), rng.randint(1, 12), rng.randint(1, 28)
    ending = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(day, "th")
    name = rng.choice([MONTHS[month - 1], MONTHS[month - 1][:3]])
    y, m, d = (str(year), "y"), (name, "m"), (str(day), "d")
    manners = (
        (d, " ", m, " ", y),
        (m, " ", d, ", ", y),
        ("the ", d, ending, " of ", m, " ", y),
        (y, ", ", m, " ", d),
    )
    pieces = [piece if isinstance(piece, tuple) else (piece, ".") for piece in rng.choice(manners)]
    text = "".join(piece for piece, _ in pieces)
    parts = "".join(part * len(piece) for piece, part in pieces)
    return Date(text, parts, f"{year}{month:02}{day:02}")


class Reader(nn.Module):
    """An encoder over letters, and a decoder that looks at it before it writes each digit."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), 32)
        self.encoder = nn.GRU(32, hidden // 2, batch_first=True, bidirectional=True)
        self.digits = nn.Embedding(11, 16)  # ten digits, and one for the start
        self.decoder = nn.GRUCell(16 + hidden, hidden)
        self.look = Bahdanau(query_dim=hidden, memory_dim=hidden, hidden=hidden)
        self.write = nn.Linear(2 * hidden, 10)

    def forward(self, letters: Tensor, lengths: Tensor, digits: Tensor | None = None):
        """Logits (batch, 8, 10), and what it takes to look at the map: the states that asked, and the memory.

        With `digits` the decoder is told the digit before; without, it reads its own.
        """
        memory, _ = self.encoder(self.letters(letters))
        state = memory.new_zeros(len(letters), memory.shape[-1])
        before = torch.full((len(letters),), 10)
        logits, asked = [], []
        for step in range(8):
            asked.append(state)
            context = self.look(state[:, None], memory, lengths)[:, 0]
            state = self.decoder(torch.cat([self.digits(before), context], -1), state)
            logits.append(self.write(torch.cat([state, context], -1)))
            before = logits[-1].argmax(-1) if digits is None else digits[:, step]
        return torch.stack(logits, 1), torch.stack(asked, 1), memory


def batch_of(dates: list[Date]) -> tuple[Tensor, Tensor, Tensor]:
    """Letters padded at the end, their lengths, and the digits."""
    rows = [torch.tensor([ALPHABET.index(letter) for letter in date.text]) for date in dates]
    digits = torch.tensor([[int(digit) for digit in date.digits] for date in dates])
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows]), digits


def train(steps: int, rng: random.Random) -> Reader:
    """Train on dates that are drawn anew in every step."""
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(1, steps + 1):
        letters, lengths, digits = batch_of([random_date(rng) for _ in range(64)])
        logits, _, _ = model(letters, lengths, digits)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), digits.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == steps:
            print(f"step {step:4}  loss {loss.item():.3f}", flush=True)
    return model


def main(steps: int = 200, out: Path | None = None) -> Result:
    """Train, measure on dates never seen, and draw one of them."""
    torch.manual_seed(0)
    rng = random.Random(0)
    model = train(steps, rng).eval()
    dates = [Date("the 4th of July 1976", "....d......mmmm.yyyy", "19760704")]
    dates += [random_date(rng) for _ in range(199)]
    letters, lengths, digits = batch_of(dates)
    with torch.no_grad():
        logits, asked, memory = model(letters, lengths)
        seen = model.look.observe(asked, memory, lengths)
    own = torch.zeros(len(dates), 8, letters.shape[1], dtype=torch.bool)
    for row, date in enumerate(dates):
        for column, part in enumerate(date.parts):
            own[row, :, column] = torch.tensor([part == wanted for wanted in PARTS_WRITTEN])
    weights = seen.map.dense()[:, 0]
    hit = own.gather(-1, weights.argmax(-1, keepdim=True)).float().mean().item()
    chance = (own.sum(-1) / lengths[:, None]).mean().item()
    result = Result((logits.argmax(-1) == digits).float().mean().item(), hit, chance)
    print(f"digits right: {result.accuracy:.1%}")
    print(f"digits that look hardest at their own part of the date: {hit:.1%} (chance {chance:.1%})")
    print(f"mean entropy of a look: {seen.entropy.mean().item():.2f} nats")
    text, written = dates[0].text, "".join(map(str, logits[0].argmax(-1).tolist()))
    figure = heatmap(
        weights[0, :, : len(text)],
        list(written),
        [letter.replace(" ", "␣") for letter in text],
        annotate=False,
        title="Where Bahdanau's attention looks",
        row_title="written",
        column_title="read",
    )
    out = out or Path(tempfile.mkdtemp()) / "bahdanau.png"
    figure.savefig(out)
    print(f"figure: {out}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
