"""Decoding with a cache equals attention over the whole text."""

from __future__ import annotations

import pytest
import torch

from regard import Causal, KVCache, attention
from regard.errors import DtypeError, MaskError, ShapeError
from regard.masks import StreamingSinks


def text(n: int, heads: int = 4, kv_heads: int = 2, dim: int = 8):
    return torch.randn(2, heads, n, dim), torch.randn(2, kv_heads, n, dim), torch.randn(2, kv_heads, n, dim)


def decoded(cache: KVCache, q, k, v, steps):
    """Feed a text step by step; the outputs side by side."""
    found, start = [], 0
    for new in steps:
        part = slice(start, start + new)
        keys, values = cache.append(k[:, :, part], v[:, :, part])
        found.append(attention(q[:, :, part], keys, values, cache.mask))
        start += new
    return torch.cat(found, 2)


@pytest.mark.parametrize("steps", [[1] * 40, [17, 1, 1, 8, 5, 8], [40], [3] * 13 + [1]])
def test_growing_caches_give_what_the_whole_text_gives(steps):
    q, k, v = text(40)
    cache = KVCache()
    torch.testing.assert_close(
        decoded(cache, q, k, v, steps), attention(q, k, v, Causal()), atol=1e-6, rtol=0
    )
    assert len(cache) == cache.seen == 40


@pytest.mark.parametrize("steps", [[1] * 60, [31, 1, 1, 8, 7, 12], [60], [7] * 8 + [4]])
@pytest.mark.parametrize(("window", "sinks"), [(9, 0), (9, 3), (1, 1), (100, 4)])
def test_sliding_caches_give_what_the_same_mask_gives_on_the_whole_text(window, sinks, steps):
    q, k, v = text(60)
    cache = KVCache(window=window, sinks=sinks)
    whole = attention(q, k, v, StreamingSinks(sinks, window))
    torch.testing.assert_close(decoded(cache, q, k, v, steps), whole, atol=1e-6, rtol=0)
    assert cache.seen == 60


def test_a_sliding_cache_keeps_no_more_than_window_and_sinks():
    q, k, v = text(200)
    cache = KVCache(window=16, sinks=2)
    decoded(cache, q, k, v, [1] * 200)
    assert len(cache) == 18
    assert cache._k is not None
    assert cache._k.shape[2] <= 64


def test_appending_n_tokens_copies_few_times():
    cache = KVCache()
    one = torch.zeros(1, 1, 1, 4)
    homes = set()
    for _ in range(1000):
        keys, _ = cache.append(one, one)
        homes.add(keys.data_ptr())
    assert len(homes) <= 8


def test_reset_forgets_and_reorder_moves_rows():
    _, k, v = text(5)
    cache = KVCache()
    cache.append(k, v)
    cache.reorder(torch.tensor([1, 0]))
    assert torch.equal(cache.k, k.flip(0))
    assert torch.equal(cache.v, v.flip(0))
    cache.reset()
    assert len(cache) == cache.seen == 0


def test_repr_says_what_is_kept():
    assert repr(KVCache(window=4, sinks=1)) == "KVCache(seen=0, kept=0, window=4, sinks=1)"


def test_bad_input_is_named():
    with pytest.raises(MaskError, match="window is 0; it must be at least 1"):
        KVCache(window=0)
    with pytest.raises(MaskError, match="sinks is 2 and window is None"):
        KVCache(sinks=2)
    with pytest.raises(ShapeError, match="the cache is empty"):
        _ = KVCache().k
    _, k, v = text(5)
    cache = KVCache()
    with pytest.raises(ShapeError, match=r"k has shape \(2, 2, 5, 8\) and v \(2, 2, 4, 8\)"):
        cache.append(k, v[:, :, :4])
    cache.append(k, v)
    with pytest.raises(ShapeError, match="Use one cache per layer and batch"):
        cache.append(k[:1], v[:1])
    with pytest.raises(DtypeError, match=r"this cache holds torch\.float32"):
        cache.append(k.double(), v.double())
