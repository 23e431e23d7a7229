"""`MultiHeadAttention` against the textbook, PyTorch's module and itself, one token at a time."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from effort import examples
from oracle import dense_attention
from regard import Causal, ColumnMass, Entropy, KVCache, Padding, Window
from regard.errors import ModelError, ShapeError
from regard.nn import MultiHeadAttention
from regard.scores import ALiBi, Interleaved, QueryTemperature, Rotary


def by_hand(layer, query, key, value, allowed=None, bias=None, turned=lambda q, k: (q, k)):
    """Every step spelled out: project, view, transpose, attend, join, project."""

    def heads(x, count):
        return x.view(x.shape[0], x.shape[1], count, layer.head_dim).transpose(1, 2)

    q = heads(query @ layer.q_proj.weight.T + layer.q_proj.bias, layer.heads)
    k = heads(key @ layer.k_proj.weight.T + layer.k_proj.bias, layer.kv_heads)
    v = heads(value @ layer.v_proj.weight.T + layer.v_proj.bias, layer.kv_heads)
    q, k = turned(q, k)
    dense = dense_attention(q, k, v, allowed, bias=bias)
    out = dense.out.transpose(1, 2).reshape(query.shape)
    return out @ layer.out_proj.weight.T + layer.out_proj.bias, dense.weights


def drawn(layer: nn.Module) -> nn.Module:
    """A layer whose biases are not 0, so that forgetting one shows."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer.double().eval()


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("length", [1, 63, 65])
def test_self_attention_is_the_textbooks_for_all_group_sizes(kv_heads, length):
    layer = drawn(MultiHeadAttention(24, 6, kv_heads=kv_heads))
    x = torch.randn(2, length, 24, dtype=torch.float64)
    want, _ = by_hand(layer, x, x, x, Causal().dense(length))
    torch.testing.assert_close(layer(x, mask=Causal()), want)


def test_cross_attention_takes_keys_and_values_of_other_lengths_and_widths():
    layer = drawn(MultiHeadAttention(12, 3, key_dim=5, value_dim=7))
    query, key, value = (torch.randn(2, *s, dtype=torch.float64) for s in ((3, 12), (65, 5), (65, 7)))
    torch.testing.assert_close(layer(query, key, value), by_hand(layer, query, key, value)[0])


def test_the_key_is_the_value_where_none_is_given():
    layer = drawn(MultiHeadAttention(12, 3, key_dim=5))
    query, memory = torch.randn(2, 3, 12).double(), torch.randn(2, 9, 5).double()
    assert torch.equal(layer(query, memory), layer(query, memory, memory))


def test_rotary_turns_queries_and_keys_and_not_values():
    rotary = Rotary(4)
    layer = drawn(MultiHeadAttention(24, 6, kv_heads=3, rotary=rotary))
    x = torch.randn(2, 63, 24, dtype=torch.float64)
    want, _ = by_hand(layer, x, x, x, turned=lambda q, k: (rotary.rotate(q), rotary.rotate(k)))
    torch.testing.assert_close(layer(x), want)


def test_positions_move_rotary_but_only_their_distances_count():
    layer = drawn(MultiHeadAttention(8, 2, rotary=Rotary(4)))
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x, positions=torch.arange(9) + 100), layer(x))
    assert not torch.allclose(layer(x, positions=torch.arange(9) * 2), layer(x))


def test_a_bias_on_scores_is_added():
    layer, bias = drawn(MultiHeadAttention(12, 3)), ALiBi.for_heads(3)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    matrix = bias.tile(torch.arange(9), torch.arange(9))
    torch.testing.assert_close(layer(x, bias=bias), by_hand(layer, x, x, x, bias=matrix)[0])


