"""Mass by position is that of the dense map, and a flat head has an even share everywhere."""

from __future__ import annotations

import pytest
import torch

from atlas.builders import head, recording_of
from regard import AttentionMap, Causal, Window
from regard.atlas import position_profile
from regard.errors import RecordingError, StatisticError


def random_map(n, mask):
    return AttentionMap.of(torch.randn(1, 4, n, 8), torch.randn(1, 2, n, 8), mask=mask)


@pytest.mark.parametrize("queries", [1, 7, 65])
def test_mass_is_that_of_the_dense_map(queries):
    seen = random_map(65, Causal())
    profile = position_profile(recording_of(seen), bins=4, queries=queries)
    dense = seen.dense()[0, :, 65 - queries :].double()
    parts = [dense[..., a:b].sum(-1).mean(-1) for a, b in ((0, 16), (16, 32), (32, 48), (48, 65))]
    assert torch.allclose(profile.mass, torch.stack(parts, -1), atol=1e-6)
    assert torch.allclose(profile.model, profile.mass.mean(0))
    assert profile.queries == queries


@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(20)], ids=repr)
def test_an_even_head_has_what_an_even_spread_has(mask):
    zeros = torch.zeros(1, 2, 65, 4)
    profile = position_profile(recording_of(AttentionMap.of(zeros, zeros, mask=mask)), bins=5)
    assert torch.allclose(profile.mass, profile.even, atol=1e-6)
    assert torch.allclose(profile.lift[profile.even > 0], torch.ones(1, dtype=torch.float64), atol=1e-5)
    assert torch.equal(profile.lift[profile.even == 0], profile.even[profile.even == 0])


def test_a_sink_shows_in_the_first_bin():
    profile = position_profile(recording_of(head("first-token sink", 257)), bins=10)
    assert float(profile.of(0, 0)[0]) == pytest.approx(1, abs=1e-4)
    assert repr(profile) == "Profile(1 heads, 10 bins, last 16 queries, first bin 1.00, last bin 0.00)"


def test_the_bundled_model_has_a_curve_per_head_and_one_of_its_own(told):
    profile = position_profile(told)
    assert profile.mass.shape == (54, 20)
    assert torch.allclose(profile.mass.sum(-1), torch.ones(54, dtype=torch.float64), atol=1e-4)
    data = profile.to_dict()
    assert len(data["heads"]) == 54
    assert data["edges"][0] == 0
    assert data["edges"][-1] == 1
    assert sum(data["model"]) == pytest.approx(1, abs=1e-4)


def test_progress_is_told_of_every_layer():
    told = []
    seen = random_map(33, Causal())
    position_profile(recording_of(seen, seen), bins=3, progress=lambda *done: told.append(done))
    assert told == [(1, 2), (2, 2)]


def test_what_does_not_exist_is_refused_with_the_valid_range():
    recording = recording_of(random_map(33, Causal()))
    with pytest.raises(StatisticError, match="bins is 34, and the decoder has 33 keys; wanted 1 to 33"):
        position_profile(recording, bins=34)
    with pytest.raises(StatisticError, match="queries is 0, and the decoder has 33; wanted 1 to 33"):
        position_profile(recording, queries=0)
    with pytest.raises(RecordingError, match="has no encoder; its stacks are: decoder"):
        position_profile(recording, stack="encoder")
    with pytest.raises(StatisticError, match=r"no layer 0, head 4; it has layers 0 with heads 0 to 3\."):
        position_profile(recording).of(0, 4)
