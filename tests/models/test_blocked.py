"""Attention in blocks and streams: its maps are those of the definition, written out cell by cell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

from models.families import tiny_model
from regard.models import Recording, watch

# Families that attend in blocks or streams in all of their layers.
OWN_BLOCKS = ("hiera", "prophetnet")
IDS = torch.randint(3, 90, (2, 21), generator=torch.Generator().manual_seed(0))
SAID = IDS[:, :13]

pytestmark = pytest.mark.filterwarnings("ignore")


def spread(model: Any) -> Any:
    """Larger weights, so that maps are far from even."""
    torch.manual_seed(0)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    return model.eval()


def longt5(kind: str) -> Any:
    config = hf.LongT5Config(
        vocab_size=96, d_model=32, d_kv=8, d_ff=32, num_layers=2, num_heads=4, local_radius=3,
        global_block_size=4, encoder_attention_type=kind, dropout_rate=0.0, decoder_start_token_id=1,
    )  # fmt: skip
    return spread(hf.LongT5ForConditionalGeneration._from_config(config, attn_implementation="eager"))


def pegasus_x() -> Any:
    config = hf.PegasusXConfig(
        vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, block_size=4, num_global_tokens=3,
        dropout=0.0, attention_dropout=0.0, decoder_start_token_id=1, max_position_embeddings=64,
    )  # fmt: skip
    return spread(hf.PegasusXForConditionalGeneration._from_config(config, attn_implementation="eager"))


def prophetnet() -> Any:
    config = hf.ProphetNetConfig(
        vocab_size=96, hidden_size=32, num_encoder_layers=2, num_decoder_layers=2,
        num_encoder_attention_heads=4, num_decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_position_embeddings=64, ngram=2, dropout=0.0, attention_dropout=0.0, decoder_start_token_id=1,
    )  # fmt: skip
    return spread(hf.ProphetNetForConditionalGeneration(config))


def padding(text: bool) -> torch.Tensor:
    real = torch.ones_like(IDS)
    if text:
        real[1, 16:] = 0
    return real


def beside_neighbours(weights: torch.Tensor, size: int) -> torch.Tensor:
    """LongT5's map, from the weights of blocks (batch, blocks, heads, size, 3 size + summaries)."""
    extra = weights.shape[-1] - 3 * size
    found = torch.zeros(2, 4, 21 + extra, 21 + extra)
    for row in range(21):
        block, place = divmod(row, size)
        for column in range(3 * size):
            key = (block - 1) * size + column
            if 0 <= key < 21:
                found[:, :, row, key] = weights[:, block, :, place, column]
        found[:, :, row, 21:] = weights[:, block, :, place, 3 * size :]
    return found


