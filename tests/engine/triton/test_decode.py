"""A few queries against many keys, split and merged."""

from __future__ import annotations

import pytest
import torch

from engine.triton.test_forward import agree, close, leaves
from engine.triton.test_second_pass import same
from regard import observe
from regard.engine.inputs import Options, problem_of
from regard.engine.triton.decode import launch as decode
from regard.engine.triton.second_pass.sweep import top_keys
from regard.masks import Causal, Window
from regard.stats import MaxScore, SinkMass, TopK


@pytest.mark.parametrize("mask", [None, Causal(), Causal() & Window(40)], ids=["none", "causal", "window"])
@pytest.mark.parametrize("q", [1, 3])
def test_a_decode_step_gives_what_the_torch_backend_gives(q, mask, device):
    agree(leaves(device, q, 130, batch=2, heads=4, kv_heads=2), mask)


@pytest.mark.parametrize(
    "options", [{"softcap": 2.0}, {"sink": torch.tensor([1.0, -1.0])}], ids=["soft cap", "sink"]
)
def test_options_work_while_decoding(options, device):
    moved = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    agree(leaves(device, 2, 70, batch=1, heads=2, kv_heads=1), Causal(), **moved)


def test_the_heaviest_keys_of_a_decode_step(device):
    given = leaves(device, 2, 130, batch=1, heads=2, kv_heads=1)
    ours, truth = (observe(**given, stats=[TopK(5)], backend=b) for b in ("triton", "torch"))
    same(ours.top_k, truth.top_k)


def test_the_heaviest_keys_of_a_step_that_was_not_asked_for_them(device):
    given = leaves(device, 2, 130, batch=1, heads=2, kv_heads=1)
    truth = observe(**given, stats=[TopK(5)], backend="torch")
    q, k, v = (given[name].detach() for name in "qkv")
    same(top_keys(problem_of(q, k, v, Options()), truth.lse, 5), truth.top_k)


@pytest.mark.parametrize(("k", "mask"), [(20, None), (130, Causal() & Window(10)), (130, Causal(shift=-120))])
def test_rows_with_fewer_tiles_than_keys_asked_for_list_no_key_twice(k, mask, device):
    given = leaves(device, 2, k, batch=1, heads=4, kv_heads=2)
    ours, truth = (observe(**given, mask=mask, stats=[TopK(8)], backend=b) for b in ("triton", "torch"))
    same(ours.top_k, truth.top_k)


def test_garbage_among_the_hidden_keys_of_a_decode_step_stays_there(device):
    given = leaves(device, 2, 130, batch=1, heads=2, kv_heads=1)
    clean = observe(**given, mask=Causal() & Window(40), backend="triton").out
    given["v"][:, :, :60] = torch.nan
    assert torch.equal(observe(**given, mask=Causal() & Window(40), backend="triton").out, clean)
    given["v"][:, :, 120] = torch.nan
    assert observe(**given, mask=Causal() & Window(40), backend="triton").out.isnan().all()


def test_keys_are_split_and_merged(device, monkeypatch):
    given = leaves(device, 1, 300, batch=1, heads=1)
    monkeypatch.setattr(decode, "PER_PROCESSOR", 7)
    ours, truth = (observe(**given, backend=b) for b in ("triton", "torch"))
    close(ours.out, truth.out)
    close(ours.entropy, truth.entropy)
    close(ours.sink_mass, truth.sink_mass)
    close(ours.max_score.value, truth.max_score.value)
    assert ours.max_score.key.equal(truth.max_score.key)


def test_of_equal_scores_the_first_key_is_the_peak_and_the_heaviest(device, monkeypatch):
    monkeypatch.setattr(decode, "PER_PROCESSOR", 7)
    monkeypatch.setattr(decode, "PIECE", 64)
    given = leaves(device, 1, 300, batch=1, heads=2)
    given["k"] = torch.zeros_like(given["k"])
    seen = observe(**given, stats=[MaxScore(), TopK(3)], backend="triton")
    assert seen.max_score.key.unique().tolist() == [0]
    assert seen.top_k.key.flatten(0, 2).unique(dim=0).tolist() == [[0, 1, 2]]


def test_the_heaviest_keys_are_found_in_several_rounds(device, monkeypatch):
    monkeypatch.setattr(decode, "PIECE", 32)
    given = leaves(device, 2, 300, batch=1, heads=2, kv_heads=1)
    ours, truth = (observe(**given, stats=[TopK(8)], backend=b) for b in ("triton", "torch"))
    same(ours.top_k, truth.top_k)


def test_a_query_that_sees_nothing_has_no_peak_and_nothing_on_the_first_keys(device):
    given = leaves(device, 3, 130, batch=1, heads=1)
    stats = [MaxScore(), SinkMass(2), TopK(2)]
    seen = observe(**given, mask=Causal(shift=-129), stats=stats, backend="triton")
    assert seen.max_score.key[0, 0, :2].tolist() == [-1, -1]
    assert seen.max_score.value[0, 0, :2].tolist() == [-torch.inf] * 2
    assert seen.sink_mass[0, 0].tolist() == [0.0, 0.0, 1.0]
    assert seen.top_k.key[0, 0].tolist() == [[-1, -1], [-1, -1], [0, -1]]


@pytest.mark.parametrize("q", [2, 20])
@pytest.mark.parametrize("first", [1, 50, 1000])
def test_two_counts_of_first_keys_can_be_asked_for_at_once(first, q, device):
    given = leaves(device, q, 130, batch=2, heads=4, kv_heads=2)
    stats = [SinkMass(first), SinkMass(7).named("seven")]
    ours, truth = (observe(**given, mask=Causal(), stats=stats, backend=b) for b in ("triton", "torch"))
    close(ours.sink_mass, truth.sink_mass)
    close(ours.seven, truth.seven)
