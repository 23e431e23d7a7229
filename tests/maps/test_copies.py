"""Copies and pickles of maps and observations read like the originals."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from maps.cases import cases, tensors
from regard import AttentionMap, Causal, ColumnMass, Entropy, TopK, observe
from regard.errors import MapError
from regard.scores import RelativeBias

CASES = {name: case for name, case in cases().items() if name != "score mod"}


def pickled(x):
    return pickle.loads(pickle.dumps(x))


ways = pytest.mark.parametrize(
    "again", [copy.deepcopy, copy.copy, pickled], ids=["deepcopy", "copy", "pickle"]
)


@ways
@pytest.mark.parametrize("name", CASES)
def test_a_copied_map_reads_like_the_map(name, again):
    case = CASES[name]
    lazy = AttentionMap.of(case.q, case.k, case.mask, **case.options)
    row = lazy.row(0, 0, 3)
    other = again(lazy)
    assert torch.equal(other.row(0, 0, 3), row)
    assert torch.equal(other.lse, lazy.lse)


@ways
def test_a_copied_observation_reads_like_the_observation(again):
    q, k, v = tensors(1, 4, 2, 9, 9)
    seen = observe(q, k, v, Causal(), stats=[Entropy(), TopK(2), ColumnMass()])
    other = again(seen)
    for ours, theirs in ((seen.out, other.out), (seen.lse, other.lse), (seen.entropy, other.entropy)):
        assert torch.equal(ours, theirs)
    assert torch.equal(seen.top_k.key, other.top_k.key)
    assert torch.equal(seen.map.dense(), other.map.dense())
    assert repr(seen) == repr(other)


@pytest.mark.parametrize("again", [copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
def test_a_copy_has_tensors_of_its_own(again):
    q, k, v = tensors(1, 2, 2, 6, 6)
    bias = torch.randn(1, 1, 6, 6)
    seen = observe(q, k, v, bias=bias)
    other, before = again(seen), seen.map.dense()
    for x in (q, k, v, bias):
        x.zero_()
    assert torch.equal(other.map.dense(), before)
    with pytest.raises(MapError, match="was changed in place"):
        seen.map.dense()
    other.map.problem.k.zero_()
    with pytest.raises(MapError, match="was changed in place"):
        other.map.dense()


@pytest.mark.parametrize("again", [copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
def test_an_observation_with_a_graph_is_copied_without_it(again):
    q, k, v = tensors(1, 2, 2, 6, 6)
    table = torch.randn(8, 2, requires_grad=True)
    scaled = q.requires_grad_() * 2
    seen = observe(scaled, k, v, bias=RelativeBias(table.T), sink=(table * 2)[0])
    other = again(seen)
    torch.testing.assert_close(other.map.dense(), seen.map.dense())
    assert torch.equal(other.out, seen.out)
    assert other.out.grad_fn is None
    assert seen.out.grad_fn is not None


@pytest.mark.parametrize("again", [copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
def test_a_stale_map_is_not_copied(again):
    q, k, v = tensors(1, 1, 1, 6, 6)
    seen = observe(q, k, v)
    k += 1
    with pytest.raises(MapError, match="k was changed in place after this map was made"):
        again(seen.map)