def check_entropy(layer: Any, weights: torch.Tensor, rows: torch.Tensor) -> None:
    expected = torch.special.entr(weights.double()).sum(-1).transpose(1, 2)[rows]
    found = layer.entropy.double().transpose(1, 2)[rows]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("text", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize(("kind", "summaries"), [("local", 0), ("transient-global", 5)])
def test_a_block_beside_its_neighbours_and_summaries(kind, summaries, text):
    model, real = longt5(kind), padding(text)
    given = {"input_ids": IDS, "attention_mask": real, "decoder_input_ids": SAID}
    expected = model(**given, output_attentions=True)
    with watch(model) as recording:
        logits = model(**given).logits
    torch.testing.assert_close(logits, expected.logits, atol=1e-4, rtol=1e-4)
    assert {role: len(stack) for role, stack in recording.stacks.items()} == {
        "decoder": 2, "encoder": 2, "cross": 2,
    }  # fmt: skip
    for number, layer in recording.encoder.items():
        weights = beside_neighbours(expected.encoder_attentions[number], 4)
        assert layer.map.shape == (2, 4, 21 + summaries, 21 + summaries)
        rows = torch.nn.functional.pad(real, (0, summaries)).bool()
        ours = layer.map.dense().transpose(1, 2)
        torch.testing.assert_close(ours[rows], weights.transpose(1, 2)[rows], atol=1e-6, rtol=1e-4)
        assert not ours[~rows].any()
        check_entropy(layer, weights, rows)
    torch.testing.assert_close(recording.cross[1].map.dense(), expected.cross_attentions[1])


def beside_globals(weights: dict[str, torch.Tensor], shift: int) -> torch.Tensor:
    """PEGASUS-X's map, from the weights of global tokens and of blocks (batch, heads, blocks, 4, 3 + 4)."""
    found = torch.zeros(2, 4, 24, 24)
    for row in range(21):
        block, place = divmod(row + shift, 4)
        for column in range(4):
            key = block * 4 + column - shift
            if 0 <= key < 21:
                found[:, :, row, key] = weights["local"][:, :, block, place, 3 + column]
        found[:, :, row, 21:] = weights["local"][:, :, block, place, :3]
    for key in range(21):
        found[:, :, 21:, key] = weights["global"][:, :, :, 3 + shift + key]
    found[:, :, 21:, 21:] = weights["global"][..., :3]
    return found


@torch.no_grad()
@pytest.mark.parametrize("text", [False, True], ids=["whole", "padded"])
def test_blocks_with_global_tokens(text):
    model, real = pegasus_x(), padding(text)
    given = {"input_ids": IDS, "attention_mask": real, "decoder_input_ids": SAID}
    kept: list[dict[str, torch.Tensor]] = []
    hooks = [
        layer.self_attn.register_forward_hook(lambda *call: kept.append(call[-1][2]))
        for layer in model.model.encoder.layers
    ]
    expected = model(**given, output_attentions=True)
    for hook in hooks:
        hook.remove()
    with watch(model) as recording:
        logits = model(**given).logits
    torch.testing.assert_close(logits, expected.logits, atol=1e-4, rtol=1e-4)
    rows = torch.nn.functional.pad(real, (0, 3), value=1).bool()
    assert len(recording.encoder) == 2
    for number, layer in recording.encoder.items():
        weights = beside_globals(kept[number], 2 * number)
        ours = layer.map.dense().transpose(1, 2)
        torch.testing.assert_close(ours[rows], weights.transpose(1, 2)[rows], atol=1e-6, rtol=1e-4)
        assert not ours[~rows].any()
        check_entropy(layer, weights, rows)


@torch.no_grad()
@pytest.mark.parametrize("text", [False, True], ids=["whole", "padded"])
def test_streams_that_predict(text):
    model, real = prophetnet(), padding(text)
    given = {"input_ids": IDS, "attention_mask": real, "decoder_input_ids": SAID}
    kept: list[torch.Tensor] = []
    hooks = [
        layer.self_attn.register_forward_hook(lambda *call: kept.append(call[-1][2]))
        for layer in model.prophetnet.decoder.layers
    ]
    expected = model(**given, output_attentions=True)
    for hook in hooks:
        hook.remove()
    with watch(model) as recording:
        assert torch.equal(model(**given).logits, expected.logits)
    rows = real.bool()
    for number in (0, 1):
        # The model returns scores, and in cross-attention the streams' rows behind those of the text.
        ours, theirs = recording.encoder[number].map.dense(), expected.encoder_attentions[number].softmax(-1)
        torch.testing.assert_close(ours.transpose(1, 2)[rows], theirs.transpose(1, 2)[rows])
        torch.testing.assert_close(recording.decoder[number].map.dense(), expected.decoder_attentions[number])
        crossing = expected.cross_attentions[number].softmax(-1).view(2, 4, 3, 13, 21)
        torch.testing.assert_close(recording.cross[number].map.dense(), crossing[:, :, 0])
        for stream in (0, 1):
            first = 4 * number + stream
            predicting, seeing = (recording.predicting[first + more].map.dense() for more in (0, 2))
            torch.testing.assert_close(predicting, kept[number][:, stream])
            torch.testing.assert_close(seeing, crossing[:, :, 1 + stream])


@torch.no_grad()
def test_a_stream_that_does_not_see_the_token_it_predicts():
    model = tiny_model("xlnet", "AutoModelForCausalLM")
    hidden = torch.zeros(2, 21, 21)
    hidden[:, :, -1] = 1
    target = torch.zeros(2, 1, 21)
    target[:, 0, -1] = 1
    given = {"input_ids": IDS, "perm_mask": hidden, "target_mapping": target}
    expected = model(**given, output_attentions=True)
    with watch(model) as recording:
        assert torch.equal(model(**given)[0], expected[0])
    for number, (content, query) in enumerate(expected.attentions):
        torch.testing.assert_close(recording.decoder[number].map.dense(), content)
        torch.testing.assert_close(recording.predicting[number].map.dense(), query)
    assert not query[..., -1].any()


def hiera() -> Any:
    config = hf.HieraConfig(
        embed_dim=16, image_size=[32, 32], patch_size=[3, 3], patch_stride=[2, 2], patch_padding=[1, 1],
        depths=[1, 1, 1], num_heads=[1, 2, 4], num_layers=3, num_query_pool=2, query_stride=[2, 2],
        masked_unit_size=[4, 4], masked_unit_attention=[True, True, False], drop_path_rate=0.0,
    )  # fmt: skip
    return spread(hf.HieraModel(config))


@torch.no_grad()
def test_units_of_patches_that_see_themselves(tmp_path):
    model = hiera()
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    kept: list[torch.Tensor] = []
    hooks = [
        layer.attn.register_forward_hook(lambda *call: kept.append(call[-1][1]))
        for stage in model.encoder.stages
        for layer in stage.layers
    ]
    expected = model(pixels, output_attentions=True)
    for hook in hooks:
        hook.remove()
    with watch(model, store=tmp_path / "x.regard") as recording:
        assert torch.equal(model(pixels)[0], expected[0])
    assert len(recording.encoder) == len(kept) == 3
    stored = Recording.open(tmp_path / "x.regard")
    for number, weights in enumerate(kept):
        _, heads, units, q, k = weights.shape
        found = torch.zeros(2, heads, q * units, k * units)
        for unit in range(units):
            for row in range(q):
                for key in range(k):
                    found[:, :, row * units + unit, key * units + unit] = weights[:, :, unit, row, key]
        torch.testing.assert_close(stored.encoder[number].map.dense(), found, atol=1e-6, rtol=1e-4)
        whole = torch.ones(2, q * units, dtype=torch.bool)
        check_entropy(recording.encoder[number], found, whole)


@torch.no_grad()
@pytest.mark.parametrize("make", [prophetnet, pegasus_x, lambda: longt5("transient-global")])
def test_encoders_in_blocks_stay_when_text_is_generated(make):
    model = make()
    model.generation_config.update(eos_token_id=None, forced_eos_token_id=None)
    options = {"max_new_tokens": 4, "do_sample": False, "use_cache": True}
    expected = model.generate(IDS, **options)
    with watch(model) as recording:
        assert torch.equal(model.generate(IDS, **options), expected)
    assert recording.encoder[1].map.shape[2] >= 21
    assert recording.decoder[1].map.shape == (2, 4, 4, 4)
    assert recording.cross[1].map.shape == (2, 4, 4, 21)
    again = model(input_ids=IDS, decoder_input_ids=expected[:, :-1], output_attentions=True)
    for number in (0, 1):
        torch.testing.assert_close(
            recording.decoder[number].map.dense(), again.decoder_attentions[number], atol=1e-5, rtol=1e-4
        )
