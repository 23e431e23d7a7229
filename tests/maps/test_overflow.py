"""Reports of scores that are not numbers, when and how often they come."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

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
