"""What a training step reads: rows of story text, a tenth of them one segment repeated."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

__all__ = ["LONGEST", "SHORTEST", "Rows", "shifted", "tiled", "whole"]

SHORTEST, LONGEST = 16, 1000


class Rows:
    """Endless batches of (ids, targets), each row END and then `context - 1` tokens.

    Text rows begin with a paragraph, and an epoch covers the text once, from a new offset and in a new order.
    The last `repeated` rows of a batch are one segment over and over, half of them text and half random
    tokens: nothing in a story pays a small model as well for learning to continue what it has seen before,
    and without them no induction head grows. Short segments are as common as long ones: as many of 16 to 32
    tokens as of 500 to 1000.
    """

    def __init__(
        self,
        tokens: Int[Tensor, " stream"],
        paragraph_end: int,
        *,
        batch: int,
        context: int,
        repeated: int,
        vocabulary: int = 4096,
        seed: int = 0,
    ) -> None:
        self.tokens, self.batch, self.context, self.repeated = tokens, batch, context, repeated
        self.vocabulary = vocabulary
        # Rows are cut where the device holds the text; which rows is drawn here, so a seed means one order.
        self.random = torch.Generator().manual_seed(seed)
        begins = (tokens == paragraph_end).nonzero().flatten() + 1
        self.begins = torch.cat([begins.new_zeros(1), begins])
        self.epoch = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        starts = self._starts()
        while True:
            picked = torch.stack([next(starts) for _ in range(self.batch)])
            text = self.tokens[picked[:, None] + torch.arange(self.context, device=picked.device)].long()
            yield shifted(self._repeat(text))

    def _starts(self) -> Iterator[Tensor]:
        last = len(self.tokens) - self.context
        while True:
            offset = self._draw(self.context)
            nominal = torch.arange(int(offset), last, self.context, device=self.tokens.device)
            at = torch.searchsorted(self.begins, nominal).clamp(max=len(self.begins) - 1)
            starts = self.begins[at].clamp(max=last)
            yield from starts[torch.randperm(len(starts), generator=self.random).to(starts.device)]
            self.epoch += 1

    def _repeat(self, text: Int[Tensor, "batch context"]) -> Int[Tensor, "batch context"]:
        if self.repeated == 0:
            return text
        count = self.repeated
        longest = min(LONGEST, self.context // 2)
        ratio = (longest / SHORTEST) ** torch.rand(count, 1, generator=self.random)
        lengths = (SHORTEST * ratio).round().long().to(text.device)
        noise = 1 + self._draw(self.vocabulary - 1, count, self.context).to(text.device)
        is_noise = (torch.arange(count) % 2 == 0)[:, None].to(text.device)
        text[-count:] = tiled(torch.where(is_noise, noise, text[-count:]), lengths)
        return text

    def _draw(self, below: int, *size: int) -> Tensor:
        return torch.randint(below, size, generator=self.random)


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
