"""Small pictures of what a model saw and heard, kept in its recording."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image

from models.sensing import llava, picture, qwen, sound, whisper
from regard.models import Recording, record, record_image
from regard.models.pictures import LONGEST, picture_of_sound, pictures_of
from regard.models.sounds import Sound


def decoded(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def vit() -> hf.ViTModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    return hf.ViTModel(hf.ViTConfig(image_size=32, patch_size=8, **sizes)).eval()


def llama() -> hf.LlamaForCausalLM:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
    return hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=8, **sizes)).eval()


def test_a_picture_shows_what_the_processor_left_of_an_image(tmp_path):
    """A crop is in the recording, not the image around it; else patches would lie on other places."""
    processor = hf.CLIPImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}, resample=0
    )
    recording = record_image((vit(), processor), picture(32, 64), store=tmp_path / "x.regard")
    (seen,) = recording.pictures
    assert (seen.name, seen.rows, seen.columns) == ("image 1", 4, 4)
    assert np.array_equal(decoded(seen.png), np.asarray(picture(32, 64))[:, 16:48])
    assert Recording.open(tmp_path / "x.regard").pictures == recording.pictures


def test_every_image_beside_a_text_has_a_picture():
    seen = record(llava(), "<image> what is <image> ?", images=[picture(), picture()]).pictures
    assert [(each.name, each.rows, each.columns) for each in seen] == [("image 1", 4, 4), ("image 2", 4, 4)]
    assert decoded(seen[0].png).shape == (32, 32, 3)


def test_where_a_processor_cuts_an_image_up_its_picture_is_the_image():
    (seen,) = record(qwen(), "a <|image_pad|> cat", images=picture(32, 64)).pictures
    assert (seen.rows, seen.columns) == (0, 0)
    assert np.array_equal(decoded(seen.png), np.asarray(picture(32, 64)))


def test_pixel_values_without_a_processor_span_all_shades():
    shades = decoded(record_image(vit(), torch.randn(3, 32, 32)).pictures[0].png)
    assert (shades.min(), shades.max()) == (0, 255)


def test_a_large_image_is_kept_small():
    (seen,) = pictures_of(None, None, [np.zeros((100, 3000, 3), np.uint8)])
    assert decoded(seen.png).shape == (17, LONGEST, 3)


@pytest.mark.parametrize("given", [np.zeros((8, 8)), np.zeros((8, 8, 3)), "a name"])
def test_what_is_no_image_has_no_picture(given):
    assert pictures_of(None, None, [given]) == []


@pytest.mark.parametrize("hertz", [1000, 3000, 7000])
def test_a_tone_is_a_line_at_its_frequency(hertz):
    tone = torch.sin(2 * torch.pi * hertz * torch.arange(16000) / 16000)
    seen = decoded(picture_of_sound(Sound(tone, 16000)).png)
    middle = seen[:, seen.shape[1] // 2]
    # The lowest frequency is at the bottom, 8,000 Hz at the top.
    assert round(8000 * (1 - middle.argmax() / (len(middle) - 1))) == hertz


@pytest.mark.parametrize("samples", [torch.zeros(1), torch.zeros(16000)])
def test_silence_is_black(samples):
    assert decoded(picture_of_sound(Sound(samples, 16000)).png).max() == 0


def test_a_sound_is_kept_as_its_spectrogram(tmp_path):
    recording = record(whisper(), "a red cat", audio=sound(), store=tmp_path / "x.regard")
    (seen,) = Recording.open(tmp_path / "x.regard").pictures
    assert seen == recording.pictures[0] == picture_of_sound(Sound(sound(), 16000))


def test_a_recording_of_a_text_has_no_pictures():
    assert record(llama(), torch.tensor([[1, 2, 3]])).pictures == []
