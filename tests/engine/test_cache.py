"""Decoding with a cache equals attention over the whole text."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from effort import examples
from engine.harness import on_both_backends, own_random_state
from regard import KVCache, attention
from regard.engine.schedule import KEY_TILE, ROUND, schedule
from regard.engine.sdpa_backend import kernels
from regard.errors import DeviceError, DtypeError, MaskError, ShapeError
from regard.masks import Causal, StreamingSinks, Window


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


@examples(25)
@given(
    steps=st.lists(st.integers(1, 8), min_size=1, max_size=12),
    prefill=st.integers(1, 40),
    window=st.none() | st.integers(1, 20),
    sinks=st.integers(0, 4),
    half=st.booleans(),
)
def test_any_steps_after_any_prefill_give_what_the_whole_text_gives(steps, prefill, window, sinks, half):
    torch.manual_seed(0)
    steps = [prefill, *steps]
    q, k, v = (x.bfloat16() if half else x for x in text(sum(steps)))
    cache = KVCache(window, sinks if window else 0)
    with own_random_state():
        whole = attention(q, k, v, cache.mask)
        torch.testing.assert_close(decoded(cache, q, k, v, steps), whole, rtol=0, atol=0.05 if half else 1e-6)


@on_both_backends
def test_the_cache_serves_every_backend(backend):
    q, k, v = text(60)
    cache = KVCache(window=9, sinks=2)
    for step in range(60):
        keys, values = cache.append(k[:, :, step : step + 1], v[:, :, step : step + 1])
        out = attention(q[:, :, step : step + 1], keys, values, cache.mask, backend=backend)
        whole = attention(q[:, :, : step + 1], k[:, :, : step + 1], v[:, :, : step + 1], StreamingSinks(2, 9))
        torch.testing.assert_close(out, whole[:, :, -1:], rtol=0, atol=1e-6)


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


def test_beams_may_be_reordered_in_the_middle_of_a_text():
    q, k, v = text(30)
    rows = torch.tensor([1, 1])
    cache = KVCache(window=9, sinks=2)
    decoded(cache, q[:, :, :20], k[:, :, :20], v[:, :, :20], [20])
    cache.reorder(rows)
    out = decoded(cache, q[:, :, 20:], k[:, :, 20:], v[:, :, 20:], [1] * 10)
    past, recent = slice(0, 20), slice(20, None)
    k, v = (torch.cat([x[rows, :, past], x[:, :, recent]], 2) for x in (k, v))
    whole = attention(torch.cat([q[rows, :, past], q[:, :, recent]], 2), k, v, StreamingSinks(2, 9))
    torch.testing.assert_close(out, whole[:, :, recent], rtol=0, atol=1e-6)


def test_beams_may_become_more_or_fewer():
    _, k, v = text(5)
    cache = KVCache()
    cache.append(k, v)
    cache.reorder([1, 0, 1])
    assert torch.equal(cache.k, k[[1, 0, 1]])
    assert torch.equal(cache.v, v[[1, 0, 1]])
    cache.append(k[[1, 0, 1]], v[[1, 0, 1]])
    assert len(cache) == 10


def test_an_empty_cache_has_nothing_to_reorder():
    cache = KVCache()
    cache.reorder(torch.tensor([0]))
    assert len(cache) == 0


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("window", [None, 5])
def test_a_cache_filled_in_inference_mode_goes_on_outside_it(window, learns):
    q, k, v = text(12)
    cache, mask = KVCache(window=window), Causal() if window is None else Causal() & Window(window)
    cache.append(k[:, :, :3].clone().requires_grad_(learns), v[:, :, :3])
    with torch.inference_mode():
        cache.append(k[:, :, 3:7].clone(), v[:, :, 3:7].clone())
        cache.reorder([1, 0])
    cache.reorder([1, 0])
    keys, values = cache.append(k[:, :, 7:], v[:, :, 7:])
    out = attention(q[:, :, 7:], keys, values, cache.mask)
    torch.testing.assert_close(out, attention(q, k, v, mask)[:, :, 7:], atol=1e-6, rtol=0)


def test_after_a_reset_the_past_is_gone_and_the_memory_is_kept():
    q, k, v = text(40)
    cache = KVCache(window=9, sinks=2)
    first = decoded(cache, q, k, v, [17, 1, 1, 8, 5, 8])
    home = cache.k.data_ptr()
    cache.reset()
    assert len(cache) == cache.seen == 0
    assert torch.equal(decoded(cache, q, k, v, [17, 1, 1, 8, 5, 8]), first)
    assert cache.k.data_ptr() == home


def test_a_step_of_no_token_changes_nothing():
    _, k, v = text(9)
    cache = KVCache()
    cache.append(k, v)
    keys, _ = cache.append(k[:, :, :0], v[:, :, :0])
    assert keys.shape[2] == cache.seen == 9


def touched_keys(monkeypatch, q, k, mask):
    """How many keys PyTorch's kernel is given for one call."""
    counts = []
    operator = kernels._operator

    def counting(name):
        def run(q, k, v, *rest, **options):
            counts.append(k.shape[2])
            return operator(name)(q, k, v, *rest, **options)

        return run

    monkeypatch.setattr(kernels, "_operator", counting)
    attention(torch.randn(1, 2, q, 8), *torch.randn(2, 1, 2, k, 8).unbind(), mask, backend="sdpa")
    return sum(counts)