def test_observe_gives_the_output_of_forward_and_the_map_of_every_head():
    layer = drawn(MultiHeadAttention(12, 3))
    x, mask = torch.randn(2, 9, 12).double(), Causal() & Window(4)
    out, seen = layer.observe(x, mask=mask, stats=[Entropy(), ColumnMass()])
    want, weights = by_hand(layer, x, x, x, mask.dense(9))
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(out, layer(x, mask=mask))
    torch.testing.assert_close(seen.map.dense(), weights)
    torch.testing.assert_close(seen.entropy, torch.special.entr(weights).sum(-1))
    torch.testing.assert_close(seen.column_mass, weights.sum(-2))


@given(cuts=st.lists(st.integers(1, 5), min_size=1, max_size=5), kv_heads=st.sampled_from([1, 2, 4]))
@examples(15)
def test_decoding_in_any_pieces_with_a_cache_is_reading_it_all_at_once(cuts, kv_heads):
    layer = drawn(MultiHeadAttention(16, 4, kv_heads=kv_heads, rotary=Rotary(4)))
    x, cache = torch.randn(2, sum(cuts), 16).double(), KVCache()
    with torch.no_grad():
        pieces = [layer(part, cache=cache) for part in x.split(cuts, 1)]
        torch.testing.assert_close(torch.cat(pieces, 1), layer(x, mask=Causal()))


def test_a_cache_keeps_a_temperature_that_grows_with_position():
    scheme = Interleaved(Rotary(4), every=1, temperature=QueryTemperature(floor=2, strength=1.0)).layer(0)
    layer = drawn(MultiHeadAttention(8, 2, rotary=scheme))
    x, cache = torch.randn(1, 7, 8).double(), KVCache()
    with torch.no_grad():
        steps = [layer(part, cache=cache) for part in x.split(1, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), layer(x, mask=Causal()))


def test_a_windowed_cache_is_a_windowed_mask():
    layer = drawn(MultiHeadAttention(8, 2, rotary=Rotary(4)))
    x, cache = torch.randn(1, 12, 8).double(), KVCache(window=4)
    with torch.no_grad():
        steps = [layer(part, cache=cache) for part in x.split(1, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), layer(x, mask=Causal() & Window(4)))
    assert len(cache) == 4


def test_a_mask_holds_in_addition_to_the_caches():
    layer = drawn(MultiHeadAttention(8, 2))
    x, cache = torch.randn(1, 9, 8).double(), KVCache()
    with torch.no_grad():
        steps = [layer(part, mask=Window(2), cache=cache) for part in x.split(1, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), layer(x, mask=Causal() & Window(2)))


def test_one_sequence_without_a_batch_gives_one_without_a_batch():
    layer, x = drawn(MultiHeadAttention(12, 3)), torch.randn(9, 12).double()
    assert torch.equal(layer(x), layer(x[None])[0])
    assert layer.observe(x)[0].shape == (9, 12)


def test_dropout_acts_in_training_only():
    layer, x = MultiHeadAttention(12, 3, dropout=0.5), torch.randn(2, 65, 12)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))


def test_gradients_reach_every_parameter_and_match_the_textbooks():
    layer = drawn(MultiHeadAttention(12, 6, kv_heads=2))
    x, mask = torch.randn(2, 9, 12).double(), Padding.from_lengths([9, 4], 9)
    parameters = list(layer.parameters())
    got = torch.autograd.grad(layer(x, mask=mask).square().sum(), parameters)
    want = torch.autograd.grad(by_hand(layer, x, x, x, mask.dense(9))[0].square().sum(), parameters)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [{}, {"kdim": 5, "vdim": 7}])
