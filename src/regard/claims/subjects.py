"""The bundled model after it has read the bundled story, and an untrained copy of it."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import torch

from regard.atlas import Atlas, DecayFit, Profile, atlas, decay, position_profile
from regard.models import bundled, record, sample_text
from regard.models.recording import Recording

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

__all__ = ["Subject", "subject"]

# About a thousand tokens: enough for every kind of head to show, and seconds of work.
CHARACTERS = 3600


class Subject:
    """A model, its tokenizer and the recording of one text; what is asked of it twice is computed once."""

    def __init__(self, model: Any, tokenizer: Any, recording: Recording) -> None:
        self.model, self.tokenizer, self.recording = model, tokenizer, recording

    @property
    def ids(self) -> Int[Tensor, "1 n"]:
        """The tokens that were read."""
        return next(iter(self.recording.token_ids.values()))

    @cached_property
    def atlas(self) -> Atlas:
        """What every head does."""
        return atlas(self.recording)

    @cached_property
    def fits(self) -> list[DecayFit]:
        """How each head's weight falls off with distance; the first four keys left out."""
        return decay(self.recording, skip_sinks=4)

    @cached_property
    def profile(self) -> Profile:
        """Where in the text the last queries look, in tenths."""
        return position_profile(self.recording, bins=10)


@lru_cache(maxsize=4)
def subject(trained: bool = True, characters: int = CHARACTERS) -> Subject:
    """The bundled model, or the same architecture with random weights, reading the start of the story.

    >>> subject(characters=300).ids.shape[0]
    1
    """
    model, tokenizer = bundled()
    if not trained:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = type(model)(model.config).eval()
    return Subject(model, tokenizer, record((model, tokenizer), sample_text()[:characters]))
