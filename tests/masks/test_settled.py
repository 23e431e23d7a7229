"""Masks from functions whose answers cannot change are kept; here every other is found out."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.harness import qkv
from oracle import assert_as_good_as_eager, dense_attention
from regard import Causal, Dense, Where, Window, attention
from regard.masks import Mask
from regard.masks.settled import COPIED, settled

WIDTH = 3
TABLE = torch.arange(400) // 50


def by_table(b, h, q_idx, kv_idx):
    return TABLE[q_idx] == TABLE[kv_idx]


def narrow(b, h, q_idx, kv_idx):
    return abs(q_idx - kv_idx) < WIDTH


def both(b, h, q_idx, kv_idx):
    return by_table(b, h, q_idx, kv_idx) & narrow(b, h, q_idx, kv_idx=kv_idx)


def with_default(b, h, q_idx, kv_idx, width=5, *, step=2):
    shift = q_idx - kv_idx
    return (shift.abs() < width) | ((shift // step) % 2 == 0)


def captured(width, table):
    return lambda b, h, q, k: (q - k < width * (h + 1)) & table[k] & (k <= q)


FUNCTIONS = {
    "strided": lambda b, h, q, k: (q - k) % 3 == 0,
    "by head": lambda b, h, q, k: (k <= q) & ((q - k) % (h + 1) == 0),
    "by table": by_table,
    "narrow": narrow,
    "both": both,
    "defaults": with_default,
    "captured": captured(2, torch.arange(400) % 7 != 0),
    "quotient": lambda b, h, q, k: (q - k) / 7 < 3.5,
}


class Kept:
    width = 3

    def mask(self, b, h, q, k):
        return q - k < self.width


def printing(b, h, q, k):
    print(end="")
    return q >= k


def looping(b, h, q, k):
    for _ in range(2):
        k = k + 1
    return q >= k


def branching(b, h, q, k):
    return q >= k if WIDTH > 2 else q > k


def in_place(b, h, q, k):
    COUNT.add_(1)
    return q - k < COUNT


def adding(b, h, q, k):
    shift = COUNT
    shift += 1
    return q - k < shift


def writing(b, h, q, k):
    global WIDTH
    WIDTH = 3
    return q - k < WIDTH


def random_width(b, h, q, k):
    return q - k < random.randint(1, 9)


def recursive(b, h, q, k):
    return recursive(b, h, q, k - 1)


COUNT = torch.ones((), dtype=torch.int64)
WIDTHS = [3]
LONG = torch.zeros(COPIED + 1, dtype=torch.int64)
REAL = torch.tensor(3.5)
MINUS = -0.0
NOT_KNOWN = {
    "list": lambda b, h, q, k: q - k < WIDTHS[0],
    "object": Kept().mask,
    "partial": partial(with_default, width=2),
    "torch": lambda b, h, q, k: torch.where(q > k, True, False),
    "random": lambda b, h, q, k: torch.rand(()) < (q + k),
    "Python's random": random_width,
    "print": printing,
    "loop": looping,
    "branch": branching,
    "in place": in_place,
    "adding": adding,
    "global": writing,
    "inner function": lambda b, h, q, k: (lambda: q >= k)(),
    "recursive": recursive,
    "unknown name": lambda b, h, q, k: q - k < nowhere,
    "long tensor": lambda b, h, q, k: q - k < LONG[0],
    "real tensor": lambda b, h, q, k: q - k < REAL,
    "minus zero": lambda b, h, q, k: (q - k) / MINUS < 0,
    "product": lambda b, h, q, k: (q @ k) > 0,
    "data": lambda b, h, q, k: q.data >= k,
}


def dense(mask: Mask, n: int = 40) -> torch.Tensor:
    return mask.bind(2, 4).dense(n)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_settled_mask_is_the_mask(name):
    mask = Where(FUNCTIONS[name]).bind(2, 4)
    known = settled(mask)
    assert known is not None
    assert known.repeatable
    assert torch.equal(dense(known), dense(mask))
    again = settled(Where(FUNCTIONS[name]).bind(2, 4))
    assert again == known


@pytest.mark.parametrize("name", NOT_KNOWN)
def test_what_may_change_is_not_settled(name):
    assert settled(Where(NOT_KNOWN[name]).bind(2, 4)) is None
    assert settled(Causal() & Where(NOT_KNOWN[name]).bind(2, 4)) is None


def test_joins_are_settled_part_by_part():
    mask = (Causal() & Where(narrow)) | ~Where(by_table)
    assert torch.equal(dense(settled(mask)), dense(mask))
    assert settled(Causal() & Window(2)) == Causal() & Window(2)


class Own(Where):
    """A subclass, which may answer otherwise."""


def test_subclasses_are_not_settled():
    assert settled(Own(narrow)) is None


def test_modes_and_transforms_see_every_call():
    with torch.device("cpu"):
        assert settled(Where(narrow)) is None
    assert settled(Where(narrow)) is not None


def changes():
    """Pairs of a mask and a function that changes what it reads."""
    width, table = 2, torch.arange(400) % 7 != 0

    def inside(b, h, q, k):
        return (q - k < width) & table[k]

    def widen():
        nonlocal width
        width += 5

    def other_code():
        inside.__code__ = (lambda b, h, q, k: (q - k >= width) & table[k]).__code__

    def defaults():
        with_default.__defaults__ = (with_default.__defaults__[0] + 3,)

    def names():
        globals()["WIDTH"] += 2

    def inner():
        globals()["narrow"].__code__ = (lambda b, h, q_idx, kv_idx: q_idx > kv_idx - WIDTH).__code__

    numbers = table.numpy()
    yield inside, widen
    yield inside, other_code
    yield inside, lambda: table.logical_not_()
    yield inside, lambda: numbers.__setitem__(slice(2, 6), True)
    yield inside, lambda: table.data.logical_not_()
    yield with_default, defaults
    yield narrow, names
    yield both, names
    yield both, lambda: TABLE.add_((torch.arange(400) > 5).long())
    yield both, inner


@pytest.mark.parametrize("n", [16, 300])
def test_changes_of_what_a_function_reads_are_seen(n):
    saved = WIDTH, TABLE.clone(), narrow.__code__, with_default.__defaults__
    try:
        x = qkv(n, n)
        for function, change in changes():
            mask = Where(function)
            for _ in range(3):
                found = attention(**x, mask=mask)
            torch.testing.assert_close(found, attention(**x, mask=Dense(mask.bind(2, 4).dense(n))))
            change()
            changed = attention(**x, mask=mask)
            torch.testing.assert_close(changed, attention(**x, mask=Dense(mask.bind(2, 4).dense(n))))
            assert not torch.equal(found, changed), (function, change)
    finally:
        globals()["WIDTH"] = saved[0]
        TABLE.copy_(saved[1])
        narrow.__code__, with_default.__defaults__ = saved[2:]


@pytest.mark.parametrize("n", [16, 300])
def test_a_function_that_cannot_change_is_called_once(n, monkeypatch):
    asked = []
    allows = Where.allows

    def counting(self, q, k):
        asked.append(1)
        return allows(self, q, k)

    monkeypatch.setattr(Where, "allows", counting)
    number = random.randint(10**6, 10**9)
    known, unknown = (lambda b, h, q, k: q - k < number % 5), lambda b, h, q, k: q - k < [number % 5][0]
    x = qkv(n, n)
    for function, most in ((known, 0), (unknown, None)):
        attention(**x, mask=Where(function))
        asked.clear()
        attention(**x, mask=Where(function))
        assert len(asked) == 0 if most == 0 else len(asked) > 0


def test_a_quotient_follows_the_default_dtype():
    mask = Where(lambda b, h, q, k: (q - k) / 3 < 1.0)
    one = settled(mask)
    torch.set_default_dtype(torch.float64)
    try:
        assert settled(mask) != one
    finally:
        torch.set_default_dtype(torch.float32)
    assert settled(mask) == one


@given(
    st.sampled_from(sorted(FUNCTIONS)),
    st.sampled_from([1, 7, 16, 33, 257]),
    st.sampled_from([1, 7, 33, 300]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_attention_under_a_settled_mask_is_that_under_its_matrix(name, q, k, dtype):
    x = qkv(q, k, dtype=dtype)
    mask = Where(FUNCTIONS[name])
    allowed = Dense(mask.bind(2, 4).dense(q, k))
    for _ in range(2):
        found = attention(**x, mask=mask)
        exact, eager = (
            dense_attention(**x, allowed=allowed.allowed, dtype=each).out for each in (torch.float64, dtype)
        )
        assert_as_good_as_eager(found, eager, exact)
