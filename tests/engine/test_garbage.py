"""What a mask hides is never touched: rows that see nothing, and hidden NaN, inf and huge numbers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from effort import examples
from engine.harness import differentiated, in_every_dtype, on_both_backends, own_random_state, qkv
from oracle import dense_mask
from regard import attention, observe, sdpa
from regard.errors import BackendError
from regard.masks import Causal, Chunk, Dense, Documents, Padding, Window
from strategies import lengths, masks

N = 65
HALF_DEAD = {
    "documents": Documents(ids=torch.arange(N) // 10 - 2),
    "padding": Padding(torch.zeros(N, dtype=torch.bool)),
    "ragged padding": Padding.from_lengths([0, N], N),
    "causal from key 30": Causal(shift=-30),
    "chunks": Causal(shift=-5) & Chunk(10),
    "dense": Dense(torch.ones(N, N, dtype=torch.bool).tril() & (torch.arange(N) % 3 == 0)[:, None]),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", HALF_DEAD)
@in_every_dtype
@on_both_backends
def test_a_row_that_sees_nothing_gives_zeros_and_takes_no_gradient(name, dtype, backend):
    leaves, mask = qkv(N, N, kv_heads=2, dtype=dtype), HALF_DEAD[name]
    dead = ~dense_mask(mask, leaves["q"], leaves["k"]).any(-1).expand(2, 4, N)
    assert dead.any()
    got = differentiated(lambda x: attention(**x, mask=mask, backend=backend), leaves)
    assert not got["out"][dead].any()
    assert not got["q"][dead].any()
    assert all(x.isfinite().all() for x in got.values())


@pytest.mark.parametrize("name", HALF_DEAD)
@on_both_backends
def test_a_row_that_sees_nothing_sends_no_gradient(name, backend):
    leaves, mask = qkv(N, N, kv_heads=2), HALF_DEAD[name]
    dead = ~dense_mask(mask, leaves["q"], leaves["k"]).any(-1).expand(2, 4, N)
    got = differentiated(lambda x: attention(**x, mask=mask, backend=backend)[dead], leaves)
    assert not any(x.any() for x in got.values())


@on_both_backends
def test_a_bias_of_minus_infinity_makes_a_dead_row_too(backend):
    leaves, bias = qkv(N, N), torch.zeros(N, N)
    bias[7] = -torch.inf
    got = differentiated(lambda x: attention(**x, bias=bias, backend=backend), leaves)
    assert not got["out"][:, :, 7].any()
    assert not got["q"][:, :, 7].any()
    assert all(x.isfinite().all() for x in got.values())


def touched(mask, leaves, keys, rows):
    """Which rows and which keys garbage can reach: rows that see some of it, and the keys those rows see."""
    allowed = dense_mask(mask, leaves["q"], leaves["k"])
    allowed = allowed.expand(*leaves["q"].shape[:3], leaves["k"].shape[2])
    bad_rows = allowed[..., keys].any(-1)
    bad_rows[..., rows] |= allowed[..., rows, :].any(-1)
    bad_keys = (allowed & bad_rows[..., None]).any(2)
    group = allowed.shape[1] // leaves["k"].shape[1]
    return bad_rows, bad_keys.unflatten(1, (-1, group)).any(2)


def assert_garbage_stays_where_it_is_seen(leaves, mask, garbage, keys, rows, **options):
    def call(x, **more):
        torch.manual_seed(3)
        return attention(**x, mask=mask, **{**options, **more})

    dirty = {name: x.clone() for name, x in leaves.items()}
    dirty["q"][:, :, rows], dirty["k"][:, :, keys], dirty["v"][:, :, keys] = garbage, garbage, garbage
    got = differentiated(call, dirty)
    clean = differentiated(lambda x: call(x, backend="torch"), leaves)
    bad_rows, bad_keys = touched(mask, leaves, keys, rows)
    for name, bad in (("out", bad_rows), ("q", bad_rows), ("k", bad_keys), ("v", bad_keys)):
        torch.testing.assert_close(got[name][~bad], clean[name][~bad])


HIDING = {
    "padding": Padding(torch.arange(N) < 40),
    "ragged padding": Padding.from_lengths([20, 40], N),
    "documents": Documents(ids=torch.where(torch.arange(N) < 40, torch.arange(N) // 9, -1)),
    "one document": Documents(lengths=[40, N - 40]),
    "causal": Causal(),
    "window": Window(5),
    "causal window": Causal() & Window(5),
}
GARBAGE = [math.nan, math.inf, -math.inf, 3e38]
OPTIONS = {
    "plain": {},
    "soft cap": {"softcap": 5.0},
    "sink": {"sink": torch.zeros(4)},
    "dropout": {"dropout": 0.5},
    "bias": {"bias": torch.randn(N, N, generator=torch.Generator().manual_seed(0))},
}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", HIDING)
@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
@pytest.mark.parametrize("options", OPTIONS)
def test_garbage_behind_a_mask_reaches_no_output(name, garbage, options):
    leaves, place = qkv(N, N, kv_heads=2), slice(40, None)
    assert_garbage_stays_where_it_is_seen(leaves, HIDING[name], garbage, place, place, **OPTIONS[options])


@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
def test_garbage_behind_a_mask_reaches_no_output_across_tiles(garbage):
    n = 1200
    mask = Documents(ids=torch.arange(n).expand(2, -1) // torch.tensor([[300], [900]]))
    place = slice(650, 660)
    assert_garbage_stays_where_it_is_seen(qkv(n, n, heads=1, dim=8), mask, garbage, place, place)


@examples(60)
@given(data=st.data())
def test_garbage_reaches_exactly_who_sees_it_under_any_mask(data):
    q, k = data.draw(lengths(33)), data.draw(lengths(65))
    mask = data.draw(masks(q, k, batch=2, heads=4))
    garbage = data.draw(st.sampled_from(GARBAGE))
    keys = slice(data.draw(st.integers(0, k - 1)), None)
    rows = slice(data.draw(st.integers(0, q - 1)), None)
    torch.manual_seed(0)
    with own_random_state():
        assert_garbage_stays_where_it_is_seen(qkv(q, k, kv_heads=2), mask, garbage, keys, rows)


@pytest.mark.parametrize("name", ["k", "v"])
@pytest.mark.parametrize("mask", [None, Causal(), Window(5)], ids=str)
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_nan_that_is_seen_is_not_hidden(name, mask, backend):
    leaves = qkv(N, N)
    leaves[name][:, :, 30] = math.nan
    allowed = torch.ones(1, 1, N, N, dtype=torch.bool) if mask is None else mask.dense(N)[None, None]
    sees = allowed[0, 0, :, 30]
    out = attention(**leaves, mask=mask, backend=backend)
    assert out[:, :, sees].isnan().all()
    assert out[:, :, ~sees].isfinite().all()


@pytest.mark.parametrize("sign", [1, -1])
def test_infinite_values_that_are_seen_keep_their_sign(sign):
    leaves = qkv(N, N)
    leaves["v"][:, :, 30] = sign * math.inf
    out = attention(**leaves, mask=Causal())
    assert (out[:, :, 30:] == sign * math.inf).all()
    assert out[:, :, :30].isfinite().all()
    leaves["v"][:, :, 31] = -sign * math.inf
    assert attention(**leaves, mask=Causal())[:, :, 31:].isnan().all()


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
def test_fused_kernels_asked_for_by_name_refuse_garbage_under_a_mask(name, garbage):
    leaves = qkv(N, N)
    leaves[name][0, 0, 0, 0] = garbage
    message = (
        "^backend='sdpa' cannot run this call: q, k or v hold NaN, inf or numbers whose products overflow"
    )
    with pytest.raises(BackendError, match=message):
        attention(**leaves, mask=Causal(), backend="sdpa")
    attention(**leaves, backend="sdpa")


@pytest.mark.parametrize("n", [1, 3, 15, 16, 17])
@pytest.mark.parametrize("learns", [False, True])
def test_a_query_of_nan_gives_nan_however_few_the_keys_are(n, learns):
    # With fewer keys than a vector has lanes, PyTorch's CPU kernel returns zeros.
    q, k, v = torch.randn(3, 1, 2, n, 8).unbind()
    q[0, 1, 0] = torch.nan
    q.requires_grad_(learns)
    with pytest.warns(UserWarning, match=f"1 of {2 * n} rows have scores that are NaN"):
        seen = observe(q, k, v)
    for out in (attention(q, k, v), sdpa(q, k, v), seen.out):
        assert out[0, 1, 0].isnan().all()
        assert out.isnan().sum() == 8
