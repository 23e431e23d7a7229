"""Under `watch` a model computes what it always computes, and every weight can be read."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from regard import AttentionMap, ColumnMass, Entropy, TopK
from regard.errors import RegardError
from regard.masks import Causal, Documents, Window
from regard.models import Recording, watch
from regard.stats import SegmentMass, SinkMass


def eager(model, *args, **kwargs):
    """What the model says on its own attention, maps included."""
    with torch.no_grad():
        return model(*args, **kwargs, output_attentions=True)


def close(ours: torch.Tensor, theirs: torch.Tensor, where: torch.Tensor | None = None) -> bool:
    """Equal up to rounding; `where` chooses the queries (batch, q) that are no padding."""
    if where is not None:
        ours, theirs = (x.movedim(-2, 1)[where] for x in (ours, theirs))
    return torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def left_padded(ids):
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    return mask


def test_logits_and_maps_are_those_of_eager_attention(llama, ids):
    expected = eager(llama, ids)
    with torch.no_grad(), watch(llama) as recording:
        out = llama(ids)
    assert close(out.logits, expected.logits)
    for layer, theirs in enumerate(expected.attentions):
        assert close(recording.maps[layer].dense(), theirs)


def test_padded_batches_hide_their_padding(llama, ids):
    mask = left_padded(ids)
    expected = eager(llama, ids, attention_mask=mask)
    with torch.no_grad(), watch(llama) as recording:
        out = llama(ids, attention_mask=mask)
    assert close(out.logits, expected.logits, mask.bool())
    assert close(recording.maps[1].dense(), expected.attentions[1], mask.bool())
    assert recording.maps[1].dense()[0, :, :, :5].abs().max() == 0


def test_statistics_are_those_of_the_eager_maps(llama, ids):
    weights = eager(llama, ids).attentions[1]
    with watch(llama, stats=[Entropy(), ColumnMass(), SinkMass(1), TopK(3)]) as recording:
        llama(ids)
    layer = recording.layers[1]
    assert close(layer.entropy, -(weights * weights.clamp(min=1e-30).log()).sum(-1))
    assert close(layer.column_mass, weights.sum(2))
    assert close(layer.sink_mass, weights[..., 0])
    assert close(layer.top_k.weight, weights.topk(3).values)
    assert recording.stat("entropy").shape == (2, 2, 4, 13)


def test_packed_texts_do_not_see_each_other(llama, ids):
    places = torch.cat([torch.arange(5), torch.arange(8)])[None].expand(2, -1)
    expected = eager(llama, ids, position_ids=places, use_cache=False)
    with torch.no_grad(), watch(llama) as recording:
        out = llama(ids, position_ids=places, use_cache=False)
    assert close(out.logits, expected.logits)
    assert recording.layers[0].mask == Causal() & Documents(ids=torch.tensor([[0] * 5 + [1] * 8] * 2))


def test_a_window_shorter_than_the_text_is_a_window(ids):
    config = transformers.MistralConfig(
        vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=4,
    )  # fmt: skip
    model = transformers.MistralForCausalLM._from_config(config, attn_implementation="eager").eval()
    expected = eager(model, ids)
    with torch.no_grad(), watch(model) as recording:
        out = model(ids)
    assert close(out.logits, expected.logits)
    assert close(recording.maps[1].dense(), expected.attentions[1])
    assert recording.layers[1].mask == Window(4) & Causal()


@pytest.mark.parametrize(
    "how", [{}, {"cache_implementation": "static"}, {"use_cache": False}, {"prefill_chunk_size": 4}]
)
def test_generated_tokens_join_the_map_of_the_prompt(llama, ids, how):
    mask = left_padded(ids)
    with watch(llama) as recording:
        text = llama.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False, **how)
    # The last token was chosen, and never read.
    read = text[:, :-1]
    whole = torch.cat([mask, torch.ones(2, 4, dtype=mask.dtype)], 1)
    expected = eager(llama, read, attention_mask=whole).attentions
    assert torch.equal(recording.token_ids["decoder"], read)
    for layer in (0, 1):
        assert recording.maps[layer].shape == (2, 4, 17, 17)
        assert close(recording.maps[layer].dense(), expected[layer], whole.bool())


def test_the_trace_of_generation_has_a_row_for_every_token_that_was_read(llama, ids):
    with watch(llama) as recording:
        text = llama.generate(ids, max_new_tokens=5, do_sample=False)
    weights = eager(llama, text[:, :-1]).attentions[1]
    layer = recording.layers[1]
    assert (layer.prompt, layer.rows) == (13, 17)
    assert layer.trace["top_k"].key.shape == (2, 4, 4, 8)
    assert close(layer.trace["top_k"].weight, weights[:, :, 13:].topk(8).values)
    assert torch.equal(layer.trace["max_score"].key, weights[:, :, 13:].argmax(-1))
    assert close(layer.entropy, -(weights * weights.clamp(min=1e-30).log()).sum(-1))
    assert close(layer.sink_mass, weights[..., :4].sum(-1))


def test_statistics_of_columns_say_that_they_are_of_the_prompt(llama, ids, tmp_path):
    with watch(llama, stats=[Entropy(), ColumnMass()]) as recording:
        llama.generate(ids, max_new_tokens=5, do_sample=False)
    recording.save(tmp_path / "x.regard")
    for layer in (recording.layers[1], Recording.open(tmp_path / "x.regard").layers[1]):
        assert (layer.rows_of("entropy"), layer.rows_of("column_mass")) == (range(17), range(13))
        assert "rows=17, generated=4 (not in column_mass)" in repr(layer)
        assert close(layer.column_mass, layer.map[:, :, :13, :13].sum(-2))
        assert close(layer.map.stats(ColumnMass())["column_mass"], layer.map.dense().sum(-2))


def test_keys_that_a_sliding_cache_forgot_keep_their_names(ids):
    config = transformers.MistralConfig(
        vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=4, eos_token_id=None,
    )  # fmt: skip
    model = transformers.MistralForCausalLM._from_config(config, attn_implementation="eager").eval()
    with watch(model) as recording:
        text = model.generate(ids, max_new_tokens=6, do_sample=False)
    weights = eager(model, text[:, :-1]).attentions[0]
    layer = recording.layers[0]
    assert close(layer.map.dense(), weights)
    assert torch.equal(layer.max_score.key, weights.argmax(-1))
    assert torch.equal(layer.trace["top_k"].key[..., 0], weights[:, :, 13:].argmax(-1))
    assert close(layer.sink_mass, weights[..., :4].sum(-1))


def test_beam_search_keeps_statistics_and_only_the_map_of_the_prompt(llama, ids):
    with watch(llama) as recording:
        llama.generate(ids[:1], max_new_tokens=6, num_beams=3, do_sample=False)
    layer = recording.layers[1]
    assert layer.entropy.shape == (3, 4, 18)
    assert not layer.whole
    expected = eager(llama, ids[:1]).attentions[1]
    assert close(layer.map.dense(), expected.expand(3, -1, -1, -1))


def test_keys_that_a_cache_drops_and_no_mask_hides_end_the_map(ids):
    config = transformers.MoshiConfig(
        vocab_size=96, hidden_size=32, ffn_dim=48, num_hidden_layers=1, num_attention_heads=4,
        sliding_window=8, num_key_value_heads=2, head_dim=8, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    model = transformers.MoshiForCausalLM._from_config(config, attn_implementation="eager").eval()
    with watch(model) as recording:
        model.generate(ids, max_new_tokens=4, do_sample=False)
    layer = recording.layers[0]
    assert not layer.whole
    assert layer.map.shape == (2, 4, 13, 13)
    assert torch.allclose(layer.map.dense().sum(-1), torch.ones(2, 4, 13))
    assert layer.trace["entropy"].shape == (2, 4, 3)


def test_tokens_that_were_taken_back_leave_the_recording(llama, ids):
    cache = transformers.DynamicCache(config=llama.config)
    with torch.no_grad(), watch(llama) as recording:
        llama(ids[:, :9], past_key_values=cache)
        cache.crop(-2)
        llama(ids[:, 7:], past_key_values=cache)
    assert recording.layers[1].rows == 13
    assert close(recording.maps[1].dense(), eager(llama, ids).attentions[1])


def test_an_encoder_decoder_has_three_stacks(t5, ids):
    mask = left_padded(ids)
    with watch(t5) as recording:
        text = t5.generate(ids, attention_mask=mask, max_new_tokens=5, do_sample=False)
    expected = eager(t5, ids, attention_mask=mask, decoder_input_ids=text[:, :-1])
    assert list(recording.stacks) == ["decoder", "encoder", "cross"]
    for layer in (0, 1):
        assert close(recording.encoder.maps[layer].dense(), expected.encoder_attentions[layer], mask.bool())
        assert close(recording.decoder.maps[layer].dense(), expected.decoder_attentions[layer])
        assert close(recording.cross.maps[layer].dense(), expected.cross_attentions[layer])
    assert recording.cross.maps[0].shape == (2, 4, 5, 13)
    assert torch.equal(recording.token_ids["encoder"], ids)
    with pytest.raises(
        RegardError, match="the recording has no vision; its stacks are: decoder, encoder, cross"
    ):
        _ = recording.vision


def test_a_layer_used_several_times_is_several_layers(ids):
    config = transformers.AlbertConfig(
        vocab_size=96, hidden_size=32, embedding_size=16, intermediate_size=32, num_hidden_layers=3,
        num_attention_heads=4,
    )  # fmt: skip
    model = transformers.AlbertModel._from_config(config, attn_implementation="eager").eval()
    expected = eager(model, ids).attentions
    with watch(model) as recording:
        model(ids)
    assert list(recording.encoder) == [0, 1, 2]
    assert all(close(recording.maps[layer].dense(), expected[layer]) for layer in range(3))


def test_output_attentions_gives_lazy_maps_that_index_like_tensors(llama, ids):
    expected = eager(llama, ids).attentions
    with torch.no_grad(), watch(llama):
        maps = llama(ids, output_attentions=True).attentions
    assert all(isinstance(found, AttentionMap) for found in maps)
    assert close(maps[1][0, 2, 3:5], expected[1][0, 2, 3:5])
    assert np.allclose(np.asarray(maps[0][0]), expected[0][0].numpy(), atol=1e-5)
    assert maps[0].shape == tuple(expected[0].shape)


def test_the_model_is_as_it_was_after_an_exception(llama, ids):
    before = llama.generation_config.disable_compile

    def fail(*_):
        raise ZeroDivisionError

    hook = llama.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(ZeroDivisionError), watch(llama):
        llama(ids)
    hook.remove()
    assert llama.generation_config.disable_compile is before
    assert llama.config._attn_implementation == "eager"
    assert not llama._forward_pre_hooks
    assert not llama._forward_hooks
    expected = eager(llama, ids).attentions
    assert isinstance(expected[0], torch.Tensor)


def test_parts_with_an_attention_of_their_own_get_it_back():
    parts = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = transformers.CLIPTextConfig(**parts, vocab_size=32, projection_dim=16)
    vision = transformers.CLIPVisionConfig(**parts, image_size=8, patch_size=4, projection_dim=16)
    model = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision)).eval()
    model.set_attn_implementation({"text_config": "eager", "vision_config": "sdpa"})
    with watch(model) as recording:
        model(input_ids=torch.arange(5)[None], pixel_values=torch.randn(1, 3, 8, 8))
    assert model.config.text_config._attn_implementation == "eager"
    assert model.config.vision_config._attn_implementation == "sdpa"
    assert list(recording.stacks) == ["encoder", "vision"]
    assert recording.vision.maps[0].shape == (1, 2, 5, 5)


def test_only_the_chosen_layers_are_recorded(llama, ids):
    with watch(llama, layers=[1]) as recording:
        llama(ids)
    assert list(recording.layers) == [1]
    with pytest.raises(RegardError, match="layer 0 of the decoder was not recorded; recorded are: 1"):
        recording.maps[0]
    with watch(llama, layers=["model.layers.0.self_attn"]) as recording:
        llama(ids)
    assert list(recording.layers) == [0]


def test_a_choice_that_fits_no_layer_is_an_error(llama, ids):
    known = "no layer is called 7; layers are: decoder 0, decoder 1"
    with pytest.raises(RegardError, match=known), watch(llama, layers=[7]):
        llama(ids)


def test_maps_that_were_not_kept_say_so(llama, ids):
    with watch(llama, keep_maps=False) as recording:
        llama.generate(ids, max_new_tokens=4, do_sample=False)
    assert recording.layers[0].entropy.shape == (2, 4, 16)
    with pytest.raises(RegardError, match=r"the map of decoder 0 .* was not kept; watch with keep_maps=True"):
        _ = recording.maps[0]


def test_a_recording_larger_than_allowed_is_refused_at_its_first_layer(llama, ids):
    message = r"would take .* \(.* a layer\), more than max_bytes=512 bytes. Choose layers="
    with pytest.raises(RegardError, match=message), watch(llama, max_bytes=512):
        llama(ids)
    assert llama.config._attn_implementation == "eager"


def test_the_size_allowed_counts_only_the_layers_chosen(llama, ids):
    with watch(llama, layers=[0]) as recording:
        llama(ids)
    size = recording.nbytes
    with watch(llama, layers=[0], max_bytes=size):
        llama(ids)
    with pytest.raises(RegardError, match="would take"), watch(llama, max_bytes=size):
        llama(ids)


def test_a_recording_is_of_the_last_text(llama, ids):
    with watch(llama) as recording:
        llama(ids)
        llama(ids[:1, :6])
    assert recording.maps[0].shape == (1, 4, 6, 6)
    assert recording.token_ids["decoder"].shape == (1, 6)


def test_a_short_text_has_fewer_heaviest_keys_than_were_asked_for(llama):
    with watch(llama, stats=[TopK(8)]) as recording:
        llama.generate(torch.tensor([[5]]), max_new_tokens=4, do_sample=False)
    assert recording.layers[0].top_k.key.shape == (1, 4, 4, 4)
    assert recording.layers[0].top_k.key[0, 0, 0].tolist() == [0, -1, -1, -1]


def test_segments_of_the_prompt_go_on_while_tokens_are_generated(llama, ids):
    halves = SegmentMass([range(0, 6), range(6, 13)])
    with watch(llama, stats=[halves]) as recording:
        text = llama.generate(ids, max_new_tokens=4, do_sample=False)
    weights = eager(llama, text[:, :-1]).attentions[0]
    expected = torch.stack([weights[..., :6].sum(-1), weights[..., 6:13].sum(-1)], -1)
    assert close(recording.layers[0].segment_mass, expected)


def test_gradients_flow_through_a_watched_model(make_llama, ids):
    model = make_llama()
    model(ids, labels=ids).loss.backward()
    expected = model.model.layers[0].self_attn.q_proj.weight.grad.clone()
    model.zero_grad()
    with watch(model):
        model(ids, labels=ids).loss.backward()
    assert close(model.model.layers[0].self_attn.q_proj.weight.grad, expected)


def test_what_is_no_model_is_refused():
    message = "watch got a str; it needs a transformers model or another torch.nn.Module"
    with pytest.raises(RegardError, match=message), watch("gpt2"):
        pass


def test_a_model_is_watched_by_one_at_a_time(llama, ids):
    with watch(llama) as recording:
        with pytest.raises(RegardError, match="LlamaForCausalLM is being watched already"), watch(llama):
            pass
        llama(ids)
    assert len(recording.layers) == 2
    assert llama.config._attn_implementation == "eager"


def test_nothing_recorded_says_so(llama):
    with watch(llama) as recording:
        pass
    with pytest.raises(RegardError, match="nothing was recorded yet; run the model inside the watch block"):
        _ = recording.maps


def test_layers_that_share_a_mask_ask_it_once_which_queries_are_text(make_llama, ids, monkeypatch):
    from regard.models import padding

    asked, real = [], padding._real

    def count(*args):
        asked.append(args)
        return real(*args)

    monkeypatch.setattr(padding, "_real", count)
    padding.rows_of_text.forget()
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    model = make_llama(num_hidden_layers=6)
    with torch.no_grad(), watch(model, stats=[ColumnMass()]):
        model(ids, attention_mask=mask)
    # Once for each text of the batch.
    assert len(asked) == len(ids)