def test_a_decode_step_under_a_window_touches_the_window_only(monkeypatch):
    assert touched_keys(monkeypatch, 1, 50_001, Causal() & Window(64)) <= 64 + 2 * ROUND
    assert touched_keys(monkeypatch, 8, 50_001, Causal() & Window(64)) <= 72 + 2 * ROUND


def test_a_decode_step_under_a_window_and_sinks_touches_their_tiles_only(monkeypatch):
    assert touched_keys(monkeypatch, 1, 50_001, StreamingSinks(4, 64)) <= 3 * KEY_TILE


def test_a_decode_step_at_a_million_keys_schedules_one_run():
    (row,) = schedule(Causal() & Window(64), 1, 1_000_001, 256, 1_000_000)
    assert row.keys <= 64 + 2 * ROUND


def test_repr_says_what_is_kept():
    assert repr(KVCache(window=4, sinks=1)) == "KVCache(seen=0, kept=0, window=4, sinks=1)"


def filled():
    _, k, v = text(5)
    cache = KVCache()
    cache.append(k, v)
    return cache, k, v


def test_impossible_caches_are_refused_in_words():
    for window, sinks, message in (
        (0, 0, "window is 0; it must be at least 1, or None to keep everything."),
        (2.5, 0, "KVCache got window=2.5, a float; it must be a whole number."),
        (4, -1, "sinks is -1 and window is 4; sinks must be 0 or more and need a window."),
        (None, 2, "sinks is 2 and window is None; sinks must be 0 or more and need a window."),
    ):
        with pytest.raises(MaskError, match=f"^{re.escape(message)}$"):
            KVCache(window, sinks)


def test_an_empty_cache_has_no_keys_to_give():
    for name in ("k", "v"):
        with pytest.raises(ShapeError, match=r"^the cache is empty; append keys and values first\.$"):
            getattr(KVCache(), name)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda k, v: (k, v[:, :, :4]),
            ShapeError,
            "k has shape (2, 2, 5, 8) and v (2, 2, 4, 8); both must be (batch, heads, new, dim) "
            "with the same batch, heads and length.",
        ),
        (
            lambda k, v: (k[0], v[0]),
            ShapeError,
            "k has shape (2, 5, 8) and v (2, 5, 8); both must be (batch, heads, new, dim) "
            "with the same batch, heads and length.",
        ),
        (
            lambda k, v: (k[:1], v[:1]),
            ShapeError,
            "k has shape (1, 2, 5, 8); this cache holds (batch, heads, dim) = (2, 2, 8). "
            "Use one cache per layer and batch.",
        ),
        (
            lambda k, v: (k, v[..., :3]),
            ShapeError,
            "v has shape (2, 2, 5, 3); this cache holds (batch, heads, dim) = (2, 2, 8). "
            "Use one cache per layer and batch.",
        ),
        (
            lambda k, v: (k.double(), v),
            DtypeError,
            "k is torch.float64; this cache holds torch.float32. Convert it with .to.",
        ),
        (
            lambda k, v: (k, v.to("meta")),
            DeviceError,
            "v is on meta; this cache is on cpu. Move it with .to.",
        ),
        (lambda k, v: ([1.0], v), DtypeError, "k is a list; it must be a torch.Tensor."),
    ],
    ids=["lengths", "rank", "batch", "dim", "dtype", "device", "list"],
)
def test_keys_that_do_not_fit_are_refused_and_not_kept(change, error, message):
    cache, k, v = filled()
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        cache.append(*change(k, v))
    assert len(cache) == 5
    assert torch.equal(cache.k, k)


