"""Word times from cross-attention to a sound, aligned by dynamic time warping."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.atlas.warping import smooth, warped
from regard.errors import MapError, RecordingError
from regard.models import Recording, Token

__all__ = ["AlignmentHead", "TimedWord", "alignment_heads", "token_times", "word_times"]

# Seconds per frame of Whisper's encoder, and of wav2vec's.
FRAME = 0.02
# Frames over which weights are smoothed; an odd number.
WIDTH = 7
# Frames on either side that count as the same position.
NEAR = 2
# Special tokens, which are not spoken: Whisper's <|en|>, <s>, SeamlessM4T's __eng__, BERT's [CLS].
SPECIAL = re.compile(r"\s*(<\|.*\|>|</?\w+>|__\w+__|\[[A-Z]+\])\s*")


class AlignmentHead(NamedTuple):
    """A head whose tokens attend to the sound in the order in which they were said; 1 is perfect, 0 is
    chance."""

    layer: int
    head: int
    score: float


class TimedWord(NamedTuple):
    """A word, and when it begins and ends, in seconds."""

    text: str
    start: float
    stop: float


def alignment_heads(recording: Recording, top: int = 10) -> list[AlignmentHead]:
    """The cross-attention heads that follow the sound, best first.

    Each head's weights are aligned with the sound separately. The score is the weight that a token gives to
    its own part of the sound, minus the weight it gives to other tokens' parts. A head that always attends to
    the same frames scores 0.
    """
    found: list[AlignmentHead] = []
    first = _spoken_from(recording)
    for layer, seen in recording.cross.maps.items():
        weights = seen[0, :, first:, : _frames(recording)].float().cpu()
        if weights.shape[1] < 2:
            raise RecordingError("an alignment needs at least two tokens after the model's instructions.")
        for head, own in enumerate(weights):
            score = _follows(own, warped(smooth(own[None], WIDTH).mean(0)))
            found.append(AlignmentHead(layer, head, score))
    return sorted(found, key=lambda each: -each.score)[:top]


def token_times(
    recording: Recording,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    frame: float = FRAME,
    width: int = WIDTH,
) -> Float[Tensor, " tokens"]:
    """The start time of each token that the decoder read, in seconds; 0 for the instruction tokens in front.

    The query that predicts a token, the one before it, attends to the token's sound. `heads` are (layer,
    head) pairs, such as a model's `generation_config.alignment_heads`; the default is the best of
    `alignment_heads`. Their weights are standardised over the tokens, smoothed by a median over `width`
    frames, averaged, and aligned by dynamic time warping. This is the method of Whisper's authors.
    transformers' `return_timestamps="word"` leaves out the query that predicts the first word, so that each
    word is timed by its own query.
    """
    first, starts = _starts(recording, heads, width)
    return torch.cat([torch.zeros(first), starts[:-1] * frame])


def word_times(
    recording: Recording,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    frame: float = FRAME,
    width: int = WIDTH,
) -> list[TimedWord]:
    """The start and end time of each word, that is, of the tokens up to the next space. Options as in
    `token_times`.

    A word ends at the start of the next token; the last word ends where the final query's weight begins.
    """
    first, frames = _starts(recording, heads, width)
    edges = [0.0] * first + (frames * frame).tolist()
    words: list[list[int]] = []
    for place, token in enumerate(recording.tokens):
        if place < first or SPECIAL.fullmatch(token.text):
            continue
        if not words or token.text[:1].isspace() or words[-1][-1] != place - 1:
            words.append([])
        words[-1].append(place)
    return [
        TimedWord(_joined(recording.tokens, word), round(edges[word[0]], 3), round(edges[word[-1] + 1], 3))
        for word in words
    ]


def _starts(
    recording: Recording, heads: Sequence[tuple[int, int]] | None, width: int
) -> tuple[int, Int64[Tensor, " words"]]:
    """The first spoken token; the frame at which each token from there on begins, and the last frame."""
    if heads is None:
        heads = [(found.layer, found.head) for found in alignment_heads(recording, top=6) if found.score > 0]
    first, frames = _spoken_from(recording), _frames(recording)
    rows: list[Tensor] = []
    for layer, head in heads:
        seen = recording.cross.maps[layer]
        if not 0 <= head < seen.shape[1]:
            raise MapError(f"layer {layer} has no head {head}; its heads are 0 to {seen.shape[1] - 1}.")
        rows.append(seen[0, head, max(first - 1, 0) :, :frames].float().cpu())
    if not rows:
        raise MapError("no head follows the sound; name some with heads=[(layer, head), ...].")
    starts = warped(smooth(torch.stack(rows), width).mean(0))
    # Without an instruction token in front, no query predicts the first token: it begins with the sound.
    return first, starts if first else torch.cat([starts.new_zeros(1), starts])


def _follows(weights: Float[Tensor, "q frames"], starts: Int64[Tensor, " q"]) -> float:
    """The weight that a token gives to its own part of the sound, minus the weight to other parts."""
    q, frames = weights.shape
    place = torch.arange(frames)
    ends = torch.cat([starts[1:], torch.tensor([frames - 1])])
    stretch = (place >= starts[:, None] - NEAR) & (place <= ends[:, None] + NEAR)
    given = weights @ stretch.float().T
    own = given.diagonal()
    others = (given.sum(1) - own) / (q - 1)
    return float((own - others).mean())


def _spoken_from(recording: Recording) -> int:
    """The first token that is not a special one, such as Whisper's <|startoftranscript|> or <s>."""
    first = 0
    for token in recording.tokens:
        if not SPECIAL.fullmatch(token.text):
            break
        first += 1
    if first == len(recording.tokens):
        raise RecordingError("the recording has no words; record the sound with what was said.")
    return first


def _frames(recording: Recording) -> int:
    """The number of frames with sound, without the silence at the end."""
    passages = recording.passages_of("encoder")
    if not passages or not passages[0]:
        raise RecordingError("the recording is not of a sound; record one with audio=...")
    return passages[0][0].stop


def _joined(tokens: Sequence[Token], places: Sequence[int]) -> str:
    return "".join(tokens[place].text for place in places).strip()
