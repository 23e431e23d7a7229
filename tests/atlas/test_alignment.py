"""When words were said, against transformers' own alignment of the same weights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models.sensing import sound, whisper
from regard.atlas import TimedWord, alignment_heads, token_times, word_times
from regard.atlas.warping import warped
from regard.errors import MapError, RecordingError
from regard.models import Passage, Token, record

SAID = "a red cat sat on mat what is the picture"
HEADS = [[0, 1], [1, 2], [1, 3]]


def sharp() -> tuple[Any, Any]:
    """Whisper whose heads prefer some frames to others by far, so that no rounding decides."""
    model, processor = whisper()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "encoder_attn.q_proj.weight" in name or "encoder_attn.k_proj.weight" in name:
                weight.mul_(25)
    return model, processor


@pytest.mark.parametrize("seconds", [1.0, 2.0, 3.0])
def test_times_are_those_that_transformers_finds_in_the_same_weights(seconds):
    model, processor = sharp()
    recording = record((model, processor), SAID, audio=sound(seconds))
    ids = recording.token_ids["decoder"]
    listener = processor.feature_extractor
    heard = listener(sound(seconds).numpy(), sampling_rate=16000, return_tensors="pt")["input_features"]
    with torch.no_grad():
        seen = model(input_features=heard, decoder_input_ids=ids, output_attentions=True).cross_attentions
    generated = {"cross_attentions": [seen], "sequences": ids}
    outputs = type("Outputs", (dict,), {"__getattr__": dict.__getitem__})(generated)
    frames = round(100 * seconds)
    # Each row says when the token that it predicts begins, which is when the token before it ends.
    theirs = model._extract_token_timestamps(outputs, HEADS, num_frames=frames, num_input_ids=0)[0]
    heads = [tuple(pair) for pair in HEADS]
    ours = token_times(recording, heads)
    assert len(set(ours.tolist())) > 3
    torch.testing.assert_close(ours[1:], theirs[: len(ours) - 1])
    # How the tokenizer of Whisper makes words of them, for `return_timestamps="word"`.
    words = word_times(recording, heads)
    assert [word.start for word in words] == pytest.approx(theirs[: len(words)].tolist())
    assert [word.stop for word in words] == pytest.approx(theirs[1 : len(words) + 1].tolist())


def heard(*heads: torch.Tensor, words: str = "<|go|> a red cat") -> Any:
    """A recording whose heads have these weights."""
    tokens = [Token(i, text if i == 0 else f" {text}", 0, 0) for i, text in enumerate(words.split())]
    frames = Passage("sound", 0, heads[0].shape[1])
    maps = {0: torch.stack(heads)[None]}
    return SimpleNamespace(
        cross=SimpleNamespace(maps=maps), tokens=tokens, passages_of=lambda role: [[frames]]
    )


def staircase() -> torch.Tensor:
    """Three words of 20, 10 and 20 frames: each is looked at before it is written. Then what follows."""
    weights = torch.full((4, 60), 0.001)
    for row, place in enumerate([slice(0, 20), slice(20, 30), slice(30, 50), slice(50, 60)]):
        weights[row, place] = 1.0
    return weights / weights.sum(-1, keepdim=True)


def test_a_head_that_follows_the_sound_is_found_and_one_that_rests_on_a_frame_is_not():
    rest = torch.full((4, 60), 0.001)
    rest[:, 7] = 1.0
    even = torch.full((4, 60), 1 / 60)
    found = alignment_heads(heard(rest / rest.sum(-1, keepdim=True), staircase(), even))
    assert (found[0].layer, found[0].head) == (0, 1)
    assert found[0].score > 0.8 > 0.1 > max(abs(each.score) for each in found[1:])


@pytest.mark.parametrize("start", ["<|go|>", "<s>", "</s>", "__eng__", "[CLS]"])
def test_words_begin_and_end_where_their_frames_do(start):
    recording = heard(staircase(), words=f"{start} a red cat")
    times = [TimedWord("a", 0.0, 0.4), TimedWord("red", 0.4, 0.6), TimedWord("cat", 0.6, 1.0)]
    assert word_times(recording) == times
    recording.tokens[2] = recording.tokens[2]._replace(text="red")
    recording.tokens[3] = recording.tokens[3]._replace(text="<|end|>")
    assert word_times(recording, [(0, 0)], frame=0.1) == [TimedWord("ared", 0.0, 3.0)]


def slowly(weights: torch.Tensor, i: int, j: int) -> tuple[float, list[tuple[int, int]]]:
    """The way to a cell that gathers most, by trying all of them."""
    if i < 0 or j < 0:
        return float("-inf"), []
    before = (
        (0.0, [])
        if i == j == 0
        else max(slowly(weights, *at) for at in ((i - 1, j - 1), (i - 1, j), (i, j - 1)))
    )
    return float(weights[i, j]) + before[0], [*before[1], (i, j)]


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (4, 5), (5, 4)])
def test_no_way_gathers_more(shape):
    weights = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    _, way = slowly(weights, shape[0] - 1, shape[1] - 1)
    assert warped(weights).tolist() == [min(j for i, j in way if i == row) for row in range(shape[0])]


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda: word_times(heard(staircase()), [(0, 4)]), MapError, "layer 0 has no head 4"),
    (lambda: word_times(heard(staircase()), [(0, 0)], width=4), MapError, "wanted an odd number"),
    (lambda: word_times(heard(staircase(), words="<|a|> <|b|>")), RecordingError, "has no words"),
    (lambda: word_times(heard(torch.full((4, 9), 1 / 9))), MapError, "no head follows the sound"),
])  # fmt: skip
def test_what_has_no_times_says_so(call, error, says):
    with pytest.raises(error, match=says):
        call()
