"""When each word was said: cross-attention to a sound, aligned by dynamic time warping."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from regard.errors import MapError, RecordingError
from regard.models import Recording, Token

__all__ = ["AlignmentHead", "TimedWord", "alignment_heads", "token_times", "warped", "word_times"]

# Seconds of a frame of Whisper's encoder, and of wav2vec's.
FRAME = 0.02
# Frames over which weights are smoothed; an odd number.
WIDTH = 7
# Frames on either side that count as the same place.
NEAR = 2
SPECIAL = re.compile(r"\s*<\|.*\|>")


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

    The weights of each head are aligned with the sound separately. The score is how much more weight a token
    gives to its own stretch of the sound than to those of other tokens. A head that always attends to the
    same frames gets 0.
    """
    found: list[AlignmentHead] = []
    first = _spoken_from(recording)
    for layer, seen in recording.cross.maps.items():
        weights = seen[0, :, first:, : _frames(recording)].float().cpu()
        if weights.shape[1] < 2:
            raise RecordingError("an alignment needs at least two tokens after the model's instructions.")
        for head, own in enumerate(weights):
            score = _follows(own, warped(_smooth(own[None]).mean(0)))
            found.append(AlignmentHead(layer, head, score))
    return sorted(found, key=lambda each: -each.score)[:top]


def token_times(
    recording: Recording,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    frame: float = FRAME,
    width: int = WIDTH,
) -> Float[Tensor, " tokens"]:
    """When each token that the decoder read begins, in seconds; 0 for the instructions in front.

    `heads` are pairs of a layer and a head, such as a model has in `generation_config.alignment_heads`; the
    best of `alignment_heads` unless given. Their weights are standardised over the tokens,
    smoothed by a median over `width` frames, averaged, and aligned by dynamic time warping: the method of
    Whisper's authors, with the same times as transformers' `return_token_timestamps`.
    """
    if heads is None:
        heads = [(found.layer, found.head) for found in alignment_heads(recording, top=6) if found.score > 0]
    first, frames = _spoken_from(recording), _frames(recording)
    rows: list[Tensor] = []
    for layer, head in heads:
        seen = recording.cross.maps[layer]
        if not 0 <= head < seen.shape[1]:
            raise MapError(f"layer {layer} has no head {head}; its heads are 0 to {seen.shape[1] - 1}.")
        rows.append(seen[0, head, first:, :frames].float().cpu())
    if not rows:
        raise MapError("no head follows the sound; name some with heads=[(layer, head), ...].")
    starts = warped(_smooth(torch.stack(rows), width).mean(0))
    return torch.cat([torch.zeros(first), starts * frame])


def word_times(
    recording: Recording,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    frame: float = FRAME,
    width: int = WIDTH,
) -> list[TimedWord]:
    """When each word begins and ends: tokens up to the next space are a word. Options as in `token_times`.

    A word ends where the next token begins, the last one where the sound does.
    """
    starts = token_times(recording, heads, frame=frame, width=width).tolist()
    words: list[list[int]] = []
    for place, token in enumerate(recording.tokens):
        if place < _spoken_from(recording) or SPECIAL.fullmatch(token.text):
            continue
        if not words or token.text[:1].isspace() or words[-1][-1] != place - 1:
            words.append([])
        words[-1].append(place)
    end = _frames(recording) * frame
    ends = [*starts[1:], end]
    return [
        TimedWord(_joined(recording.tokens, word), round(starts[word[0]], 3), round(ends[word[-1]], 3))
        for word in words
    ]


def warped(weights: Float[Tensor, "rows columns"]) -> Int64[Tensor, " rows"]:
    """The column at which each row begins on the path from corner to corner that collects most weight.

    Each step of the path goes one row down, one column on, or both, and every cell on the path counts.

    >>> warped(torch.tensor([[9.0, 2, -1, -1], [-1, -1, 9, -1], [-1, -1, -1, 9]]))
    tensor([0, 2, 3])
    """
    rows, columns = weights.shape
    best = torch.full((rows + 1, columns + 1), -torch.inf, dtype=torch.float64)
    best[0, 0] = 0.0
    step = torch.zeros(rows + 1, columns + 1, dtype=torch.int8)
    gain = weights.double()
    # Cells of one anti-diagonal depend only on the two before it.
    for diagonal in range(2, rows + columns + 1):
        i = torch.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, on = best[i - 1, j - 1], best[i - 1, j], best[i, j - 1]
        # On ties, stay in the row.
        kind = torch.where((both > down) & (both > on), 0, torch.where((down > both) & (down > on), 1, 2))
        came = torch.stack([both, down, on]).gather(0, kind[None])[0]
        best[i, j], step[i, j] = gain[i - 1, j - 1] + came, kind.to(torch.int8)
    starts = torch.zeros(rows, dtype=torch.int64)
    i, j = rows, columns
    while i > 0 and j > 0:
        starts[i - 1] = j - 1
        kind = int(step[i, j])
        i, j = i - (kind != 2), j - (kind != 1)
    return starts


def _smooth(weights: Float[Tensor, "heads q frames"], width: int = WIDTH) -> Float[Tensor, "heads q frames"]:
    """Standardised over the tokens, then the median of each frame's neighbourhood."""
    if width < 1 or width % 2 == 0:
        raise MapError(f"width is {width}; wanted an odd number of frames.")
    even = (weights - weights.mean(-2, keepdim=True)) / weights.std(-2, keepdim=True, unbiased=False)
    even = even.nan_to_num(0.0)
    side = width // 2
    if weights.shape[-1] <= side:
        return even
    padded = torch.nn.functional.pad(even, (side, side), mode="reflect")
    return padded.unfold(-1, width, 1).median(-1).values


def _follows(weights: Float[Tensor, "q frames"], starts: Int64[Tensor, " q"]) -> float:
    """How much more weight a token gives to its own stretch of the sound than to the others."""
    q, frames = weights.shape
    place = torch.arange(frames)
    ends = torch.cat([starts[1:], torch.tensor([frames - 1])])
    stretch = (place >= starts[:, None] - NEAR) & (place <= ends[:, None] + NEAR)
    given = weights @ stretch.float().T
    own = given.diagonal()
    others = (given.sum(1) - own) / (q - 1)
    return float((own - others).mean())


def _spoken_from(recording: Recording) -> int:
    """The first token that is not an instruction, such as Whisper's <|startoftranscript|>."""
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
