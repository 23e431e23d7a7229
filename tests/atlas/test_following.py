"""The alignment kind: heads made by hand that go through the source in order, and maps that do not."""

from __future__ import annotations

import pytest
import torch

from atlas.builders import SHARP, code
from models.sensing import llava, picture, sound, whisper
from regard import AttentionMap
from regard.atlas import atlas, cards_of
from regard.atlas.evidence import evidence
from regard.atlas.words import Words, words_of
from regard.models import record


def pointing(target: torch.Tensor, keys: int, sharp: float = SHARP) -> AttentionMap:
    """A head of cross-attention whose query i looks at key target[i]."""
    k = code(torch.arange(keys))
    return AttentionMap.of(sharp * k[target][None, None], k[None, None], scale=1.0)


def spoken(words: int, frames: int) -> torch.Tensor:
    """Where each word is said: in order, at uneven distances."""
    drawn = torch.rand(words, generator=torch.Generator().manual_seed(0)).cumsum(0)
    return (drawn / drawn[-1] * (frames - 4)).long() + 1


def alignment(seen: AttentionMap, **known):
    (card,) = cards_of(seen, "cross", words=Words(**known))
    return card.findings["alignment"]


@pytest.mark.parametrize("first", [0, 3])
def test_a_head_that_goes_through_a_text_in_order_is_found(first):
    order = torch.cat([torch.full((first,), 40), torch.arange(33)])
    found = alignment(pointing(order, 41), said_from=first)
    assert found.found
    assert found.score > 0.9
    assert found.queries == 33
    assert "stretch of the text" in found.evidence


def test_a_head_that_follows_a_sound_is_found_before_the_silence():
    frames = spoken(24, 200)
    # Seven frames each: single ones are taken for flicker.
    wide = code(torch.arange(200))
    near = torch.stack([wide[(frames + d).clamp(0, 199)] for d in range(-3, 4)]).sum(0)
    k = torch.cat([wide, torch.zeros(300, 64)])
    seen = AttentionMap.of(0.3 * near[None, None], k[None, None], scale=1.0)
    found = alignment(seen, heard=200)
    assert found.found
    assert found.score > 0.8
    assert "stretch of the sound" in found.evidence


@pytest.mark.share(3)
@pytest.mark.parametrize("sharp", [0.0, 0.3, SHARP])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("known", [{}, {"heard": 90}])
def test_maps_in_no_order_are_not(sharp, seed, known):
    target = torch.randint(0, 90, (40,), generator=torch.Generator().manual_seed(seed))
    assert not alignment(pointing(target, 90, sharp), **known).found
    backwards = torch.arange(39, -1, -1) * 2
    assert not alignment(pointing(backwards, 90, sharp), **known).found


def test_a_head_that_rests_on_one_key_is_not_in_order():
    found = alignment(pointing(torch.full((40,), 17), 90))
    assert found.score == 0


def test_elsewhere_and_where_little_is_said_there_is_no_score():
    few = alignment(pointing(torch.arange(15), 30))
    assert (few.score, few.evidence) == (None, "only 15 queries could show it, and 16 are wanted")
    (card,) = cards_of(pointing(torch.arange(40), 40), "decoder")
    assert card.score("alignment") is None
    long = alignment(pointing(torch.arange(1100) % 64, 1000))
    assert long.evidence == "1100 x 1000 cells are too many to align"


def test_the_evidence_is_the_weight_on_the_stretch_of_each_query():
    order = torch.cat([torch.tensor([5]), torch.arange(30)])
    seen = pointing(order, 30)
    found = evidence(seen, "alignment", role="cross", words=Words(said_from=1))
    assert found.queries == 30
    assert found.key.tolist() == [-1, *range(30)]
    assert found.mean > 0.9


def test_frames_of_a_sound_are_no_tokens():
    recording = record(whisper(), " ".join(["a red cat sat on mat"] * 4), audio=sound())
    words = words_of(recording, recording.cross[0])
    assert (words.said_from, words.heard, words.k_ids) == (1, 100, None)
    for card in atlas(recording, stack="cross").heads:
        assert card.findings["duplicate token"].evidence == "a sound has frames, and no tokens"
        assert card.findings["alignment"].score is not None


def test_patches_are_neither_repeats_nor_delimiters():
    recording = record(llava(), "<image> what is in the picture ? a ? cat", images=picture())
    words = words_of(recording, recording.decoder[0])
    assert len(set(words.k_ids[:16].tolist())) == 16
    assert not words.delimiters[:16].any()
    assert int(words.delimiters.sum()) == 2
