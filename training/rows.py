"""What a training step reads: rows of books, some of them repeated, some with facts hidden and asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from training.facts import Fact

__all__ = ["Batch", "Rows", "plant", "shifted", "tiled", "whole"]

# Repeated segments are at least so many tokens long, and at least so small a part of the context.
SHORTEST, PARTS = 16, 128
# Random tokens are drawn from at least so many: of a few, each comes often, and one token is no longer enough
# to know where the copy is.
ALPHABET = 32
# What cannot be known teaches little, and the few tokens that answer a question teach much.
UNKNOWABLE, ANSWER = 0.1, 4.0


class Batch(NamedTuple):
    """Rows to read, what comes next in each, and how much each next token counts."""

    ids: Int[Tensor, "batch q"]
    targets: Int[Tensor, "batch q"]
    weights: Float[Tensor, "batch q"]


class Rows:
    """Endless batches, each row END and then `context - 1` tokens.

    Text rows begin with a paragraph, and an epoch covers the text once, from a new offset and in a new order.
    Of the rows of a batch, a share `repeated` are one segment over and over, half of them text and half
    random tokens: nothing in a book pays a small model as well for learning to continue what it has seen
    before, and without them no induction head grows. Short segments are as common as long ones, up to half
    the context. A share `planted` hides facts in its text and asks for them up to the whole context later.
    """

    def __init__(
        self,
        tokens: Int[Tensor, " stream"],
        paragraph_end: int,
        *,
        batch: int,
        context: int,
        repeated: float,
        planted: float = 0.0,
        facts: Sequence[Fact] = (),
        sentence_ends: Sequence[int] = (),
        vocabulary: int = 4096,
        seed: int = 0,
    ) -> None:
        self.tokens, self.batch, self.context = tokens, batch, context
        self.repeated, self.planted, self.facts = repeated, planted if facts else 0.0, facts
        self.vocabulary, self.paragraph_end = vocabulary, paragraph_end
        self.sentence_ends = np.array(sentence_ends, dtype=np.int64)
        # Rows are cut where the device holds the text; which rows is drawn here, so a seed means one order.
        self.random = torch.Generator().manual_seed(seed)
        self.choose = random.Random(seed)
        begins = (tokens == paragraph_end).nonzero().flatten() + 1
        self.begins = torch.cat([begins.new_zeros(1), begins])
        self.epoch = 0

    def __iter__(self) -> Iterator[Batch]:
        starts = self._starts()
        while True:
            picked = torch.stack([next(starts) for _ in range(self.batch)])
            text = self.tokens[picked[:, None] + torch.arange(self.context, device=picked.device)].long()
            weights = torch.ones(text.shape, device=text.device)
            planted, repeated = (self._count(share) for share in (self.planted, self.repeated))
            if repeated:
                self._repeat(text[-repeated:], weights[-repeated:])
            # Where few rows make a batch, one may be both: facts are then asked for in repeated text.
            for row in range(min(planted, self.batch)):
                self._plant(text[row], weights[row])
            yield Batch(*shifted(text), weights)

    def _starts(self) -> Iterator[Tensor]:
        last = len(self.tokens) - self.context
        while True:
            offset = self._draw(self.context)
            nominal = torch.arange(int(offset), last, self.context, device=self.tokens.device)
            at = torch.searchsorted(self.begins, nominal).clamp(max=len(self.begins) - 1)
            starts = self.begins[at].clamp(max=last)
            yield from starts[torch.randperm(len(starts), generator=self.random).to(starts.device)]
            self.epoch += 1

    def _count(self, share: float) -> int:
        """So many rows that their share is met on average."""
        return int(share * self.batch + float(torch.rand((), generator=self.random)))

    def _repeat(self, text: Int[Tensor, "rows context"], weights: Float[Tensor, "rows context"]) -> None:
        count, device = len(text), text.device
        shortest, longest = max(SHORTEST, self.context // PARTS), max(SHORTEST + 1, self.context // 2)
        ratio = (longest / shortest) ** torch.rand(count, 1, generator=self.random)
        lengths = (shortest * ratio).round().long().to(device)
        first = int(torch.rand((), generator=self.random) < 0.5)
        is_noise = (torch.arange(first, first + count) % 2 == 0)[:, None].to(device)
        text.copy_(tiled(torch.where(is_noise, self._noise(count).to(device), text), lengths))
        once = torch.arange(self.context, device=device) < lengths
        weights.masked_fill_(is_noise & once, UNKNOWABLE)

    def _noise(self, count: int) -> Int[Tensor, "rows context"]:
        """Random tokens, half of the rows of all there are, half of a few."""
        rows, least = [], min(ALPHABET, self.vocabulary - 1)
        for _ in range(count):
            few, how_few = torch.rand(2, generator=self.random).tolist()
            size = (
                self.vocabulary - 1 if few < 0.5 else int(least * ((self.vocabulary - 1) / least) ** how_few)
            )
            alphabet = 1 + torch.randperm(self.vocabulary - 1, generator=self.random)[:size]
            rows.append(alphabet[self._draw(size, self.context)])
        return torch.stack(rows)

    def _plant(self, text: Int[Tensor, " context"], weights: Float[Tensor, " context"]) -> None:
        least, most = 3, max(4, self.context // 128)
        count = int(least * (most / least) ** self.choose.random())
        facts = self.choose.sample(self.facts, count)
        row, answers = plant(
            text.cpu().numpy(), facts, self.sentence_ends, self.paragraph_end, self.choose
        )  # fmt: skip
        text.copy_(torch.from_numpy(row))
        weights[torch.from_numpy(answers).to(weights.device)] = ANSWER

    def _draw(self, below: int, *size: int) -> Tensor:
        return torch.randint(below, size, generator=self.random)


def plant(
    text: Int[np.ndarray, " context"],
    facts: Sequence[Fact],
    sentence_ends: Int[np.ndarray, " marks"],
    paragraph_end: int,
    choose: random.Random,
) -> tuple[Int[np.ndarray, " context"], np.ndarray]:
    """The text with facts between its sentences, and a question about each further on, the last at the end.

    Returns the row, as long as the text, and where the tokens of asked-for answers are. A question comes any
    distance after its fact, short ones as often as long ones. A text too short for a fact stays as it is.
    """
    asked_last, length = facts[-1], len(text)
    final = [paragraph_end, *asked_last.question, *asked_last.answer]
    room = length - len(final)
    if room < len(final):
        return text, np.zeros(0, dtype=np.int64)
    stops = np.flatnonzero(np.isin(text, sentence_ends)) + 1
    events: list[tuple[float, Fact, bool]] = [(choose.random() ** 1.5 * room * 0.98, asked_last, False)]
    for fact in facts[:-1]:
        at = choose.random() * room
        events += [(at, fact, False), (at + 48 * (length / 48) ** choose.random(), fact, True)]
    pieces, done, written = [], 0, 0
    answers: list[int] = []
    for at, fact, asks in sorted(events, key=lambda event: event[0]):
        if at > room:
            continue
        stop = done
        if at > written:
            next_stop = np.searchsorted(stops, done + int(at - written))
            stop = int(stops[next_stop]) if next_stop < len(stops) else length
        pieces.append(text[done:stop])
        written, done = written + stop - done, stop
        before = [paragraph_end, *fact.question] if asks else [*fact.spaced]
        after = [int(sentence_ends[0])] if len(sentence_ends) else []
        if asks:
            answers += range(written + len(before), written + len(before) + len(fact.answer))
        piece = [*before, *fact.answer, *after, *([paragraph_end] if asks else [])]
        pieces.append(np.array(piece))
        written += len(piece)
        if fact is asked_last and written > room:
            # No sentence ended in time, so the row begins with the fact.
            pieces.insert(0, np.array(piece))
            answers = [at + len(piece) for at in answers]
            written += len(piece)
    pieces.append(text[done:])
    row = np.concatenate([np.concatenate(pieces)[:room], final]).astype(np.int64)
    answers = [at for at in answers if at < room] + list(range(length - len(asked_last.answer), length))
    return row, np.array(answers)


def tiled(
    rows: Int[Tensor, "batch context"], lengths: Int[Tensor, "batch 1"]
) -> Int[Tensor, "batch context"]:
    """Each row's first `length` tokens, over and over.

    >>> tiled(torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[2]]))
    tensor([[5, 6, 5, 6, 5]])
    """
    return rows.gather(1, torch.arange(rows.shape[1], device=rows.device) % lengths)


def shifted(rows: Int[Tensor, "batch context"]) -> tuple[Tensor, Tensor]:
    """(ids, targets): END goes in front of what is read, and each token is the target of those before it.

    >>> shifted(torch.tensor([[5, 6, 7]]))
    (tensor([[0, 5, 6]]), tensor([[5, 6, 7]]))
    """
    return torch.cat([torch.zeros_like(rows[:, :1]), rows[:, :-1]], 1), rows


def whole(tokens: Int[Tensor, " stream"], context: int) -> tuple[Tensor, Tensor]:
    """(ids, targets) of every token of a stream, each a target exactly once; the last row is padded.

    >>> whole(torch.tensor([5, 6, 7]), 2)
    (tensor([[0, 5],
            [0, 7]]), tensor([[   5,    6],
            [   7, -100]]))
    """
    padding = -len(tokens) % context
    rows = torch.nn.functional.pad(tokens.long(), (0, padding)).view(-1, context)
    ids, targets = shifted(rows)
    targets.view(-1)[len(tokens) :] = -100
    return ids, targets
