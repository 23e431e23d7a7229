"""Attention in windows with global tokens: its maps are those of the definition, written out cell by cell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from regard.models import watch

BANDED = ("led", "longformer")
IDS = torch.randint(3, 90, (2, 21), generator=torch.Generator().manual_seed(0))
WINDOWS = [4, 8]

pytestmark = pytest.mark.filterwarnings("ignore")


def longformer() -> Any:
    torch.manual_seed(0)
    config = hf.LongformerConfig(
        vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        attention_window=WINDOWS, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    model = hf.LongformerModel(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    return model


def written_out(output: Any, layer: int, everywhere: torch.Tensor) -> torch.Tensor:
    """The whole map, from weights by distance and the rows of global tokens as the model returns them."""
    near, found = output.attentions[layer], torch.zeros(2, 4, 21, 21)
    first = near.shape[-1] - (WINDOWS[layer] + 1)
    for text in range(2):
        places = everywhere[text].nonzero().flatten().tolist()
        for row in range(21):
            for column in range(WINDOWS[layer] + 1):
                key = row + column - WINDOWS[layer] // 2
                if 0 <= key < 21:
                    found[text, :, row, key] = near[text, :, row, first + column]
        for number, place in enumerate(places):
            found[text, :, :, place] += near[text, :, :, number]
        for number, place in enumerate(places):
            found[text, :, place] = output.global_attentions[layer][text, :, :21, number]
    return found


@torch.no_grad()
@pytest.mark.parametrize("places", [[], [0], [0, 7]], ids=["windows alone", "one global", "several"])
@pytest.mark.parametrize("padding", [0, 6], ids=["whole", "padded"])
def test_every_cell_is_the_models_own(places, padding):
    model = longformer()
    everywhere = torch.zeros(2, 21, dtype=torch.long)
    everywhere[0, places] = 1
    everywhere[1, places[:1]] = 1
    given = {"attention_mask": torch.ones_like(IDS), "global_attention_mask": everywhere}
    given["attention_mask"][1, 21 - padding :] = 0
    expected = model(IDS, **given, output_attentions=True)
    with watch(model) as recording:
        assert torch.equal(model(IDS, **given)[0], expected[0])
    for number, layer in recording.layers.items():
        weights = written_out(expected, number, everywhere)
        torch.testing.assert_close(layer.map.dense(), weights, atol=1e-6, rtol=1e-4)
        entropy = torch.special.entr(weights.double()).sum(-1)
        torch.testing.assert_close(layer.entropy.double(), entropy, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_an_encoder_in_windows_has_a_decoder_that_sees_it():
    torch.manual_seed(0)
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "attention_window": WINDOWS}
    model = hf.LEDModel(hf.LEDConfig(vocab_size=96, d_model=32, **sizes, **heads)).eval()
    given = {"input_ids": IDS, "decoder_input_ids": IDS[:, :7], "global_attention_mask": (IDS < 10).long()}
    expected = model(**given, output_attentions=True)
    with watch(model) as recording:
        assert torch.equal(model(**given)[0], expected[0])
    assert {role: tuple(stack[0].map.shape) for role, stack in recording.stacks.items()} == {
        "encoder": (2, 4, 21, 21),
        "decoder": (2, 4, 7, 7),
        "cross": (2, 4, 7, 21),
    }
    torch.testing.assert_close(recording.encoder[1].map.dense().sum(-1), torch.ones(2, 4, 21))
    torch.testing.assert_close(recording.cross[1].map.dense(), expected.cross_attentions[1])