@pytest.mark.parametrize(("window", "sinks"), [(None, 0), (5, 0), (5, 2), (1, 1)])
@pytest.mark.parametrize("steps", [[1] * 9, [4, 1, 3, 1]], ids=str)
def test_what_was_cached_under_grad_learns_as_in_the_whole_text(window, sinks, steps):
    torch.manual_seed(0)
    leaves = [torch.randn(1, 2, sum(steps), 8, requires_grad=True) for _ in range(3)]
    cache, outs, start = KVCache(window, sinks), [], 0
    for step in steps:
        q, k, v = (x[:, :, start : start + step] for x in leaves)
        keys, values = cache.append(k, v)
        outs.append(attention(q, keys, values, mask=cache.mask))
        start += step
    whole = attention(*leaves, mask=cache.mask)
    upstream = torch.randn(whole.shape)
    stepwise = torch.autograd.grad(torch.cat(outs, 2), leaves, upstream)
    for ours, theirs in zip(stepwise, torch.autograd.grad(whole, leaves, upstream), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert window is None or len(cache) <= sinks + window - 1 + steps[-1]


def test_decoding_after_learning_leaves_the_graph_alone():
    torch.manual_seed(1)
    k = torch.randn(1, 1, 6, 8, requires_grad=True)
    cache = KVCache(window=3, sinks=1)
    keys, values = cache.append(k * 2, k * 3)
    loss = attention(k, keys, values, mask=cache.mask).sum()
    with torch.no_grad():
        for _ in range(3):
            later, _ = cache.append(torch.ones(1, 1, 2, 8), torch.ones(1, 1, 2, 8))
        cache.reset()
        cache.append(torch.ones(1, 1, 2, 8), torch.ones(1, 1, 2, 8))
    assert not later.requires_grad
    assert bool(torch.autograd.grad(loss, k)[0].isfinite().all())


def test_a_reset_lets_go_of_the_graph():
    k = torch.randn(1, 1, 6, 8, requires_grad=True)
    cache = KVCache()
    keys, values = cache.append(k * 2, k * 2)
    loss = attention(k, keys, values).sum()
    cache.reset()
    again, _ = cache.append(torch.ones(1, 1, 2, 8), torch.ones(1, 1, 2, 8))
    assert torch.equal(again, torch.ones(1, 1, 2, 8))
    assert not again.requires_grad
    loss.backward()


def test_cached_keys_are_copies_also_under_grad():
    k = torch.randn(1, 1, 2, 8, requires_grad=True)
    cache = KVCache()
    cache.append(k, k)
    with torch.no_grad():
        k.zero_()
    assert bool((cache.k != 0).all())


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([-1, 0], ShapeError, "rows hold -1, and this cache has 2 batch rows; wanted 0 to 1."),
        ([0, 2], ShapeError, "rows hold 2, and this cache has 2 batch rows; wanted 0 to 1."),
        (torch.tensor([[0, 1]]), ShapeError, "rows have shape (1, 2); wanted one list of batch rows."),
        (1, ShapeError, "rows have shape (); wanted one list of batch rows."),
        ([0.0, 1.0], DtypeError, "rows are torch.float32; wanted ints. Convert them with .long()."),
        (
            [True, False],
            DtypeError,
            "rows are 2 flags; wanted the numbers of batch rows. Turn flags into numbers with "
            "flags.nonzero().flatten().",
        ),
        (None, DtypeError, "rows is None; wanted a list or tensor of batch rows, such as [1, 0]."),
        ("ab", DtypeError, "rows is 'ab'; wanted a list or tensor of batch rows, such as [1, 0]."),
    ],
    ids=repr,
)
def test_rows_that_a_cache_cannot_be_reordered_by_are_named(rows, error, message):
    cache = KVCache()
    k, v = torch.randn(2, 2, 1, 3, 4).unbind()
    cache.append(k, v)
    with pytest.raises(error) as caught:
        cache.reorder(rows)
    assert str(caught.value) == message
    assert torch.equal(cache.k, k)


