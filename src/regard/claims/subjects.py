"""The model that claims are measured on, with a recording of a text, and an untrained copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from regard.atlas import Atlas, DecayFit, Profile, atlas, decay, position_profile
from regard.models import bundled, context_length, record, sample_book, sample_text
from regard.models.recording import Recording

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

__all__ = ["PIECES", "Spread", "Subject", "model_name", "reading", "spread", "subject", "texts"]

# About a thousand tokens: enough to recognise every kind of head, and fast.
CHARACTERS = 3600
# The number of disjoint pieces of the book for error bars.
PIECES = 4
CHARACTERS_A_TOKEN = 3.6


class Subject:
    """A model, its tokenizer and the recording of one text, with cached results."""

    def __init__(self, model: Any, tokenizer: Any, recording: Recording) -> None:
        self.model, self.tokenizer, self.recording = model, tokenizer, recording

    @property
    def ids(self) -> Int[Tensor, "1 n"]:
        """The tokens that were read."""
        return next(iter(self.recording.token_ids.values()))

    @cached_property
    def atlas(self) -> Atlas:
        """The atlas of all heads."""
        return atlas(self.recording)

    @cached_property
    def fits(self) -> list[DecayFit]:
        """The decay of each head's weight with distance, without the first four keys."""
        return decay(self.recording, skip_sinks=4)

    @cached_property
    def profile(self) -> Profile:
        """The position profile of the last queries, in tenths of the text."""
        return position_profile(self.recording, bins=10)


class _Given(NamedTuple):
    model: Any
    tokenizer: Any
    name: str


_given: list[_Given] = []


@contextmanager
def reading(model: Any, tokenizer: Any, name: str) -> Iterator[None]:
    """Within the block, measure claims about a trained model on this model instead of the bundled one."""
    _given.append(_Given(model, tokenizer, name))
    _subject.cache_clear()
    try:
        yield
    finally:
        _given.pop()
        _subject.cache_clear()


def model_name() -> str:
    """The name of the current model in sentences."""
    return _given[-1].name if _given else "the bundled model"


def subject(trained: bool = True, characters: int = CHARACTERS) -> Subject:
    """The model, or the same architecture with random weights, reading the start of the story.

    >>> subject(characters=300).ids.shape[0]
    1
    """
    return _subject(trained, 0, characters)


def roomy(tokens: int) -> bool:
    """Whether the model can read this many tokens at once.

    >>> roomy(10_000)
    True
    """
    limit = context_length(bundled()[0] if not _given else _given[-1].model)
    return limit is None or limit >= tokens


def book(trained: bool = True, start: int = 0, tokens: int = 1024) -> Subject:
    """The subject for about `tokens` tokens of the bundled book, from the `start`-th such part on."""
    size = int(CHARACTERS_A_TOKEN * tokens)
    return _subject(trained, start * size, size, book=True)


def texts(trained: bool = True, pieces: int = PIECES) -> list[Subject]:
    """The subjects for several disjoint pieces of the book."""
    return [book(trained, piece) for piece in range(pieces)]


class Spread(NamedTuple):
    """A number over several texts: its mean, and the standard error of that mean."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} ± {100 * self.error:.1f}\N{NO-BREAK SPACE}%"


def spread(values: list[float]) -> Spread:
    """The mean of one number from each text, and how far it may be off.

    >>> spread([0.1, 0.2, 0.3])
    Spread(mean=0.2, error=0.05773502691896258)
    """
    return Spread(mean(values), stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0)


@lru_cache(maxsize=12)
def _subject(trained: bool, start: int, characters: int, book: bool = False) -> Subject:
    model, tokenizer = bundled() if not _given else _given[-1][:2]
    if not trained:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = type(model)(model.config).eval()
    text = (sample_book() if book else sample_text())[start : start + characters]
    # Other tokenizers make more tokens of it than some models can read.
    return Subject(model, tokenizer, record((model, tokenizer), text, too_long="truncate"))
