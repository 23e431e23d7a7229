"""Hides a sentence in a long text, and asks a question about it at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ModelError
from regard.models.text import context_length

__all__ = ["Haystack", "Hidden", "Needle", "sentences"]

# A sentence ends with its punctuation, the closing quotes and brackets, and the space after them.
SENTENCE_END = re.compile(r"""[.!?]["'”’)\]]*\s+""")
AFTER_HAY = "\n\n"


@dataclass(frozen=True)
class Needle:
    """A sentence to hide, a question that asks for it, and the answer that should follow the question."""

    sentence: str
    question: str
    answer: str

    @classmethod
    def of(cls, sentence: str, question: str, answer: str | None = None) -> Needle:
        """By default the answer is the rest of the sentence after the question, without final punctuation.

        >>> Needle.of("The donkey's name was Barnaby.", "name was").answer
        ' Barnaby'
        """
        sentence = sentence.strip()
        if answer is None:
            answer = sentence.partition(question)[2].rstrip().rstrip(".!?\"'”’")
        if not sentence or not question.strip() or not answer.strip():
            raise ModelError(
                f"the needle is {sentence!r} and the question {question!r}, which leaves no answer; let the "
                "question end within the needle, or give answer=."
            )
        return cls(sentence, question, answer)

    @property
    def source(self) -> tuple[int, int]:
        """The span of the answer in the sentence; (0, 0) if the sentence doesn't contain it."""
        start = self.sentence.rfind(self.answer.strip())
        return (start, start + len(self.answer.strip())) if start >= 0 else (0, 0)


@dataclass(frozen=True)
class Hidden:
    """The tokens of the text with the needle at one depth, and the spans of the needle, its answer and the
    reply.

    `reply` are the tokens of the answer at the very end. `needle` and `source` (the answer within the needle)
    are empty in the control, which has no needle.
    """

    ids: Int[Tensor, "1 n"]
    place: float
    needle: range
    source: range
    reply: range


class Haystack:
    """As many sentences of a text as fit, among which a needle can be hidden at any depth."""

    def __init__(self, model: Any, tokenizer: Any, text: str, needle: Needle, length: int | None) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(
                f"{type(tokenizer).__name__} cannot say where tokens stand in a text (it is not a fast "
                "tokenizer), so the needle could not be found again. Use a fast tokenizer."
            )
        self.tokenizer, self.device, self.needle = tokenizer, model.device, needle
        self.pieces = self._fitting(sentences(text), self._room(length, context_length(model)))
        self.starts = [0, *accumulate(self._count(piece) for piece in self.pieces)]

    def at(self, depth: float) -> Hidden:
        """The text with the needle at the sentence boundary nearest to a depth from 0 (first) to 1 (last)."""
        wanted = depth * self.starts[-1]
        boundary = min(range(len(self.starts)), key=lambda i: abs(self.starts[i] - wanted))
        before, after = "".join(self.pieces[:boundary]), "".join(self.pieces[boundary:])
        if before and not before[-1].isspace():
            before += " "
        start, (first, last) = len(before), self.needle.source
        return self._tokens(
            f"{before}{self.needle.sentence} {after}",
            self.starts[boundary] / max(1, self.starts[-1]),
            (start, start + len(self.needle.sentence)),
            (start + first, start + last),
        )

    def without(self) -> Hidden:
        """The control: the same sentences and the same question, and no needle."""
        return self._tokens("".join(self.pieces), 0.0, (0, 0), (0, 0))

    def _tokens(self, text: str, place: float, needle: tuple[int, int], source: tuple[int, int]) -> Hidden:
        asked = text.rstrip() + AFTER_HAY + self.needle.question
        whole = asked + self.needle.answer
        found = self.tokenizer(whole, return_offsets_mapping=True, verbose=False)
        spans = found["offset_mapping"]
        reply = _within(spans, (len(asked), len(whole)))
        ids = torch.tensor([found["input_ids"]], device=self.device)
        return Hidden(ids, place, _within(spans, needle), _within(spans, source), reply)

    def _room(self, length: int | None, context: int | None) -> int | None:
        """The most tokens that the hay may have; None for no limit."""
        if length is not None and context is not None and length > context:
            raise ModelError(f"length is {length}; the model reads at most {context} tokens. Ask for less.")
        limit = context if length is None else length
        if limit is None:
            return None
        needle = self.needle
        fixed = self._count(f"{needle.sentence} {AFTER_HAY}{needle.question}{needle.answer}", special=True)
        if fixed >= limit:
            raise ModelError(
                f"the needle, the question and the answer take {fixed} tokens and there is room for {limit}; "
                "give a shorter needle, or a greater length."
            )
        return limit - fixed

    def _fitting(self, pieces: list[str], room: int | None) -> list[str]:
        if room is None:
            return pieces
        ends = list(accumulate(self._count(piece) for piece in pieces))
        # Next to another word, a word may split into other tokens: one spare token per seam.
        kept = [piece for piece, end in zip(pieces, ends, strict=True) if end <= room - 4]
        if not kept:
            raise ModelError(
                f"there is room for {room} tokens of the haystack, and its first sentence is longer; give a "
                "greater length."
            )
        return kept

    def _count(self, text: str, special: bool = False) -> int:
        return len(self.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])


def sentences(text: str) -> list[str]:
    """Split a text into sentences, each with the space after it; joined they give the text.

    >>> sentences('"Who?" said he. "I," said she!')
    ['"Who?" ', 'said he. ', '"I," said she!']
    """
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    edges = [0, *(end for end in ends if end < len(text)), len(text)]
    found = [text[a:b] for a, b in pairwise(edges) if a < b]
    if not found:
        raise ModelError("the haystack is empty; give a text of some sentences.")
    return found


def _within(spans: list[tuple[int, int]], part: tuple[int, int]) -> range:
    """The tokens that overlap with a part of the text."""
    hit = [i for i, (a, b) in enumerate(spans) if a < part[1] and b > part[0] and a < b]
    return range(hit[0], hit[-1] + 1) if hit else range(0)
