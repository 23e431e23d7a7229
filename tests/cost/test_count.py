"""FLOPs, bytes, cache: against formulas written out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.cost import (
    Attention,
    FeedForward,
    LatentAttention,
    Layer,
    ModelShape,
    Reach,
    cache_bytes,
    decode,
    layers_of,
    longest_context,
    memory_bytes,
    parameters,
    prefill,
    preset,
    weight_bytes,
)
from regard.errors import DtypeError, RegardError

REACHES = st.sampled_from(
    [Reach(), Reach("window", 1), Reach("window", 63), Reach("chunk", 65), Reach("sparse", 7)]
)
PATTERNS = st.lists(REACHES, min_size=1, max_size=3).map(tuple)


def shape_of(pattern: tuple[Reach, ...] = (Reach(),), **more) -> ModelShape:
    sizes = {"layers": 3, "d_model": 48, "heads": 4, "kv_heads": 2, "ffn": 88, "vocab": 151}
    return ModelShape.uniform("tiny", pattern=pattern, **sizes | more)


def test_prefill_flops_are_the_products_written_out():
    n, shape = 65, shape_of(tied=False)
    projections = 2 * n * (48 * 48 + 2 * 48 * 24 + 48 * 48)
    pairs = n * (n + 1) // 2
    by_hand = {
        "projections": 3 * projections,
        "scores": 3 * 2 * pairs * 4 * 12,
        "mix": 3 * 2 * pairs * 4 * 12,
        "index": 0,
        "state": 0,
        "feed_forward": 3 * 2 * n * 2 * 48 * 88,
        "head": 2 * 48 * 151,
        "other": 0,
    }
    assert prefill(shape, n).flops_by_part == by_hand


@given(PATTERNS, st.integers(1, 200))
def test_a_context_read_at_once_or_token_by_token_takes_the_same_flops(pattern, n):
    shape = shape_of(pattern)
    steps = sum(decode(shape, length).flops for length in range(1, n + 1))
    assert prefill(shape, n, logits="all").flops == steps


@given(PATTERNS, st.integers(1, 300), st.integers(1, 5))
def test_the_layers_add_up_to_the_whole(pattern, n, batch):
    shape = shape_of(pattern)
    layers = layers_of(shape, n, batch=batch)
    work = prefill(shape, n, batch=batch)
    parts = work.flops_by_part
    assert sum(layer.pair_flops for layer in layers) == parts["scores"] + parts["mix"]
    assert sum(layer.projection_flops for layer in layers) == parts["projections"]
    assert sum(layer.feed_forward_flops for layer in layers) == parts["feed_forward"]
    assert sum(layer.cache_bytes for layer in layers) == cache_bytes(shape, n, batch=batch)
    assert sum(layer.attention_parameters for layer in layers) == parameters(shape).attention


def test_the_layers_of_an_encoder_decoder_add_up_too():
    shape = preset("transformer-base")
    layers, parts = layers_of(shape, 63), prefill(shape, 63).flops_by_part
    assert sum(layer.pair_flops for layer in layers) == parts["scores"] + parts["mix"]
    assert sum(layer.projection_flops for layer in layers) == parts["projections"]
    assert sum(layer.cache_bytes for layer in layers) == cache_bytes(shape, 63)


def test_prefill_bytes_are_weights_once_and_what_products_read_and_write():
    n, shape = 65, shape_of(tied=False)
    found = prefill(shape, n).bytes_by_part
    learned = parameters(shape)
    # Of the embedding only rows are read, and the norm after the last layer is not worth a product.
    assert found["weights"] == 2 * (learned.total - learned.embeddings - 48)
    attention = 2 * 48 + 2 * (48 + 24 + 24 + 48)
    feed = 2 * 48 + 2 * 88
    assert found["activations"] == 2 * (3 * n * (attention + feed) + 48 * n + 48 + 151)
    assert found["cache"] == cache_bytes(shape, n)


def test_a_decoding_step_reads_the_keys_it_sees_and_writes_one():
    shape = shape_of((Reach("window", 8), Reach("sparse", 5), Reach()))
    assert decode(shape, 100).bytes_by_part["cache"] == 2 * 48 * ((8 + 1) + (5 + 1) + (100 + 1))


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float32", 32), ("bf16", 16), ("torch.float16", 16), ("fp8", 8), ("int8", 8), ("int4", 4)],
)
def test_the_cache_follows_the_dtype(dtype, bits):
    # Llama-7B: 32 layers, 32 heads of 128, keys and values.
    assert cache_bytes(preset("llama-7b"), 2048, dtype=dtype) == 2 * 32 * 32 * 128 * 2048 * bits // 8


def test_the_cache_of_an_interleaved_model_grows_only_in_its_full_layers():
    maverick, per_token = preset("llama-4-maverick"), 2 * 8 * 128 * 2
    assert cache_bytes(maverick, 131072) == per_token * (36 * 8192 + 12 * 131072)
    everything_full = replace(maverick, layers=tuple(replace(x, reach=Reach()) for x in maverick.layers))
    assert cache_bytes(everything_full, 131072) == per_token * 48 * 131072


def test_latent_attention_keeps_one_short_vector():
    assert cache_bytes(preset("deepseek-v3"), 1) == 61 * (512 + 64) * 2


def test_latent_attention_decodes_on_the_cached_vectors():
    attention = LatentAttention(4, 4, 14, rotary=6, value_dim=10, kv_rank=24)
    assert attention.pair_flops() == (2 * 4 * 20, 2 * 4 * 10)
    assert attention.pair_flops(decoding=True) == (2 * 4 * 30, 2 * 4 * 24)


def test_an_encoder_has_no_cache_and_refuses_to_decode():
    bert = preset("bert-base")
    assert cache_bytes(bert, 512) == 0
    with pytest.raises(RegardError, match="bert-base is an encoder: it writes no tokens"):
        decode(bert, 512)


def test_a_batch_shares_weights_and_nothing_else():
    shape = shape_of()
    one, five = prefill(shape, 63), prefill(shape, 63, batch=5)
    assert five.flops == 5 * one.flops
    assert five.bytes_by_part["weights"] == one.bytes_by_part["weights"]
    for part in ("activations", "cache"):
        assert five.bytes_by_part[part] == 5 * one.bytes_by_part[part]


def test_few_tokens_read_few_experts():
    feed = FeedForward(88, gated=True, experts=8, active=2)
    shape = shape_of(ffn=feed)
    read = [decode(shape, 9, batch=batch).bytes_by_part["weights"] for batch in (1, 2, 4, 5)]
    expert = 3 * 3 * 48 * 88 * 2
    assert [after - read[0] for after in read] == [0, 2 * expert, 6 * expert, 6 * expert]


def test_all_the_logits_cost_more_than_the_last():
    shape = shape_of()
    more = prefill(shape, 63, logits="all").flops - prefill(shape, 63).flops
    assert more == 2 * 62 * 48 * 151


@given(PATTERNS, st.integers(1, 10**7), st.integers(1, 4))
def test_the_longest_context_fits_and_one_more_token_does_not(pattern, room, batch):
    shape = shape_of(pattern)
    budget = weight_bytes(shape) + room
    found = longest_context(shape, budget, batch=batch)
    if found is None:
        assert memory_bytes(shape, 10**15, batch=batch) <= budget
        return
    assert found == 0 or memory_bytes(shape, found, batch=batch) <= budget
    assert memory_bytes(shape, found + 1, batch=batch) > budget


def test_scores_that_are_kept_shorten_the_context():
    llama, budget = preset("llama-7b"), 24 * 10**9
    found = longest_context(llama, budget, eager=True)
    assert found is not None
    assert memory_bytes(llama, found, eager=True) <= budget < memory_bytes(llama, found + 1, eager=True)
    assert found < 20071 == longest_context(llama, budget)


def test_weights_that_do_not_fit_leave_no_context():
    assert longest_context(preset("llama-7b"), 10**9) == 0


def test_a_windowed_model_fits_at_any_length():
    assert longest_context(preset("mistral-7b"), 16 * 10**9) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: prefill(shape_of(), 0), "context is 0; wanted a whole number, 1 or more"),
        (lambda: decode(shape_of(), 5, batch=0), "batch is 0; wanted a whole number, 1 or more"),
        (lambda: prefill(shape_of(), 5, logits="some"), "logits is 'some'; wanted 'last' or 'all'"),
        (lambda: longest_context(shape_of(), 0), "the budget is 0 bytes; wanted 1 or more"),
    ],
)
def test_impossible_questions_are_refused(call, message):
    with pytest.raises(RegardError, match=message):
        call()


def test_an_unknown_dtype_lists_those_there_are():
    with pytest.raises(DtypeError, match="dtype is 'float7'; wanted one of float32, bfloat16, float16"):
        weight_bytes(shape_of(), "float7")


def test_cross_attention_projects_the_source_once():
    layer = Layer(Attention(4, 4, 12), FeedForward(88), cross=True, norms=3)
    encoder = replace(layer, cross=False, encoder=True, causal=False, norms=2)
    shape = ModelShape("pair", 48, (encoder, layer), 151)
    source, target = 65, 7
    flops = prefill(shape, source, target=target).flops_by_part
    square = 2 * 48 * 48
    assert flops["projections"] == square * (4 * source + 4 * target + 2 * target + 2 * source)
    assert decode(shape, source).flops_by_part["projections"] == square * (4 + 2)