@pytest.mark.parametrize("batch_first", [True, False])
def test_from_torch_and_back_give_equal_results_both_ways(bias, widths, batch_first):
    theirs = drawn(nn.MultiheadAttention(12, 3, bias=bias, batch_first=batch_first, **widths))
    ours = MultiHeadAttention.from_torch(theirs)
    query = torch.randn(2, 5, 12).double()
    key, value = torch.randn(2, 65, theirs.kdim).double(), torch.randn(2, 65, theirs.vdim).double()
    given_ = (query, key, value) if batch_first else (x.transpose(0, 1) for x in (query, key, value))
    out, weights = theirs(*given_, average_attn_weights=False)
    out = out if batch_first else out.transpose(0, 1)
    mine, seen = ours.observe(query, key, value)
    torch.testing.assert_close(mine, out)
    torch.testing.assert_close(seen.map.dense(), weights)
    again = ours.to_torch(batch_first)
    assert again.state_dict().keys() == theirs.state_dict().keys()
    for name, parameter in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], parameter), name


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_to_torch_writes_grouped_heads_out(kv_heads):
    ours = drawn(MultiHeadAttention(12, 6, kv_heads=kv_heads))
    x = torch.randn(2, 9, 12).double()
    torch.testing.assert_close(ours.to_torch()(x, x, x)[0], ours(x))


def test_conversion_keeps_dtype_dropout_and_mode_and_shares_no_memory():
    theirs = nn.MultiheadAttention(8, 2, dropout=0.25, dtype=torch.bfloat16).eval()
    ours = MultiHeadAttention.from_torch(theirs)
    assert (ours.q_proj.weight.dtype, ours.dropout, ours.training) == (torch.bfloat16, 0.25, False)
    again = ours.to_torch()
    assert (again.in_proj_weight.dtype, again.dropout, again.training) == (torch.bfloat16, 0.25, False)
    with torch.no_grad():
        ours.q_proj.weight.zero_()
    assert bool(theirs.in_proj_weight[:8].any())
    assert bool(again.in_proj_weight[:8].any())


def test_a_state_dict_carries_the_layer_and_its_repr_says_what_it_is():
    layer = MultiHeadAttention(8, 4, kv_heads=2, dropout=0.1)
    assert repr(layer).startswith("MultiHeadAttention(\n  8, heads=4, kv_heads=2, dropout=0.1\n")
    other = MultiHeadAttention(8, 4, kv_heads=2)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(1, 3, 8)
    assert torch.equal(other.eval()(x), layer.eval()(x))


X = torch.zeros(2, 3, 8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: MultiHeadAttention(8, 3),
            ShapeError,
            "dim is 8 and heads is 3; dim must be a multiple of heads, both above 0.",
        ),
        (
            lambda: MultiHeadAttention(8, 4, kv_heads=3),
            ShapeError,
            "heads is 4 and kv_heads is 3; heads must be a multiple of kv_heads.",
        ),
        (
            lambda: MultiHeadAttention(8, 2, rotary=Rotary(8)),
            ShapeError,
            "rotary turns 8 dimensions and a head has 4; make it for one head: Rotary(4).",
        ),
        (
            lambda: MultiHeadAttention(8, 2, dropout=1.0),
            ShapeError,
            "dropout is 1.0; it must be at least 0 and below 1.",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(torch.zeros(2, 3, 9)),
            ShapeError,
            "query has shape (2, 3, 9); it must be (batch, length, 8) or (length, 8).",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(X, X[:1]),
            ShapeError,
            "key has shape (1, 3, 8) and query (2, 3, 8); both must have the same batch.",
        ),
        (
            lambda: MultiHeadAttention(8, 2)(X, X, cache=KVCache()),
            ShapeError,
            "got a cache and a key or value; a cache holds the past of self-attention. "
            "Leave the cache out: what cross-attention sees does not grow.",
        ),
        (
            lambda: MultiHeadAttention.from_torch(nn.Linear(2, 2)),
            ModelError,
            "from_torch got a Linear; it converts torch.nn.MultiheadAttention.",
        ),
        (
            lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 2, add_zero_attn=True)),
            ModelError,
            "add_bias_kv and add_zero_attn add keys that no token has, which MultiHeadAttention does not; "
            "swap the module with regard.nn.drop_in instead.",
        ),
        (
            lambda: MultiHeadAttention(8, 2, rotary=Rotary(4)).to_torch(),
            ModelError,
            "cannot go into torch.nn.MultiheadAttention, which knows no positions; keep this module.",
        ),
    ],
)
def test_what_is_wrong_is_said(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()
