"""Evidence for a kind: the dense weights, filtered by what the kind says it looks for, give the same."""

from __future__ import annotations

import pytest
import torch

import regard
from atlas.builders import pointer
from regard.atlas.evidence import EVIDENCE, evidence
from regard.atlas.repeats import ROWS
from regard.atlas.tally import near_of
from regard.atlas.words import Words
from regard.errors import StatisticError
from regard.masks import Mask

N = ROWS + 37


@pytest.fixture(scope="module")
def words() -> Words:
    ids = torch.randint(0, 40, (N,), generator=torch.Generator().manual_seed(1))
    return Words(ids, ids, delimiters=ids % 5 == 0)


def head(mask: Mask | None, q: int = N) -> regard.AttentionMap:
    made = torch.Generator().manual_seed(0)
    return regard.AttentionMap.of(
        3 * torch.randn(1, 1, q, 8, generator=made), torch.randn(1, 1, N, 8, generator=made), mask=mask
    )


def wanted(kind: str, words: Words, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
    """The cells a kind looks for, by its definition, all at once."""
    ids, distance = words.k_ids, rows[:, None] - cols[None]
    assert ids is not None
    assert words.delimiters is not None
    same = ids[rows][:, None] == ids[None]
    before = torch.cat(
        [torch.zeros(len(rows), 1, dtype=torch.bool), same[:, :-1] & (distance[:, :-1] > 0)], 1
    )
    return {
        "previous token": distance == 1,
        "self": distance == 0,
        "first-token sink": (cols == 0).expand(len(rows), -1),
        "duplicate token": same & (distance > 0),
        "induction": before,
        "local": distance.abs() < near_of(N),
        "delimiter": words.delimiters & (distance != 0) & (cols > 0),
    }[kind]


@pytest.mark.parametrize(
    "kind", [kind for kind in EVIDENCE if kind not in ("strided", "uniform", "retrieval", "alignment")]
)
@pytest.mark.parametrize("queries", [N, 65])
def test_evidence_is_what_the_dense_map_holds(kind, queries, words):
    seen = head(regard.Causal(), queries)
    dense = seen[0, 0]
    rows, cols = torch.arange(N - queries, N), torch.arange(N)
    match = wanted(kind, words, rows, cols) & (rows[:, None] >= cols)
    found = evidence(seen, kind, words=Words(words.q_ids[-queries:], words.k_ids, words.delimiters))
    hidden = torch.where(match, dense, -1.0)
    assert torch.equal(found.able, match.any(-1))
    torch.testing.assert_close(found.weight, (dense * match).sum(-1))
    torch.testing.assert_close(found.best[found.able], hidden.amax(-1)[found.able])
    assert torch.equal(found.hit, found.able & (hidden.argmax(-1) == dense.argmax(-1)))
    assert found.step == 1


def test_places_are_the_heaviest_cells_and_name_the_earlier_token(words):
    seen = head(regard.Causal())
    found = evidence(seen, "induction", words=words)
    places = found.places(7)
    assert len(places) == 7
    assert [place.weight for place in places] == sorted((place.weight for place in places), reverse=True)
    assert places[0].weight == pytest.approx(float(found.best.max()))
    for query, key, weight, source in places:
        assert source == key - 1 < query
        assert words.k_ids[source] == words.k_ids[query]
        assert weight == pytest.approx(float(seen[0, 0, query, key]))


def test_bins_along_the_text_average_to_the_whole(words):
    found = evidence(head(regard.Causal()), "first-token sink", words=words)
    bins = found.along(5)
    assert len(bins) == 5
    one = found.along(1)[0]
    assert one == pytest.approx(((N - 1) / 2, found.mean, found.hits / found.queries))


def test_a_window_hides_the_first_token_from_late_queries():
    found = evidence(head(regard.Causal() & regard.Window(9)), "first-token sink")
    assert found.able.nonzero().flatten().tolist() == list(range(9))


def test_a_comb_is_found_at_its_teeth():
    n, stride = 96, 6
    rows = torch.arange(n)
    bias = torch.where((rows[:, None] - rows[None]) % stride == 2, 0.0, -9.0)
    x = torch.zeros(1, 1, n, 4)
    found = evidence(regard.AttentionMap.of(x, x, mask=regard.Causal(), bias=bias), "strided")
    assert found.looks_for == "every 6th key: distances 2, 8, …"
    assert found.mean > 0.9
    assert {(query - key) % stride for query, key, _, _ in found.places(50)} == {2}


def test_an_even_head_is_even_and_has_no_places():
    x = torch.zeros(1, 1, 31, 4)
    found = evidence(regard.AttentionMap.of(x, x, mask=regard.Causal()), "uniform")
    assert found.mean == pytest.approx(1.0)
    assert found.places(5) == []


def test_retrieval_names_far_keys_only(words):
    found = evidence(head(regard.Causal()), "retrieval", words=words)
    assert found.hits > 0
    assert all(query - key >= 4 * near_of(N) for query, key, _, _ in found.places(N))


def test_retrieval_is_the_passage_that_comes_again_where_the_head_finds_it():
    ids = torch.randperm(600)[:N]
    ids[-25:] = ids[20:45]
    targets = torch.full((N,), -1)
    targets[-25:] = torch.arange(21, 46)
    q, k = pointer(targets)
    seen = regard.AttentionMap.of(q[None, None], k[None, None], mask=regard.Causal(), scale=1.0)
    found = evidence(seen, "retrieval", words=Words(ids, ids))
    far = 4 * near_of(N)
    assert (
        found.looks_for
        == f"the token that comes next, where it followed the same 6 tokens {far} or more before"
    )
    # The first five have no passage of six yet, and after the last nothing comes.
    assert found.able.nonzero().flatten().tolist() == list(range(N - 25 + 5, N - 1))
    assert found.hits == found.queries == 19
    assert all(query - key == N - 25 - 21 for query, key, _, _ in found.places(N))


def test_of_a_long_text_queries_are_sampled_evenly(words, monkeypatch):
    whole = evidence(head(regard.Causal()), "delimiter", words=words)
    monkeypatch.setattr("regard.atlas.evidence.CELLS", N * int(words.delimiters[1:].sum()) // 2)
    found = evidence(head(regard.Causal()), "delimiter", words=words)
    assert found.step > 1
    torch.testing.assert_close(found.weight[:: found.step], whole.weight[:: found.step])
    assert found.queries <= -(-N // found.step)


def test_evidence_that_cannot_be_found_says_why():
    seen = head(regard.Causal())
    with pytest.raises(
        StatisticError, match="no evidence for 'nonsense'; there is some for 'previous token'"
    ):
        evidence(seen, "nonsense")
    with pytest.raises(StatisticError, match="no token ids were given: repeats cannot be found"):
        evidence(seen, "induction")
    with pytest.raises(StatisticError, match="two texts"):
        evidence(head(None), "self", role="cross")
