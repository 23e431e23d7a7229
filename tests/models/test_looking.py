"""How models that read an image beside a text look at it."""

from __future__ import annotations

import re

import pytest
import torch
import transformers as hf

from models.sensing import VISION, llava, picture, qwen
from regard.errors import RecordingError
from regard.models import image_map, image_share, image_sinks, patches_seen, plot_image, record

ASKED = "a <image> what is in the picture ? <image> what is red"


@pytest.fixture(scope="module")
def seen():
    model, processor = llava()
    images = [picture(), picture()]
    recording = record((model, processor), ASKED, images=images)
    with torch.no_grad():
        given = processor(text=[ASKED], images=images, return_tensors="pt")
        weights = torch.stack(model(**given, output_attentions=True).attentions)[:, 0]
    return recording, weights


def test_a_words_weights_on_an_image_are_those_of_the_model(seen):
    recording, weights = seen
    # a, 16 patches, what is in the picture ?, 16 patches, what is red
    for query, place in (("picture", 21), ("what", 39), ("red", 41), (None, 41), (21, 21), (-1, 41)):
        found = image_map(recording, 1, 2, query)
        torch.testing.assert_close(found, weights[1, 2, place, 1:17].view(4, 4), atol=1e-6, rtol=1e-4)
    second = image_map(recording, None, query="red", image=2)
    wanted = weights[:, :, 41, 23:39].mean((0, 1)).view(4, 4)
    torch.testing.assert_close(second, wanted, atol=1e-6, rtol=1e-4)


def test_the_share_of_images_is_what_text_after_them_gives_them(seen):
    recording, weights = seen
    text = [*range(17, 23), *range(39, 42)]
    images = [*range(1, 17), *range(23, 39)]
    wanted = weights[:, :, text][..., images].sum(-1).mean(-1)
    torch.testing.assert_close(image_share(recording), wanted, atol=1e-6, rtol=1e-4)


def test_patches_seen_is_the_largest_weight_from_the_text(seen):
    recording, weights = seen
    text = [*range(17, 23), *range(39, 42)]
    wanted = weights[:, :, text, 1:17].amax((0, 1, 2)).view(4, 4)
    torch.testing.assert_close(patches_seen(recording), wanted, atol=1e-6, rtol=1e-4)
    second = weights[:, :, 39:42, 23:39].amax((0, 1, 2)).view(4, 4)
    torch.testing.assert_close(patches_seen(recording, 2), second, atol=1e-6, rtol=1e-4)


def test_a_figure_lays_a_words_weights_over_the_picture(seen):
    recording, _ = seen
    (axes,) = recording.plot_image(picture(), layer=0, query="picture").axes
    assert axes.get_title() == "what 'picture' looks at: layer 0, mean over heads"
    assert axes.patches[:] == []
    figure = plot_image(recording, picture(), query="red", image=2)
    assert figure.axes[0].get_title() == "what 'red' looks at: mean over layers, mean over heads"


def test_patches_of_any_grid_are_found():
    recording = record(qwen(), "a <|image_pad|> what is red", images=picture(32, 64))
    assert image_map(recording, 0, query="red").shape == patches_seen(recording).shape == (2, 4)


def test_a_patch_that_every_query_looks_at_is_a_sink():
    torch.manual_seed(0)
    config = hf.ViTConfig(**VISION, intermediate_size=48, image_size=64, patch_size=8)
    model = hf.ViTModel(config).eval()
    pixels = torch.randn(1, 3, 64, 64)
    assert image_sinks(record(model, images=pixels)) == []
    parts = dict(model.named_parameters())
    first = {name: part for name, part in parts.items() if re.search(r"\.0\.attention", name)}
    query, key = (
        next(n for n in first if re.search(rf"({a}|{a[0]}_proj).weight", n)) for a in ("query", "key")
    )
    with torch.no_grad():
        # All tokens are alike but for one patch, and the first layer looks for what that one is.
        for name in ("position_embeddings", "cls_token", "patch_embeddings.projection.weight"):
            parts[f"embeddings.{name}"].zero_()
        other = torch.linspace(-1, 1, 32)
        parts["embeddings.position_embeddings"][0, 1 + 8 * 2 + 5] = other
        first[query].zero_()
        first[query.replace("weight", "bias")].fill_(1.0)
        first[key].copy_(other.expand(32, 32))
    sinks = image_sinks(record(model, images=pixels))
    assert [(sink.layer, sink.name) for sink in sinks[:1]] == [(0, "patch 2,5")]
    assert sinks[0].times == pytest.approx(65, rel=1e-3)


@pytest.mark.parametrize(("call", "says"), [
    (lambda r: image_map(r, 0, query="dog"), "there is no token 'dog' in the text; wanted a word"),
    (lambda r: image_map(r, 0, 9), "layer 0 has no head 9"),
    (lambda r: image_map(r, 0, image=3), "there is no image 3 beside the text; the recording has 2"),
    (lambda r: image_share(record(llava(), "what is red")), "there is no image 1"),
    (lambda r: image_share(record(llava(), "a <image>", images=picture())), "no token comes after the image"),
    (
        lambda r: image_map(record(llava(), "<image> a", images=picture(), image_spans=[(0, 15)]), 0),
        "the 15 tokens of image 1 lie on no known grid",
    ),
])  # fmt: skip
def test_what_cannot_be_looked_at_is_refused(call, says, seen):
    with pytest.raises(RecordingError, match=says):
        call(seen[0])
