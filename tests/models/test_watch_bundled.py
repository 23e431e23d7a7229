"""The bundled model under `watch`: every layer and head against eager attention."""

from __future__ import annotations

import pytest
import torch

from regard.errors import RegardError
from regard.models import Recording, bundled, sample_text, watch


@pytest.fixture(scope="module")
def storyteller():
    try:
        return bundled()
    except RegardError as error:
        pytest.skip(str(error))


@torch.no_grad()
@pytest.mark.parametrize("length", [513, pytest.param(2048, marks=pytest.mark.slow)])
def test_every_head_of_the_bundled_model_attends_as_it_does_eagerly(storyteller, length):
    model, tokenizer = storyteller
    ids = tokenizer(sample_text(), return_tensors="pt")["input_ids"][:, :length]
    assert ids.shape[1] > length // 2
    model.set_attn_implementation("eager")
    expected = model(ids, output_attentions=True)
    with watch(model) as recording:
        output = model(ids)
    scale = expected.logits.abs().max()
    assert (output.logits - expected.logits).abs().max() < 1e-4 * scale
    for layer, weights in enumerate(expected.attentions):
        seen = recording.layers[layer]
        assert (seen.map.dense() - weights).abs().max() < 1e-4
        entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1)
        assert torch.allclose(seen.entropy, entropy, atol=1e-3)
        assert torch.allclose(seen.sink_mass, weights[..., :4].sum(-1), atol=1e-4)


def test_a_story_is_recorded_with_its_words(storyteller, tmp_path):
    model, tokenizer = storyteller
    text = sample_text()[:400]
    with torch.no_grad(), watch(model, tokenizer=tokenizer, text=text, store=tmp_path / "x.regard"):
        model(**tokenizer(text, return_tensors="pt"))
    read = Recording.open(tmp_path / "x.regard")
    assert read.text == text
    assert "".join(token.text for token in read.tokens) == text
    assert len(read.layers) == model.config.num_hidden_layers
