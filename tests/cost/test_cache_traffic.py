"""Bytes of latent attention and of cross-attention, against sums written out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regard.cost import (
    Attention,
    FeedForward,
    LatentAttention,
    Layer,
    ModelShape,
    cache_bytes,
    decode,
    prefill,
)

D, WIDTH, VOCAB, HALF = 48, 88, 151, 2  # bfloat16 has 2 bytes
LATENT = LatentAttention(4, 4, 12, rotary=6, value_dim=10, q_rank=20, kv_rank=14)
TINY = ModelShape.uniform("tiny", layers=1, d_model=D, heads=4, kv_heads=2, ffn=WIDTH, vocab=VOCAB)


def latent(layers: int = 3) -> ModelShape:
    return replace(TINY, layers=(Layer(LATENT, FeedForward(WIDTH)),) * layers)


def translating() -> ModelShape:
    """One encoder layer and two decoder layers with cross-attention."""
    attention, ffn = Attention(4, 2, 12), FeedForward(WIDTH)
    encoder = Layer(attention, ffn, causal=False, encoder=True)
    return replace(TINY, layers=(encoder, *[Layer(attention, ffn, cross=True, norms=3)] * 2))


@pytest.mark.parametrize("batch", [1, 3])
def test_the_cache_of_latent_attention_is_one_short_vector_a_token(batch):
    n, shape = 65, latent()
    held = 14 + 6
    assert cache_bytes(shape, n, batch=batch) == 3 * n * held * HALF * batch
    assert cache_bytes(shape, n, batch=batch, dtype="float32") == 3 * n * held * 4 * batch
    assert prefill(shape, n, batch=batch).bytes_by_part["cache"] == 3 * n * held * HALF * batch
    # A step reads what was kept, its own token included, and writes one token.
    assert decode(shape, n, batch=batch).bytes_by_part["cache"] == 3 * (n + 1) * held * HALF * batch


def test_latent_attention_moves_what_its_products_read_and_write():
    n, one = 65, latent(1)
    query, value = 4 * (12 + 6), 4 * 10
    # In and out of: the hidden state, both compressions, queries, keys, values and the output.
    attention = 2 * D + 2 * (20 + 14 + 6 + 2 * query + 2 * value)
    assert LATENT.streamed(D) == attention
    found, without = (prefill(latent(count), n).bytes_by_part for count in (2, 1))
    fed = 2 * D + 2 * WIDTH
    assert found["activations"] - without["activations"] == (attention + fed) * n * HALF
    matrices = D * 20 + 20 * query + D * (14 + 6) + 14 * 4 * (12 + 10) + 4 * 10 * D
    norms = 20 + 14 + 2 * D
    per_layer = matrices + norms + FeedForward(WIDTH).parameters(D)
    assert found["weights"] - without["weights"] == per_layer * HALF
    assert decode(one, n).bytes_by_part["weights"] == without["weights"]


def test_latent_attention_scores_whole_keys_when_it_reads_and_cached_vectors_when_it_writes():
    n = 65
    read, step = prefill(latent(1), n).flops_by_part, decode(latent(1), n).flops_by_part
    pairs = n * (n + 1) // 2
    assert (read["scores"], read["mix"]) == (2 * 4 * (12 + 6) * pairs, 2 * 4 * 10 * pairs)
    assert (step["scores"], step["mix"]) == (2 * 4 * (14 + 6) * n, 2 * 4 * 14 * n)


@pytest.mark.parametrize("batch", [1, 3])
def test_cross_attention_keeps_the_source_beside_the_text(batch):
    n, shape, held = 65, translating(), 2 * 2 * 12
    # Two decoder layers, each with the keys of its own text and of the source; the encoder keeps nothing.
    assert cache_bytes(shape, n, batch=batch) == 2 * 2 * n * held * HALF * batch
    assert prefill(shape, n, batch=batch).bytes_by_part["cache"] == 2 * 2 * n * held * HALF * batch
    assert decode(shape, n, batch=batch).bytes_by_part["cache"] == 2 * (n + 1 + n) * held * HALF * batch


def test_a_step_of_cross_attention_reads_no_projection_of_the_source():
    n, shape = 65, translating()
    plain = replace(shape, layers=tuple(replace(layer, cross=False) for layer in shape.layers))
    found, without = (decode(each, n) for each in (shape, plain))
    query_and_output = 2 * D * 4 * 12
    assert found.bytes_by_part["weights"] - without.bytes_by_part["weights"] == 2 * query_and_output * HALF
    moved = 2 * shape.layers[1].attention.streamed(D)
    assert found.bytes_by_part["activations"] - without.bytes_by_part["activations"] == moved * HALF
    assert found.flops_by_part["projections"] - without.flops_by_part["projections"] == (
        2 * 2 * query_and_output
    )
    assert found.flops_by_part["scores"] - without.flops_by_part["scores"] == 2 * (2 * 4 * 12 * n)


def test_reading_with_cross_attention_projects_the_source_once():
    n, target = 65, 33
    found = prefill(translating(), n, target=target)
    ours, source = 2 * D * 4 * 12, 2 * D * 2 * 12
    own = (ours + source) * (n + 2 * target)
    assert found.flops_by_part["projections"] == 2 * (own + 2 * (ours * target + source * n))
    assert found.flops_by_part["scores"] == 2 * 4 * 12 * (n * n + target * (target + 1) + 2 * target * n)
