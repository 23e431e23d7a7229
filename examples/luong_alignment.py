"""Luong's attention reads numbers in words: all of them, or only around a place it predicts.

    python examples/luong_alignment.py [--score general] [--where local-p] [--steps 300] [--out alignment.png]

A recurrent network reads "forty two thousand nine hundred seven" word by word and writes 4 2 9 0 7. Digits
and words come in the same order, but not one for one: "fifteen" is two digits, "thousand" is none, and a zero
has no word. With --where local-p the network predicts where to look, and learns it from digits alone.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.nn import Luong
from regard.plots import heatmap

UNITS = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"]
UNITS += ["twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
WORDS = [*UNITS, *TENS[2:], "hundred", "thousand"]
END, START = 10, 11  # beside the ten digits


class Number(NamedTuple):
    """A number in words, its digits, and for each digit the index of its word (None for a zero)."""

    words: list[str]
    digits: list[int]
    source: list[int | None]


class Result(NamedTuple):
    """Shares: a number is right; a digit looks hardest at its word; a digit would do so by chance."""

    accuracy: float
    alignment: float
    chance: float


def spelled(number: int) -> Number:
    """A number from 1 to 999,999 in words."""
    words: list[str] = []
    source: list[int | None] = []
    for part, unit in ((number // 1000, "thousand"), (number % 1000, "")):
        hundreds, rest = divmod(part, 100)
        source.append(len(words) if hundreds else None)
        words += [UNITS[hundreds], "hundred"] if hundreds else []
        if rest < 20:
            source += [len(words) if rest > 9 else None, len(words) if rest else None]
            words += [UNITS[rest]] if rest else []
        else:
            source += [len(words), len(words) + 1 if rest % 10 else None]
            words += [TENS[rest // 10], UNITS[rest % 10]] if rest % 10 else [TENS[rest // 10]]
        words += [unit] if part and unit else []
    digits = [int(digit) for digit in str(number)]
    return Number(words, digits, source[-len(digits) :])


class Calculator(nn.Module):
    """An encoder, a decoder that runs first, and attention after it, as Luong has it."""

    def __init__(self, score: str, where: str, hidden: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), 32)
        self.encoder = nn.GRU(32, hidden // 2, batch_first=True, bidirectional=True)
        self.digits = nn.Embedding(12, 16)
        self.decoder = nn.GRU(16, hidden, batch_first=True)
        self.look = Luong(hidden, hidden, score, where, reach=None if where == "global" else 2)
        self.join = nn.Linear(2 * hidden, hidden)
        self.write = nn.Linear(hidden, 11)

    def forward(self, words: Tensor, lengths: Tensor, before: Tensor):
        """Logits (batch, digits, 11) given the digits before, and what the map is made of."""
        memory, last = self.encoder(self.words(words))
        states, _ = self.decoder(self.digits(before), last.transpose(0, 1).flatten(1)[None])
        context = self.look(states, memory, lengths)
        return self.write(torch.tanh(self.join(torch.cat([context, states], -1)))), states, memory


def batch_of(numbers: list[Number]) -> tuple[Tensor, Tensor, Tensor]:
    """Words padded at the end, their lengths, and START, digits, END (and END again, as padding)."""
    rows = [torch.tensor([WORDS.index(word) for word in number.words]) for number in numbers]
    longest = max(len(number.digits) for number in numbers)
    digits = [[START, *n.digits] + [END] * (longest + 1 - len(n.digits)) for n in numbers]
    lengths = torch.tensor([len(row) for row in rows])
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), lengths, torch.tensor(digits)


def random_number(rng: random.Random) -> Number:
    """Of any length alike; a third of the digits are zeros, or they would be rare."""
    digits = [rng.choice("123456789")] + [rng.choice("000123456789") for _ in range(rng.randint(0, 5))]
    return spelled(int("".join(digits)))


def train(model: Calculator, steps: int, rng: random.Random) -> None:
    """Train on numbers that are drawn anew in every step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(1, steps + 1):
        words, lengths, digits = batch_of([random_number(rng) for _ in range(64)])
        logits, _, _ = model(words, lengths, digits[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), digits[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == steps:
            print(f"step {step:4}  loss {loss.item():.3f}", flush=True)


def main(score: str = "general", where: str = "local-p", steps: int = 300, out: Path | None = None) -> Result:
    """Train, measure on other numbers, and draw one of them."""
    torch.manual_seed(0)
    rng = random.Random(0)
    model = Calculator(score, where)
    train(model, steps, rng)
    numbers = [spelled(42_907), *(random_number(rng) for _ in range(199))]
    words, lengths, digits = batch_of(numbers)
    with torch.no_grad():
        logits, states, memory = model(words, lengths, digits[:, :-1])
        seen = model.look.observe(states, memory, lengths)
    weights = seen.map.dense()[:, 0]
    looks = weights.argmax(-1).tolist()
    found = [
        (looks[row][step] == word, 1 / len(number.words))
        for row, number in enumerate(numbers)
        for step, word in enumerate(number.source)
        if word is not None
    ]
    right = (logits.argmax(-1) == digits[:, 1:]).all(-1).float().mean().item()
    hit, chance = (sum(column) / len(found) for column in zip(*found, strict=True))
    print(f"numbers right: {right:.1%}")
    print(f"digits that look hardest at their word: {hit:.1%} (chance {chance:.1%})")
    print(f"mean entropy of a look: {seen.entropy.mean().item():.2f} nats")
    first = numbers[0]
    rows = len(first.digits)
    figure = heatmap(
        weights[0, :rows, : len(first.words)],
        [str(digit) for digit in first.digits],
        first.words,
        hidden=seen.map.scores((0, 0, slice(rows), slice(len(first.words)))) == -torch.inf,
        title=f"Luong's attention, {score} score, {where}",
        row_title="written",
        column_title="read",
    )
    out = out or Path(tempfile.mkdtemp()) / "luong.png"
    figure.savefig(out)
    print(f"figure: {out}")
    return Result(right, hit, chance)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--score", choices=["dot", "general", "concat"], default="general")
    parser.add_argument("--where", choices=["global", "local-m", "local-p"], default="local-p")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
