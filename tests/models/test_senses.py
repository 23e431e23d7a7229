"""`record` with images and sounds: what stands for them, and what is refused."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest
import torch
import transformers as hf

from models.sensing import TEXT, VISION, llava, paligemma, picture, qwen, sound, tokenizer, whisper
from regard.errors import ModelError
from regard.models import Passage, Recording, image_map, record, record_image

ASKED = "what is in the picture ?"


def wav(path: Path, samples: torch.Tensor, rate: int = 16000, width: int = 2, channels: int = 1) -> Path:
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    scaled = samples.double() * 2 ** (8 * width - 1) + (128 if width == 1 else 0)
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", "none"))
        file.writeframes(scaled.to(kinds[width]).repeat_interleave(channels).numpy().tobytes())
    return path


def test_tokens_that_stand_for_images_are_found(tmp_path):
    model, processor = llava()
    asked = "<image> what is <image> ?"
    recording = record((model, processor), asked, images=[picture(), picture()], store=tmp_path / "x.regard")
    wanted = [Passage("image 1", 0, 16, 4, 4), Passage("image 2", 18, 34, 4, 4)]
    assert recording.passages == wanted
    assert Recording.open(tmp_path / "x.regard").passages == wanted
    given = processor(text=[asked], images=[picture(), picture()], return_tensors="pt")
    with torch.no_grad():
        attentions = model(**given, output_attentions=True).attentions
    for layer, weights in enumerate(attentions):
        torch.testing.assert_close(recording.maps[layer].dense(), weights, atol=1e-6, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_a_text_that_looks_ahead_is_a_decoder_too():
    model, processor = paligemma()
    recording = record((model, processor), "what is in the picture ?", images=picture())
    assert [(p.name, p.start, p.stop, p.rows, p.columns) for p in recording.passages] == [
        ("image 1", 0, 16, 4, 4)
    ]
    assert list(recording.stacks) == ["decoder", "vision", "pooling"]
    found = image_map(recording, 1, 2, query="picture")
    place = [token.text.strip() for token in recording.tokens].index("picture")
    torch.testing.assert_close(found, recording.maps[1][0, 2, place, :16].view(4, 4))
    assert float(recording.maps[1][0, :, 0, place].min()) > 0


def test_images_that_touch_are_told_apart_and_go_in_front_of_a_text_without_places():
    model, processor = llava()
    processor.chat_template = None
    recording = record((model, processor), ASKED, images=[picture(), picture()])
    assert [(p.name, p.start, p.stop) for p in recording.passages] == [
        ("image 1", 0, 16),
        ("image 2", 16, 32),
    ]
    assert [token.text.strip() for token in recording.tokens[32:]] == ASKED.split()


def test_a_chat_with_an_image_has_both_kinds_of_passages():
    said = [{"type": "image", "image": picture()}, {"type": "text", "text": ASKED}]
    recording = record(llava(), [{"role": "user", "content": said}])
    assert recording.passages == [Passage("image 1", 1, 17, 4, 4), Passage("user", 17, 23)]
    assert [recording.tokens[i].text.strip() for i in recording.passages[1].tokens] == ASKED.split()


def test_patches_that_a_model_merges_lie_on_the_grid_that_is_left():
    model, processor = qwen()
    recording = record((model, processor), f"a <|image_pad|> {ASKED}", images=picture(32, 64))
    assert recording.passages == [Passage("image 1", 1, 9, 2, 4)]


def test_a_sound_is_heard_with_what_was_said(tmp_path):
    model, processor = whisper()
    recording = record((model, processor), "a red cat", audio=sound(), store=tmp_path / "x.regard")
    assert recording.cross[1].map.shape == (1, 4, 4, 150)
    for found in (recording, Recording.open(tmp_path / "x.regard")):
        assert [token.text.strip() for token in found.tokens] == ["<|start|>", "a", "red", "cat"]
        assert [token.text for token in found.tokens_of("encoder")[0][:3]] == ["0.00 s", "0.02 s", "0.04 s"]
        assert found.passages_of("encoder") == [[Passage("sound", 0, 100)]]


def test_a_model_writes_what_it_hears():
    model, processor = whisper()
    features = processor.feature_extractor(sound().numpy(), sampling_rate=16000, return_tensors="pt")
    written = model.generate(features["input_features"])[0].tolist()
    recording = record((model, processor), audio=sound())
    ids = recording.token_ids["decoder"][0].tolist()
    assert ids[0] == 4
    # The last token was written and never read.
    assert ids[-len(written) + 1 :] == written[:-1]


def test_frames_of_a_model_that_only_listens_are_named_by_their_time():
    config = hf.Wav2Vec2Config(**VISION, intermediate_size=48, conv_dim=[16] * 7, num_feat_extract_layers=7)
    recording = record((hf.Wav2Vec2Model(config).eval(), hf.Wav2Vec2FeatureExtractor()), audio=sound(1))
    assert recording.passages == [Passage("sound", 0, 49)]
    assert [token.text for token in recording.tokens[:2]] == ["0.00 s", "0.02 s"]


@pytest.mark.parametrize(("width", "channels"), [(1, 1), (2, 1), (2, 2), (4, 1)])
def test_a_wav_file_is_read_in_every_form(width, channels, tmp_path):
    model, processor = whisper()
    file = wav(tmp_path / "x.wav", sound(), width=width, channels=channels)
    ours, wanted = (
        record((model, processor), "a", audio=given, layers=[0]) for given in (file, (sound(), 16000))
    )
    step = 2.0 ** (1 - 8 * width)
    assert torch.allclose(ours.encoder[0].lse, wanted.encoder[0].lse, atol=max(1e-4, 8 * step))


def test_images_alone_are_what_record_image_records():
    model, processor = llava()
    ours, wanted = record((model, processor), images=picture()), record_image((model, processor), picture())
    assert ours.tokens_of("encoder") == wanted.tokens_of("encoder")
    assert torch.equal(ours.maps[0].dense(), wanted.maps[0].dense())


def test_where_tokens_of_images_cannot_be_found_they_are_asked_for():
    model, processor = llava()
    model.config.image_token_id = 60
    with pytest.raises(ModelError, match=r"has no token for images.* image_spans=\[\(start, stop\), ...\]"):
        record((model, processor), f"<image> {ASKED}", images=picture())
    model.config.image_token_id = 2
    options = {"images": picture(), "image_spans": [(0, 16)]}
    assert record((model, processor), f"<image> {ASKED}", **options).passages[0].rows == 4
    found = record((model, processor), f"<image> {ASKED}", grid=(2, 8), **options).passages
    assert found == [Passage("image 1", 0, 16, 2, 8)]


def clip() -> hf.CLIPModel:
    text = {**VISION, "vocab_size": 64, "intermediate_size": 32}
    vision = {**VISION, "intermediate_size": 48, "image_size": 32, "patch_size": 8}
    return hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)).eval()


def test_a_model_that_compares_texts_with_images_has_both_stacks():
    processor = hf.CLIPProcessor(image_processor=llava()[1].image_processor, tokenizer=tokenizer())
    recording = record((clip(), processor), "a red cat", images=picture())
    assert {role: len(stack) for role, stack in recording.stacks.items()} == {"encoder": 2, "vision": 2}


def vit() -> hf.ViTModel:
    return hf.ViTModel(hf.ViTConfig(**VISION, intermediate_size=48, image_size=32, patch_size=8)).eval()


def llama() -> tuple[hf.LlamaForCausalLM, object]:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**TEXT)).eval(), tokenizer()


@pytest.mark.parametrize(("call", "says"), [
    (lambda: record((vit(), None), "a cat"), r"ViTModel takes images.*images=.cat.png"),
    (lambda: record(whisper(), "a cat"), r"takes sounds, and record got a text.*audio='voice.wav'"),
    (lambda: record((clip(), tokenizer()), "a cat"), "reads a text beside an image, and record got the text"),
    (lambda: record(llava(), ["a", "b"], images=picture()), "one text, or a chat"),
    (lambda: record(llama(), "a", images=picture()), "which prepares text alone"),
    (lambda: record(llama(), "a", audio=sound()), "which prepares text alone"),
    (lambda: record(llava(), "<image>", images=picture(), image_spans=[(3, 99)]), "spans reach outside"),
    (lambda: record(llava(), "<image>", images=picture(), grid=(3, 3)), "3 x 3 patches do not fit image 1"),
    (lambda: record(llava(), images=[picture()] * 2), "several images and no text"),
    (lambda: record(whisper(), audio=(sound(), 22050)), "has 22,050 samples a second, .* listens at 16,000"),
    (lambda: record(whisper(), audio=sound(4)), "is 4.0 s long, and the model listens to 3 s"),
    (lambda: record(whisper(), audio=sound().view(2, -1)), r"wanted floats from -1 to 1, \(n,\)"),
    (lambda: record(whisper(), audio="no.wav"), "no.wav cannot be read"),
    (lambda: record(whisper(), audio=__file__), "is not a WAV file"),
    (lambda: record(whisper()[0], audio=sound()), "give the model's processor"),
])  # fmt: skip
def test_what_cannot_be_seen_or_heard_is_refused(call, says):
    with pytest.raises(ModelError, match=says):
        call()
