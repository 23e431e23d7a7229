"""Sparse masks that keep a share of each head's attention, held against the dense map."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

import regard
from atlas.builders import recording_of
from regard.atlas import advise
from regard.errors import StatisticError
from regard.masks import Mask

N = 200


@pytest.fixture(scope="module")
def recording():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.25,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad(), regard.watch(model) as seen:
        model(input_ids=torch.randint(0, 64, (1, N), generator=torch.Generator().manual_seed(1)))
    return seen


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_mask_keeps_what_it_says_and_leaves_the_pairs_it_says(recording, share):
    found = advise(recording, share)
    assert len(found.heads) == 8
    assert len(found.layers) == 2
    for one in (*found.heads, *found.layers):
        dense = recording.maps[one.layer].dense()[0].double()
        heads = dense if one.head is None else dense[one.head : one.head + 1]
        assert one.mask is not None
        allowed = one.mask.dense(N, N)
        kept = (heads * allowed).sum((-2, -1)) / heads.sum((-2, -1))
        assert one.mass == pytest.approx(kept.min().item(), abs=1e-5)
        assert one.mass >= share - 1e-6
        assert one.pairs == pytest.approx(allowed.double().sum().item() / (N * (N + 1) / 2))
        assert not (allowed & ~regard.Causal().dense(N, N)).any()


def test_the_sparsest_window_is_not_wider_than_it_must_be(recording):
    for one in advise(recording, 0.8).heads:
        if one.kind.startswith("window"):
            width = int(one.kind.split()[1])
            dense = recording.maps[one.layer][0, one.head].double()
            narrower = regard.Causal() & regard.Window(width - 1)
            assert (dense * narrower.dense(N, N)).sum() / dense.sum() < 0.8


def test_a_head_that_looks_at_its_neighbours_gets_a_window():
    place = torch.arange(float(N))
    bias = -((place[:, None] - place[None]) ** 2)[None, None]
    x = torch.zeros(1, 1, N, 4)
    found = advise(recording_of(regard.AttentionMap.of(x, x, regard.Causal(), bias=bias)))
    assert found.heads[0].kind == "window 3"
    assert found.pairs < 0.05


def test_a_head_that_looks_at_a_few_keys_gets_these_keys():
    bias = torch.zeros(1, 1, N, N)
    bias[..., [20, 90]] = 12.0
    bias[..., :30] += torch.arange(30.0) / 10
    x = torch.zeros(1, 1, N, 4)
    found = advise(recording_of(regard.AttentionMap.of(x, x, regard.Causal(), bias=bias)), 0.95)
    assert "keys + window 32" in found.heads[0].kind
    assert found.pairs < 0.6


def test_a_head_that_looks_everywhere_alike_keeps_its_own_mask():
    x = torch.zeros(1, 1, N, 4)
    found = advise(recording_of(regard.AttentionMap.of(x, x)), 1.0)
    assert found.heads[0].kind == "all pairs"
    assert found.mask(0, 0) is None
    assert found.pairs == 1.0


def test_advice_is_a_table_and_plain_data_with_masks_that_can_be_read_back(recording):
    found = advise(recording, 0.9, layers=[1])
    assert found.table().row_count == 1
    assert found.table(heads=True).row_count == 4
    for one in json.loads(json.dumps(found.to_dict(), allow_nan=False))["heads"]:
        if one["mask"] is not None:
            mask = Mask.from_json(one["mask"])
            assert torch.equal(mask.dense(N, N), found.mask(one["layer"], one["head"]).dense(N, N))


@pytest.mark.parametrize("share", [0.0, 1.5, -1.0])
def test_a_share_that_is_none_is_refused(recording, share):
    with pytest.raises(StatisticError, match=f"^share is {share}; wanted a share of the attention"):
        advise(recording, share)


def test_a_layer_that_was_not_recorded_is_refused(recording):
    with pytest.raises(StatisticError, match=r"^layer 7 was not recorded; recorded were \[0, 1\]"):
        advise(recording, layers=[7])
