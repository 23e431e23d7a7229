"""Generated tokens are observed together, and nothing about the recording shows it."""

from __future__ import annotations

import pytest
import torch
import transformers

from regard import AttentionMap
from regard.errors import RecordingError
from regard.models import deferred, watch
from regard.models.segment import tensors_of


def generate(model, ids, tokens=6, **options):
    return model.generate(ids, max_new_tokens=tokens, do_sample=False, **options)


def at_once(monkeypatch):
    """Observe every token when it is read."""
    monkeypatch.setattr(deferred, "ROWS", 0)


def statistics(recording):
    return {
        (layer.index, name): value
        for layer in recording.all_layers
        for name, value in {**layer.stats, **layer.trace, "lse": layer.lse}.items()
    }


def assert_alike(ours, theirs):
    torch.testing.assert_close(
        {name: tensors_of(x) for name, x in ours.items()}, {name: tensors_of(x) for name, x in theirs.items()}
    )


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}])
def test_tokens_observed_together_have_the_statistics_they_have_alone(llama, ids, monkeypatch, options):
    with watch(llama) as together:
        generate(llama, ids, **options)
    at_once(monkeypatch)
    with watch(llama) as alone:
        generate(llama, ids, **options)
    assert_alike(statistics(together), statistics(alone))
    assert [layer.whole for layer in together.all_layers] == [layer.whole for layer in alone.all_layers]


@pytest.mark.parametrize("window", [2, 4, 16])
def test_so_they_do_where_a_sliding_cache_drops_keys(ids, monkeypatch, window):
    config = transformers.MistralConfig(
        vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=window, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    model = transformers.MistralForCausalLM(config).eval()
    with watch(model, keep_maps=False) as together:
        generate(model, ids, 7)
    at_once(monkeypatch)
    with watch(model, keep_maps=False) as alone:
        generate(model, ids, 7)
    assert_alike(statistics(together), statistics(alone))


def test_rows_wait_until_somebody_looks(llama, ids):
    with watch(llama) as recording:
        generate(llama, ids)
        layer = recording.layers[0]
        assert layer._deferred is not None
        assert layer.rows == 18
        assert layer._deferred is not None
        assert len(layer.segments) == 2
        assert layer._deferred is None
    assert all(layer._deferred is None for layer in recording.all_layers)


def test_no_more_rows_wait_than_there_is_room_for(llama, ids, monkeypatch):
    monkeypatch.setattr(deferred, "ROWS", 2)
    with watch(llama) as recording:
        generate(llama, ids)
    assert [segment.rows for segment in recording.layers[0].segments] == [13, 2, 2, 1]


def test_rows_of_a_batch_that_change_places_are_not_observed_together(llama, ids):
    """Beam search may exchange rows whose last keys are alike, as in the first layer under one token."""
    cache = transformers.DynamicCache(config=llama.config)
    token = torch.tensor([[7], [7]])
    with torch.no_grad(), watch(llama) as recording:
        llama(ids, past_key_values=cache)
        llama(token, past_key_values=cache)
        cache.reorder_cache(torch.tensor([1, 0]))
        llama(token, past_key_values=cache)
        assert [layer._deferred.rows for layer in recording.all_layers] == [1, 1]
    with torch.no_grad(), watch(llama) as straight:
        llama(torch.cat([ids, token], 1))
    seen = recording.layers[0].trace["entropy"][:, :, 0]
    torch.testing.assert_close(seen, straight.layers[0].entropy[:, :, -1])


def test_a_cache_written_to_in_place_is_refused(llama, ids):
    cache = transformers.DynamicCache(config=llama.config)
    with torch.no_grad(), watch(llama) as recording:
        llama(ids, past_key_values=cache)
        llama(ids[:, :1], past_key_values=cache)
        held = recording.layers[0]
        cache.layers[0].keys.zero_()
        with pytest.raises(RecordingError, match="changed in place before"):
            _ = held.entropy
        # Nothing is left to be observed when the block ends.
        held._deferred = None


def test_the_weights_of_a_generated_token_are_a_lazy_map(llama, ids):
    cache = transformers.DynamicCache(config=llama.config)
    with torch.no_grad(), watch(llama) as recording:
        llama(ids, past_key_values=cache)
        [row, _] = llama(ids[:, :1], past_key_values=cache, output_attentions=True).attentions
    assert isinstance(row, AttentionMap)
    assert row.shape == (2, 4, 1, 14)
    torch.testing.assert_close(row.dense(), recording.maps[0][:, :, 13:])
