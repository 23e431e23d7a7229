"""Reports of scores that are not numbers, when and how often they come."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from regard import Causal, observe
from regard.maps import overflow


@pytest.fixture(autouse=True)
def _nothing_waits(monkeypatch):
    monkeypatch.setattr(overflow, "_waiting", [])


def pending(lost: int, done: bool) -> overflow.Pending:
    lse = torch.tensor([torch.nan] * lost + [0.0] * (10 - lost)).view(1, 1, 10)
    return overflow.Pending(lse.max()[None, None], lse, torch.float32, lambda: done)


def test_what_has_not_arrived_is_not_waited_for():
    overflow._waiting.extend([pending(0, True), pending(3, False)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        overflow.settle(wait=False)
    assert len(overflow._waiting) == 1


def test_what_has_arrived_is_said_once():
    overflow._waiting.append(pending(3, True))
    with pytest.warns(UserWarning, match="3 of 10 rows have scores that are NaN or overflow"):
        overflow.settle(wait=False)
    assert overflow._waiting == []


def test_the_next_call_says_what_the_last_one_found():
    overflow._waiting.append(pending(1, True))
    with pytest.warns(UserWarning, match="1 of 10 rows"):
        overflow.report(torch.zeros(1, 1, 4), {}, False, torch.float32)


def test_who_brought_the_numbers_is_free_for_the_next_call(monkeypatch):
    monkeypatch.setattr(overflow, "_couriers", {(torch.device("cpu"), torch.float32, torch.Size([1, 1])): []})
    arrived = pending(0, True)
    courier = overflow._Courier(arrived.largest, event=None)
    overflow._waiting.append(replace(arrived, by=courier))
    overflow.settle(wait=False)
    assert overflow._couriers == {(torch.device("cpu"), torch.float32, torch.Size([1, 1])): [courier]}


def test_only_flagged_rows_are_looked_at(monkeypatch):
    looked = []
    monkeypatch.setattr(overflow, "_send", lambda largest, lse, kept_in: looked.append(largest))
    fine, bad = pending(0, True), pending(3, True)
    for flags, some in (([0, 0], fine), ([0, 1], bad)):
        overflow._waiting.append(replace(some, largest=torch.tensor(flags), are_flags=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        overflow.settle(wait=False)
    assert len(looked) == 1
    assert looked[0].isnan().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the numbers arrive late on a GPU only")
def test_rows_of_a_gpu_are_reported_by_the_next_call():
    q, k, v = torch.randn(3, 1, 2, 256, 64, device="cuda", dtype=torch.bfloat16).unbind()
    q[0, 0, 5] = torch.nan
    for _ in range(5):
        observe(q, k, v, Causal())
        with pytest.warns(UserWarning, match="1 of 512 rows"):
            overflow.settle()
