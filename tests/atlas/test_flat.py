"""The flat head is what a dense even spread is."""

from __future__ import annotations

import pytest
import torch

from regard import Causal, Dense, Padding, Window
from regard.atlas.flat import Flat

RAGGED = Padding(torch.tensor([False, False, True, True, True, False, True, True, True]))
MASKS = [None, Causal(), Causal() & Window(3), RAGGED, Causal() & RAGGED, Causal(shift=-1)]


def even(mask, q, k):
    allowed = torch.ones(q, k, dtype=torch.bool) if mask is None else mask.dense(q, k).view(q, k)
    return allowed.double() / allowed.sum(-1, keepdim=True).clamp(min=1), allowed


@pytest.mark.parametrize(("q", "k"), [(9, 9), (1, 9), (4, 9)])
@pytest.mark.parametrize("mask", MASKS, ids=repr)
def test_every_sum_is_that_of_the_dense_map(mask, q, k):
    flat, (weights, allowed) = Flat(mask, 1, q, k), even(mask, q, k)
    distance = (torch.arange(q)[:, None] + k - q - torch.arange(k)).flatten() + q - 1
    sums = torch.zeros(q + k - 1, dtype=torch.float64).index_add_(0, distance, weights.flatten())
    counts = torch.zeros(q + k - 1, dtype=torch.long).index_add_(0, distance, allowed.flatten().long())
    assert torch.allclose(flat.distance_sums[0], sums, atol=1e-6)
    assert torch.equal(flat.distance_counts[0], counts)
    assert torch.allclose(flat.key_sums[0], weights.sum(0), atol=1e-6)
    assert torch.equal(flat.key_counts[0], allowed.sum(0))
    assert torch.equal(flat.visible[0], allowed.sum(-1))
    assert int(flat.live) == int((allowed.sum(-1) > 0).sum())
    assert torch.allclose(flat.map.dense()[0, 0].double(), weights, atol=1e-6)
    away = (torch.arange(q)[:, None] + k - q - torch.arange(k)).abs() >= 3
    assert torch.equal(flat.far(3, 2)[0], (allowed & away)[:, 2:].sum(-1))


def test_heads_with_different_masks_have_their_own_results():
    allowed = torch.ones(1, 2, 5, 5, dtype=torch.bool).tril()
    allowed[:, 1, :, 1:] = False
    from regard import AttentionMap

    seen = AttentionMap.of(torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 4), mask=Dense(allowed))
    assert Flat.beside(seen).visible.tolist() == [[1, 2, 3, 4, 5], [1, 1, 1, 1, 1]]
