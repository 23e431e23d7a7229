"""What vision models attend to, patch by patch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image

from regard.errors import ModelError, RecordingError, ShapeError
from regard.models import PatchGrid, Recording, image_map, plot_image, record_image, watch
from regard.plots import over_image
from regard.viewer.names import axis_names

SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
SWIN: dict[str, Any] = {
    "image_size": 32, "patch_size": 4, "window_size": 4, "embed_dim": 8, "depths": [1, 1],
    "num_heads": [2, 2],
}  # fmt: skip
HIERA: dict[str, Any] = {
    "embed_dim": 16, "image_size": [32, 32], "patch_size": [3, 3], "patch_stride": [2, 2],
    "patch_padding": [1, 1], "depths": [1, 1], "num_heads": [1, 2], "num_layers": 2, "num_query_pool": 1,
    "query_stride": [2, 2], "masked_unit_size": [2, 2], "masked_unit_attention": [True, False],
}  # fmt: skip
RESNET: dict[str, Any] = {"embedding_size": 8, "hidden_sizes": [8], "depths": [1]}
MODELS = {
    "vit": (lambda: hf.ViTModel(hf.ViTConfig(**SMALL)), 1),
    "registers": (
        lambda: hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(**SMALL, num_register_tokens=3)), 4,
    ),
    "clip": (lambda: hf.CLIPVisionModel(hf.CLIPVisionConfig(**SMALL)), 1),
    "siglip": (lambda: hf.SiglipVisionModel(hf.SiglipVisionConfig(**SMALL)), 0),
}  # fmt: skip
PIXELS = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def made(name: str) -> Any:
    torch.manual_seed(0)
    return MODELS[name][0]().eval()


@pytest.mark.parametrize("name", MODELS)
def test_patches_are_read_as_the_model_attends_to_them(name, tmp_path):
    model, leading = made(name), MODELS[name][1]
    recording = record_image(model, PIXELS, store=tmp_path / "image.regard")
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(pixel_values=PIXELS, output_attentions=True).attentions
    query = (2, 1)
    place = leading + 2 * 4 + 1
    for seen in (recording, Recording.open(tmp_path / "image.regard")):
        found = image_map(seen, 1, 2, query)
        torch.testing.assert_close(found, weights[1][0, 2, place, leading:].view(4, 4), atol=1e-6, rtol=1e-4)
        mean = image_map(seen, 0, query=0)
        torch.testing.assert_close(
            mean, weights[0][0, :, 0, leading:].mean(0).view(4, 4), atol=1e-6, rtol=1e-4
        )


def test_tokens_that_are_no_patches_have_names():
    tokens = record_image(made("registers"), PIXELS).tokens_of("encoder")[0]
    assert [token.text for token in tokens[:6]] == [
        "[CLS]", "register 1", "register 2", "register 3", "patch 0,0", "patch 0,1",
    ]  # fmt: skip


def test_the_token_that_learned_from_another_model_is_no_register():
    config = hf.DeiTConfig(**{**SMALL, "image_size": 32})
    recording = record_image(hf.DeiTModel(config).eval(), PIXELS)
    names = [token.text for token in recording.tokens_of("encoder")[0]]
    assert names[:3] == ["[CLS]", "[DISTILLATION]", "patch 0,0"]
    assert PatchGrid.of_names(names) == PatchGrid(4, 4, 2, distilled=True)
    weights = recording.maps[1][0, 2, 1, 2:].view(4, 4)
    assert torch.equal(image_map(recording, 1, 2, query="[DISTILLATION]"), weights)


AIM: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip
POOLS = {
    "siglip": lambda: made("siglip"),
    "aimv2": lambda: hf.Aimv2VisionModel(hf.Aimv2VisionConfig(**AIM)).eval(),
}


def pooled(model: Any) -> torch.Tensor:
    """What a pooling head attends to, computed anew from what it reads."""
    (head,) = (part for part in model.modules() if type(part).__name__.endswith("PoolingHead"))
    read: list[torch.Tensor] = []
    hook = head.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    model(pixel_values=PIXELS)
    hook.remove()
    if hasattr(head, "attention"):
        probe = head.probe.expand(1, -1, -1)
        return head.attention(probe, read[0], read[0], average_attn_weights=False)[1]
    q, k = head.cls_token.view(1, 4, 1, 8), head.k_proj(read[0]).view(1, -1, 4, 8).transpose(1, 2)
    return (q @ k.mT * 8**-0.5).softmax(-1)


@torch.no_grad()
@pytest.mark.parametrize("name", POOLS)
def test_a_pooling_head_is_a_stack_of_its_own(name, tmp_path):
    model = POOLS[name]()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    expected, hidden = pooled(model), model(pixel_values=PIXELS)
    with watch(model) as recording:
        output = model(pixel_values=PIXELS)
    torch.testing.assert_close(output.pooler_output, hidden.pooler_output, atol=1e-5, rtol=1e-4)
    layer = recording.pooling[0]
    torch.testing.assert_close(layer.map.dense(), expected, atol=1e-6, rtol=1e-4)
    entropy = torch.special.entr(expected.double()).sum(-1)
    torch.testing.assert_close(layer.entropy.double(), entropy, atol=1e-5, rtol=1e-4)
    record_image(model, PIXELS, store=tmp_path / "x.regard")
    stored = Recording.open(tmp_path / "x.regard")
    torch.testing.assert_close(image_map(stored, None, 2), expected[0, 2, 0].view(4, 4))
    queries, keys = axis_names(stored, "pooling", 1, 16)
    assert (queries, keys[:2]) == (["[POOL]"], ["patch 0,0", "patch 0,1"])
    assert len(stored.atlas().heads) == 12


def test_tokens_of_detection_come_after_the_patches():
    model = hf.YolosModel(hf.YolosConfig(**{**SMALL, "image_size": [32, 32]}, num_detection_tokens=3)).eval()
    recording = record_image(model, PIXELS)
    names = [token.text for token in recording.tokens_of("encoder")[0]]
    assert (names[:2], names[-4:]) == (
        ["[CLS]", "patch 0,0"],
        ["patch 3,3", "detection 1", "detection 2", "detection 3"],
    )
    weights = recording.maps[1][0, 2, -2, 1:17].view(4, 4)
    assert torch.equal(image_map(recording, 1, 2, query="detection 2"), weights)


def test_a_picture_goes_through_the_processor(tmp_path):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 48, 3), dtype=np.uint8))
    picture.save(tmp_path / "cat.png")
    processor = hf.ViTImageProcessor(size={"height": 32, "width": 32})
    model = made("vit")
    by_file = record_image((model, processor), tmp_path / "cat.png")
    by_pixels = record_image(model, processor(images=picture, return_tensors="pt")["pixel_values"])
    assert torch.equal(by_file.maps[1].dense(), by_pixels.maps[1].dense())
    figure = plot_image(by_file, tmp_path / "cat.png", 1, 0, query=(3, 2))
    (axes,) = figure.axes
    assert len(axes.images) == 2
    assert axes.get_title() == "what patch 3,2 looks at: layer 1, head 0"
    assert [patch.get_xy() for patch in axes.patches] == [(2, 3)]
    weights = image_map(by_file, 1, 0, (3, 2)).numpy()
    assert np.allclose(axes.images[1].get_array()[..., 3], 0.85 * weights / weights.max())


def test_the_vision_part_of_a_model_of_images_and_texts_is_found():
    torch.manual_seed(0)
    text = {**SMALL, "vocab_size": 96}
    del text["image_size"], text["patch_size"]
    model = hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=SMALL, projection_dim=16)).eval()
    assert image_map(record_image(model, PIXELS), 1, 0).shape == (4, 4)


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda: record_image(made("vit"), "cat.png"), ModelError, "a model without its image processor"),
    (lambda: record_image((made("vit"), None), Image.new("RGB", (8, 8))), ModelError, "without its image"),
    (lambda: record_image((made("vit"), hf.ViTImageProcessor()), "no.png"), ModelError, "no.png cannot be"),
    (lambda: record_image(made("vit"), PIXELS, grid=(5, 5)), ModelError, "5 x 5 patches do not fit the 17"),
    (lambda: record_image(made("vit"), PIXELS[:, :, None]), ModelError, r"wanted \(1, 3, height, width\)"),
    (
        lambda: record_image(hf.BertModel(hf.BertConfig(num_hidden_layers=1)), PIXELS),
        ModelError,
        "BertModel reads no images",
    ),
    (
        lambda: record_image(hf.SwinModel(hf.SwinConfig(**SWIN)), PIXELS),
        ModelError,
        "SwinModel attends within windows \\(4 of 16 tokens in its first layer\\)",
    ),
    (
        lambda: record_image(hf.HieraModel(hf.HieraConfig(**HIERA)), PIXELS),
        ModelError,
        "HieraModel orders its tokens by units of patches",
    ),
    (
        lambda: record_image(hf.ResNetModel(hf.ResNetConfig(**RESNET)), PIXELS),
        ModelError,
        "no attention was seen: ResNetModel has none to record",
    ),
    (lambda: image_map(record_image(made("vit"), PIXELS), 0, 9), RecordingError, "no head 9; its heads are"),
    (
        lambda: image_map(record_image(made("vit"), PIXELS), 0, 0, (4, 0)),
        RecordingError,
        "no token 'patch 4,0'; there are 4 rows and 4 columns",
    ),
    (lambda: PatchGrid.of_names(["The", "cat"]), RecordingError, "not of an image"),
    (lambda: over_image(torch.ones(4), np.zeros((8, 8, 3))), ShapeError, "wanted \\(rows, columns\\)"),
    (lambda: over_image(torch.ones(4, 4), np.zeros((3, 8, 8))), ShapeError, "move the colours last"),
])  # fmt: skip
def test_what_cannot_be_laid_over_an_image_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
