"""Two recordings beside each other: common tokens, differences of maps, distances of heads."""

from __future__ import annotations

import pytest
import torch
from fastapi.testclient import TestClient

import regard
from regard.viewer import Settings, create_app
from regard.viewer.comparing import SAMPLED, align, difference, row_distances
from regard.viewer.heads import Head
from regard.viewer.session import Session
from viewer.conftest import grid
from viewer.samples import layer, recording

ROLE = "/stacks/decoder"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A server with two recordings; the second text lacks the start of the first, and one token differs."""
    session = Session(Settings(cache=tmp_path_factory.mktemp("cache")))
    first = recording(layer(0, 97, 97, regard.Causal()), layer(1, 97, 97, regard.Causal()))
    second = recording(layer(0, 90, 90, regard.Causal()), layer(3, 90, 90, regard.Causal()))
    second.token_ids["decoder"] = first.token_ids["decoder"][:, 7:].clone()
    assert second.token_ids["decoder"][0, 5] != 3
    second.token_ids["decoder"][0, 5] = 3
    names = [session.library.add(one, str(i)).id for i, one in enumerate((first, second))]
    with TestClient(create_app(session=session), base_url="http://127.0.0.1") as client:
        yield client, names, (first, second)


def words(text: str) -> list[str]:
    return text.split()


def test_equal_tokens_are_paired_in_order():
    assert align(words("a b c d"), words("a x c d e")).runs == [(0, 0, 1), (2, 2, 2)]
    assert align(words("a b"), words("c d")).count == 0
    assert align([], words("a")).count == 0
    same = align(words("a b c"), words("a b c"))
    assert same.runs == [(0, 0, 3)]
    assert same.places(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("n", [63, 5000])
def test_pairs_are_increasing_and_equal_whatever_changed_in_the_middle(n):
    made = torch.Generator().manual_seed(n)
    first = [str(i) for i in torch.randint(0, 50, (n,), generator=made).tolist()]
    second = [*first[: n // 3], "new", "words", *first[n // 3 + 5 :]]
    found = align(first, second)
    a, b = found.places(0), found.places(1)
    assert [first[i] for i in a] == [second[j] for j in b]
    assert bool((a.diff() > 0).all() and (b.diff() > 0).all())
    assert found.count >= n - 6


def heads(n: int) -> tuple[Head, Head]:
    made = torch.Generator().manual_seed(2)
    maps = [
        regard.AttentionMap.of(*(3 * torch.randn(2, 1, 1, n, 8, generator=made)), mask=regard.Causal())
        for _ in range(2)
    ]
    return Head.of(maps[0], 0), Head.of(maps[1], 0)


@pytest.mark.parametrize("size", [1000, 64, 7])
def test_a_difference_is_the_dense_one_and_keeps_the_largest_of_a_block(size):
    n = 301
    both = heads(n)
    aligned = align(["x", *map(str, range(n - 1))], [*map(str, range(n - 1)), "y"])
    a, b = (one.map[0, 0][aligned.places(side)][:, aligned.places(side)] for side, one in enumerate(both))
    rows, cols = range(3, 290), range(0, 250)
    dense = (a - b)[3:290, :250]
    found = difference(both, aligned, aligned, rows, cols, size)
    block = max(1, -(-287 // size))
    assert found.shape == (-(-287 // block), -(-250 // block))
    for r, c in ((0, 0), (found.shape[0] - 1, found.shape[1] - 1), (2, 1)):
        part = dense[r * block : (r + 1) * block, c * block : (c + 1) * block].flatten()
        assert float(found[r, c]) == pytest.approx(float(part[part.abs().argmax()]), abs=1e-6)


def test_rows_that_share_nothing_are_as_far_apart_as_can_be():
    keys = align(words("a b c"), words("a b d"))
    here, there = torch.tensor([[[1.0, 0, 0]]]), torch.tensor([[[0, 1.0, 0]]])
    assert row_distances((here, there), keys).tolist() == [1.0]
    assert row_distances((here, here), keys).tolist() == [0.0]
    other = torch.tensor([[[0, 0, 1.0]]])
    # Weight on tokens that the other text lacks counts as one key.
    assert row_distances((other, other), keys).tolist() == [0.0]


def test_the_server_compares_what_both_recordings_have(pair):
    client, (a, b), _ = pair
    base = f"/api/recordings/{a}{ROLE}/compare/{b}"
    said = client.get(base).json()
    assert said["keys"] == said["queries"]
    assert said["keys"][-1] == {"first": 13, "second": 6, "length": 84}
    found = client.get(f"{base}/heads").json()
    assert (found["layers"], found["heads"], found["queries"]) == ([0], 4, SAMPLED)
    assert all(0 < x < 1 for x in found["distance"][0])
    swapped = client.get(f"/api/recordings/{b}{ROLE}/compare/{a}/heads").json()
    assert swapped["shared"] == found["shared"]


def test_a_recording_does_not_differ_from_itself(pair):
    client, (a, _), _ = pair
    base = f"/api/recordings/{a}{ROLE}/compare/{a}"
    assert client.get(f"{base}/heads").json()["distance"] == [[0.0] * 4] * 2
    assert not grid(client.get(f"{base}/layers/1/heads/3/difference?q0=0&q1=97&k0=0&k1=97&size=33")).any()


def test_a_difference_of_the_server_is_that_of_the_recordings(pair):
    client, (a, b), (first, second) = pair
    path = f"/api/recordings/{a}{ROLE}/compare/{b}/layers/0/heads/2/difference"
    shown = grid(client.get(f"{path}?q0=0&q1=84&k0=0&k1=84&size=256"))
    runs = client.get(f"/api/recordings/{a}{ROLE}/compare/{b}").json()["keys"]
    places = [
        torch.cat([torch.arange(run[side], run[side] + run["length"]) for run in runs])[:84]
        for side in ("first", "second")
    ]
    dense = [one.maps[0][0, 2][at][:, at] for one, at in zip((first, second), places, strict=True)]
    torch.testing.assert_close(shown, dense[0] - dense[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize(("asked", "status"), [("q0=0&q1=999&k0=0&k1=5", 404), ("q0=5&q1=5&k0=0&k1=5", 404)])
def test_a_rectangle_that_is_not_there_is_a_sentence(pair, asked, status):
    client, (a, b), _ = pair
    answer = client.get(f"/api/recordings/{a}{ROLE}/compare/{b}/layers/0/heads/0/difference?{asked}")
    assert answer.status_code == status
    assert "are in both texts" in answer.json()["error"]
