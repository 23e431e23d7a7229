"""Which keys policies keep, on maps where the answer can be seen."""

from __future__ import annotations

import pytest
import torch

import regard
from regard.errors import StatisticError
from regard.eviction import (
    H2O,
    POLICIES,
    TOVA,
    KeyMaximum,
    Policy,
    RandomKeys,
    Room,
    SinkWindow,
    SnapKV,
    kept_keys,
    policy_named,
)

HEADS, KV_HEADS, N = 4, 2, 40


def kept(policy: Policy, keep: int, seed: int = 0) -> torch.Tensor:
    """What a policy keeps of a random causal map, and that map."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, HEADS, N, 8, generator=generator)
    k = torch.randn(1, KV_HEADS, N, 8, generator=generator)
    seen = regard.observe(q, k, k, regard.Causal(), stats=policy.statistics)
    found = kept_keys(policy, seen.stats, Room(0, KV_HEADS, N, keep))
    return found, seen.map.dense()[0].unflatten(0, (KV_HEADS, -1))


def chosen(scores: torch.Tensor, keep: int) -> torch.Tensor:
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, scores.topk(keep).indices, True)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("keep", [1, 7, N])
def test_a_policy_keeps_exactly_what_there_is_room_for(policy, keep):
    assert kept(policy, keep)[0].sum(-1).tolist() == [keep] * KV_HEADS


def test_heavy_hitters_are_the_keys_of_the_largest_mass_beside_the_recent():
    found, weights = kept(H2O(), 12)
    mass = weights.sum(-2).mean(1)
    mass[:, -6:] = torch.inf
    assert torch.equal(found, chosen(mass, 12))


def test_snapkv_keeps_its_window_and_what_the_window_looks_at():
    found, weights = kept(SnapKV(window=8, smooth=3), 14)
    mass = weights[..., -8:, :].sum(-2).mean(1)
    before = torch.stack([mass[:, max(0, j - 1) : min(j + 2, 32)].sum(-1) / 3 for j in range(32)], -1)
    assert found[:, -8:].all()
    assert torch.equal(found[:, :32], chosen(before, 6))


def test_tova_keeps_what_the_last_query_looks_at_in_all_heads_alike():
    found, weights = kept(TOVA(), 9)
    last = weights[..., -1, :].mean((0, 1))
    last[-1] = torch.inf
    assert torch.equal(found, chosen(last[None], 9).expand(KV_HEADS, -1))


def test_the_maximum_is_over_the_queries_and_the_heads_that_share_a_key():
    found, weights = kept(KeyMaximum(), 9)
    assert torch.equal(found, chosen(weights.amax((1, 2)), 9))


def test_sinks_and_window_keep_both_ends():
    found, _ = kept(SinkWindow(sinks=3), 10)
    assert found[0].nonzero().squeeze(-1).tolist() == [0, 1, 2, *range(N - 7, N)]


def test_random_keys_differ_by_layer_and_not_by_run():
    rooms = [Room(layer, 1, 1000, 500) for layer in (0, 1)]
    first, second = (kept_keys(RandomKeys(), {}, room) for room in rooms)
    assert not torch.equal(first, second)
    assert torch.equal(first, kept_keys(RandomKeys(), {}, rooms[0]))


@pytest.mark.parametrize("keep", [0, 41])
def test_more_keys_than_there_are_cannot_be_kept(keep):
    with pytest.raises(StatisticError, match=f"^{keep} of 40 keys cannot be kept; wanted 1 to 40"):
        kept_keys(SinkWindow(), {}, Room(0, 1, 40, keep))


def test_a_policy_of_ones_own_with_scores_of_another_shape_is_refused():
    class Short(Policy):
        def scores(self, seen, room):
            return torch.zeros(1, 3)

    with pytest.raises(StatisticError, match=r"wanted one for each key of each key head, \(2, 40\)"):
        kept_keys(Short(), {}, Room(0, 2, 40, 4))


def test_an_unknown_policy_is_refused_with_those_there_are():
    with pytest.raises(StatisticError, match="no policy 'h3o'; there are snapkv, h2o, tova, max, sinks"):
        policy_named("h3o")
