"""Short calls without options take a shorter way; here they are held to the ordinary one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import forward_ad

import regard
from engine.harness import DTYPES, in_every_dtype, qkv
from oracle import assert_as_good_as_eager, dense_attention, dense_mask
from regard import Causal, Dense, Padding, Where, Window, attention
from regard.engine.dispatch import short
from regard.errors import MaskError, ScoreError, ShapeError
from strategies import held_masks, lengths, masks, shapes

MASKS = {
    "none": None,
    "causal": Causal(),
    "window": Causal() & Window(3),
    "shifted": Causal(-2),
    "dead rows": Causal() & ~Window(2),
}


def taken(x, mask=None, scale=None):
    return short(x["q"], x["k"], x["v"], mask, scale)


@pytest.mark.share(6)
@in_every_dtype
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("q", "k"), [(1, 1), (1, 65), (7, 7), (5, 33), (65, 63)])
@pytest.mark.parametrize("name", MASKS)
def test_the_short_way_has_the_bits_of_the_ordinary_one(name, q, k, kv_heads, dtype):
    x = qkv(q, k, kv_heads=kv_heads, dtype=dtype)
    found = taken(x, MASKS[name])
    assert found is not None
    assert torch.equal(found, attention(**x, mask=MASKS[name], backend="sdpa"))
    assert torch.equal(found, attention(**x, mask=MASKS[name]))


@given(st.data(), lengths(65), lengths(65), st.sampled_from([None, 0.3]))
def test_the_short_way_is_right_for_any_mask_that_is_a_value(data, q, k, scale):
    mask = data.draw(shapes(k))
    x = qkv(q, k, kv_heads=2)
    found = taken(x, mask, scale)
    assert found is not None
    exact, eager = (
        dense_attention(**x, allowed=dense_mask(mask, x["q"], x["k"]), scale=scale, dtype=dtype).out
        for dtype in (torch.float64, torch.float32)
    )
    assert_as_good_as_eager(found, eager, exact)


@given(st.data(), lengths(33), lengths(33), st.sampled_from(DTYPES))
def test_the_short_way_gives_what_the_ordinary_one_gives_for_every_mask(data, q, k, dtype):
    x = qkv(q, k, kv_heads=data.draw(st.sampled_from([1, 2, 4])), dtype=dtype)
    mask = data.draw(st.one_of(shapes(k), masks(q, k, 2, 4), held_masks(q, k, 2, 4)))
    if data.draw(st.booleans()):
        x = {name: each.transpose(1, 2).contiguous().transpose(1, 2) for name, each in x.items()}
    # The first call of a mask makes what the second remembers.
    for _ in range(2):
        found = taken(x, mask)
        if found is not None:
            assert torch.equal(found, attention(**x, mask=mask, backend="sdpa"))


def test_what_is_remembered_of_a_mask_is_not_that_of_other_shapes_or_dtypes():
    mask = Causal() & Window(2)
    for q, k in [(5, 5), (5, 7), (1, 7), (7, 7)]:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = qkv(q, k, dtype=dtype)
            assert torch.equal(taken(x, mask), attention(**x, mask=mask, backend="sdpa"))


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_calls_that_want_gradients_go_the_ordinary_way(name):
    x = qkv(7, 7)
    x[name].requires_grad_()
    assert taken(x, Causal()) is None
    with torch.no_grad():
        assert taken(x, Causal()) is not None


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e30])
def test_garbage_behind_a_mask_goes_the_ordinary_way(bad):
    x = qkv(7, 7)
    x["v"][:, :, 6] = bad
    assert taken(x, Causal()) is None
    assert attention(**x, mask=Causal())[:, :, :6].abs().max() < 10


def test_masks_that_are_no_values_are_asked_in_every_call():
    width = [1]
    mask = Where(lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() < width[0])
    x = qkv(7, 7)
    assert taken(x, mask) is None
    narrow = attention(**x, mask=mask)
    width[0] = 9
    assert not torch.equal(narrow, attention(**x, mask=mask))


def test_masks_of_one_batch_go_the_ordinary_way():
    assert taken(qkv(7, 7), Padding(torch.rand(2, 7) < 0.5)) is None


def test_a_mask_whose_tensor_was_written_to_is_refused():
    mask = Dense(torch.ones(7, 7, dtype=torch.bool).tril())
    x = qkv(7, 7)
    attention(**x, mask=mask)
    mask.allowed[:] = True
    with pytest.raises(MaskError, match="changed in place"):
        attention(**x, mask=mask)


def test_a_mask_for_other_lengths_is_refused():
    with pytest.raises(MaskError, match="queries"):
        attention(**qkv(7, 7), mask=Dense(torch.ones(6, 7, dtype=torch.bool)))


def test_long_masked_calls_go_the_ordinary_way():
    assert taken(qkv(3, 257), Window(3)) is None
    assert taken(qkv(257, 257), Causal()) is not None
    assert taken(qkv(1, 257), Dense(torch.arange(257)[None] > 0)) is None
    assert taken(qkv(1, 257), Dense(torch.ones(1, 257, dtype=torch.bool))) is not None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"k": torch.zeros(2, 3, 7, 16)}, ShapeError),
        ({"k": torch.zeros(2, 4, 6, 16)}, ShapeError),
        ({"k": torch.zeros(2, 4, 7, 15), "v": torch.zeros(2, 4, 7, 15)}, ShapeError),
        ({"scale": torch.inf}, ScoreError),
    ],
)
def test_what_is_wrong_is_found_as_before(change, error):
    with pytest.raises(error):
        attention(**{**qkv(7, 7), **change})


def test_transforms_do_not_take_the_short_way():
    x = qkv(7, 7)
    mapped = torch.func.vmap(lambda q: attention(q, x["k"], x["v"], Causal()))(x["q"][None])[0]
    torch.testing.assert_close(mapped, attention(**x, mask=Causal()))
    with forward_ad.dual_level():
        assert taken(x, Causal()) is None


@in_every_dtype
@pytest.mark.parametrize("shape", [(7, 9), (1, 1, 7, 9), (2, 1, 7, 9), (1, 4, 7, 9), (2, 4, 7, 9)])
def test_a_bool_tensor_of_sdpa_has_the_bits_of_its_dense_mask(shape, dtype):
    x = qkv(7, 9, dtype=dtype)
    allowed = torch.rand(shape) < 0.5
    allowed[..., 3, :] = False
    found = taken(x, allowed)
    assert found is not None
    assert found[:, :, 3].abs().max() == 0
    assert torch.equal(regard.sdpa(*x.values(), allowed), found)
    assert torch.equal(attention(**x, mask=Dense(allowed), backend="sdpa"), found)


def test_a_bool_tensor_may_change_between_calls():
    x = qkv(7, 7)
    allowed = torch.ones(7, 7, dtype=torch.bool)
    everything = regard.sdpa(*x.values(), allowed)
    allowed.tril_()
    assert torch.equal(regard.sdpa(*x.values(), allowed), taken(x, allowed))
    assert not torch.equal(everything, taken(x, allowed))


def test_heads_that_only_broadcast_need_the_flag_for_groups():
    x = qkv(7, 7, kv_heads=2)
    with pytest.raises(ShapeError, match="enable_gqa"):
        regard.sdpa(*x.values())
    assert regard.sdpa(*x.values(), enable_gqa=True).shape == x["q"].shape
