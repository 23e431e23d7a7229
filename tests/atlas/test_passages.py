"""Passages that come again, by their definition; and heads that find them, or cannot."""

from __future__ import annotations

import pytest
import torch

from atlas.builders import pointer
from regard import AttentionMap, Causal, Window
from regard.atlas import cards_of
from regard.atlas.passages import passages
from regard.atlas.words import Words
from regard.masks import Mask

CAUSAL = Causal()
LENGTH, PERIOD, N = 6, 300, 512


def twice() -> torch.Tensor:
    """Tokens that come again after PERIOD others."""
    ids = torch.randperm(4000, generator=torch.Generator().manual_seed(5))[:N]
    ids[PERIOD:] = ids[: N - PERIOD]
    return ids


def found(ids: torch.Tensor, far: int, length: int) -> set[tuple[int, int]]:
    queries, keys = passages(ids, far, length)
    pairs = (queries[:, None] == keys).nonzero().tolist()
    return {(query, key) for query, key in pairs if key < query}


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 3, 65])
def test_pairs_are_those_of_the_definition(n, length):
    ids, far = torch.randint(0, 3, (n,)), 7
    tokens = ids.tolist()
    wanted = set()
    for query in range(length - 1, n - 1):
        said = tokens[query - length + 1 : query + 2]
        keys = [key for key in range(length, query + 1) if tokens[key - length : key + 1] == said]
        if keys and query + 1 - keys[-1] >= far:
            wanted |= {(query, key) for key in keys}
    assert found(ids, far, length) == wanted


def test_the_last_token_asks_for_nothing():
    assert passages(torch.tensor([1, 2, 1, 2]), 1, 1)[0][-1] < 0


def card_of(targets: torch.Tensor, mask: Mask = CAUSAL):
    q, k = pointer(targets)
    ids = twice()
    seen = AttentionMap.of(q[None, None], k[None, None], mask=mask, scale=1.0)
    (card,) = cards_of(seen, words=Words(ids, ids))
    return card


def test_a_head_that_finds_the_passage_again_retrieves():
    finding = card_of((torch.arange(N) - PERIOD + 1).clamp(min=-1)).findings["retrieval"]
    assert finding.found
    assert finding.queries == N - PERIOD - LENGTH
    assert finding.weight == pytest.approx(1.0, abs=0.01)
    assert finding.evidence.startswith(
        "1.00 of the weight is on the token that comes next, where it followed"
    )


def test_a_head_that_finds_another_place_does_not_retrieve_the_passage():
    finding = card_of((torch.arange(N) - PERIOD - 1).clamp(min=-1)).findings["retrieval"]
    assert not finding.found
    assert finding.weight is not None
    assert finding.weight < 0.01


def test_a_window_that_hides_the_passage_leaves_nothing_to_find():
    finding = card_of((torch.arange(N) - 1).clamp(min=0), Causal() & Window(64)).findings["retrieval"]
    assert not finding.found
    assert "the token that comes next" not in finding.evidence


def test_a_passage_that_also_stands_near_asks_for_nothing_far():
    assert found(torch.arange(20).repeat(4), 30, 2) == set()