@pytest.mark.parametrize(
    "rows", [[1, 0], [1], [1, 1, 0], torch.tensor([1, 0], dtype=torch.int32), []], ids=str
)
def test_rows_may_be_left_out_and_come_twice(rows):
    cache = KVCache()
    k, v = torch.randn(2, 2, 1, 3, 4).unbind()
    cache.append(k, v)
    cache.reorder(rows)
    chosen = [int(row) for row in rows]
    assert torch.equal(cache.k, k[chosen])
    assert torch.equal(cache.v, v[chosen])


@pytest.mark.parametrize("learns", [False, True], ids=["in place", "with a graph"])
@pytest.mark.parametrize("window", [None, 4], ids=["whole", "window"])
def test_a_trimmed_cache_goes_on_as_if_the_tokens_had_never_come(window, learns):
    """Speculative decoding: five drafts come in one step, and the last three are refused."""
    torch.manual_seed(0)
    k, v = (torch.randn(1, 2, 20, 4, requires_grad=learns) for _ in range(2))
    drafted, plain = (KVCache(window, sinks=1 if window else 0) for _ in range(2))

    def append(cache, start, stop):
        return cache.append(k[:, :, start:stop], v[:, :, start:stop])

    for cache in (drafted, plain):
        for step in range(9):
            append(cache, step, step + 1)
    append(drafted, 9, 14)
    drafted.trim(3)
    append(plain, 9, 11)
    assert (drafted.seen, len(drafted)) == (plain.seen, len(plain))
    assert torch.equal(drafted.k, plain.k)
    q = torch.randn(1, 2, 1, 4)
    for step in range(11, 15):
        outs = []
        for cache in (drafted, plain):
            keys, values = append(cache, step, step + 1)
            outs.append(attention(q, keys, values, mask=cache.mask))
        assert torch.equal(*outs)


def test_everything_may_be_trimmed_as_long_as_nothing_was_forgotten():
    cache = KVCache(window=4, sinks=1)
    cache.append(*torch.randn(2, 1, 1, 3, 4).unbind())
    cache.trim(0)
    cache.trim(3)
    assert (cache.seen, len(cache)) == (0, 0)
    cache.append(*torch.randn(2, 1, 1, 2, 4).unbind())
    assert (cache.seen, len(cache)) == (2, 2)


def test_what_a_window_has_forgotten_cannot_be_trimmed_back():
    cache = KVCache(window=4, sinks=1)
    for _ in range(10):
        cache.append(*torch.randn(2, 1, 1, 1, 4).unbind())
    with pytest.raises(ShapeError) as caught:
        cache.trim(2)
    assert str(caught.value) == (
        "trim got n=2; of KVCache(seen=10, kept=5, window=4, sinks=1) only the newest 1 can be dropped, "
        "as the keys that the window would then need are forgotten. Append drafts in one step, or keep no "
        "window."
    )
    cache.trim(1)
    assert (cache.seen, len(cache)) == (9, 4)


@pytest.mark.parametrize(
    ("n", "error", "message"),
    [
        (4, ShapeError, "trim got n=4, and the cache has seen 3 tokens; wanted 0 to 3."),
        (-1, ShapeError, "trim got n=-1, and the cache has seen 3 tokens; wanted 0 to 3."),
        (1.5, MaskError, "KVCache got n=1.5, a float; it must be a whole number."),
    ],
)
def test_tokens_that_are_not_there_cannot_be_trimmed(n, error, message):
    cache = KVCache()
    cache.append(*torch.randn(2, 1, 1, 3, 4).unbind())
    with pytest.raises(error) as caught:
        cache.trim(n)
    assert str(caught.value) == message
    assert cache.seen == 3
