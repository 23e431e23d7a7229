"""What is a value, and what is remembered."""

from __future__ import annotations

import copy
import enum
import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch

from regard.memo import Content, Recent, described, is_value, remembered


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass(frozen=True)
class Frozen:
    x: Any
    y: Any = 0


@dataclass(frozen=True)
class Hidden:
    x: Any = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Slotted:
    x: Any


@dataclass
class Open:
    x: Any = 0


class Plain:
    pass


class Below(Frozen):
    """A plain class below a frozen one: its instances take new attributes."""


def marked(x: Any) -> Frozen:
    made = Frozen(1)
    object.__setattr__(made, "mark", x)
    return made


VALUES = [
    None, True, 3, 3.5, 2j, "text", b"bytes", range(3), torch.float16, torch.device("cpu"), torch.Size([2]),
    (1, (2, "x")), frozenset({1, 2}), Colour.RED, Frozen(1), Frozen(Frozen((1, None))), Slotted(1), marked(2),
]  # fmt: skip
OTHERS = [
    [1], {1: 2}, {1}, torch.zeros(2), len, lambda: 0, Plain(), Open(), Below(1), Frozen([1]),
    Frozen(torch.ones(1)), Frozen(Open()), Frozen((1, [2])), Slotted([1]), (1, [2]), frozenset({Plain()}),
    marked([1]), Pair(1, 2),
]  # fmt: skip


@pytest.mark.parametrize("x", VALUES, ids=repr)
def test_what_cannot_change_is_a_value(x):
    assert is_value(x)
    assert is_value(x)


@pytest.mark.parametrize("x", OTHERS, ids=lambda x: type(x).__name__)
def test_what_can_change_is_no_value(x):
    assert not is_value(x)
    assert not is_value(x)


def counted(most: int = 8, **options):
    calls = []

    @remembered(most, **options)
    def ask(*given):
        calls.append(given)
        return None if given == (None,) else len(calls)

    return ask, calls


@pytest.mark.parametrize("x", VALUES, ids=repr)
def test_an_answer_about_a_value_is_kept_and_one_of_another_is_not(x):
    ask, calls = counted()
    assert ask(x) == ask(copy.deepcopy(x))
    assert len(calls) == 1
    ask(x, 1)
    assert len(calls) == 2


@pytest.mark.parametrize("x", OTHERS, ids=lambda x: type(x).__name__)
def test_what_is_no_value_is_asked_again(x):
    ask, calls = counted()
    assert [ask(x), ask(x), ask(1, x)] == [1, 2, 3]
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (1, 1.0), (0, False), (Frozen(1), Frozen(1.0)), (Frozen(1, 2), Frozen(2, 1)),
        ((1,), frozenset({1})),
        (Hidden(1), Hidden(2)), (marked(1), marked(2)), (marked(1), Frozen(1)), (Slotted(1), Frozen(1)),
    ],
    ids=str,
)  # fmt: skip
def test_values_of_another_type_or_attribute_are_other_values(one, other):
    ask, calls = counted()
    assert ask(one) != ask(other)
    assert len(calls) == 2


def test_of_the_answers_the_oldest_goes():
    ask, calls = counted(most=2)
    for x in (1, 2, 1, 3, 1, 2):
        ask(x)
    assert calls == [(1,), (2,), (3,), (2,)]
    ask.forget()
    ask(2)
    assert calls[-2:] == [(2,), (2,)]


def test_what_is_not_to_be_kept_is_asked_again():
    ask, calls = counted(when=lambda x: x < 3)
    for x in (1, 1, 3, 3):
        ask(x)
    assert calls == [(1,), (3,), (3,)]


def test_a_description_has_the_look_of_tensors_and_not_what_is_in_them():
    def shape(x):
        return x.shape

    held = torch.zeros(3)
    found = [described((1, Frozen(x)), shape) for x in (held, torch.ones(3), torch.ones(4))]
    kind, same, other = (each[0] for each in found if each is not None)
    assert kind == same != other
    assert found[0] is not None
    tensors = found[0][1]
    assert len(tensors) == 1
    assert tensors[0] is held
    assert described((1, Frozen([held])), shape) is None


def test_a_description_is_not_taken_from_an_object_with_other_tensors():
    one = Frozen(torch.zeros(3))
    assert not is_value(one)
    first, second = (described(one, lambda x: x.shape) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first[1][0] is second[1][0] is one.x


def test_a_value_is_still_one_when_it_was_copied_or_pickled():
    one = Frozen((1, "x"))
    ask, calls = counted()
    for x in (one, copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        ask(x)
    assert len(calls) == 1


def test_contents_are_compared_cell_by_cell():
    one, same, other = (Content(torch.tensor(x)) for x in ([1, 2], [1, 2], [2, 1]))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != Content(torch.tensor([1.0, 2.0]))
    assert one != 3


def test_a_content_that_was_written_to_equals_nothing_but_itself():
    one, other = (Content(torch.tensor(x)) for x in ([1, 2], [2, 1]))
    one.tensor.copy_(other.tensor)
    assert one == one
    assert one != other
    assert other != one
    assert other != Content(torch.tensor([1, 2]))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copied_content_equals_what_it_is_a_copy_of(copied):
    one = Content(torch.tensor([1, 2]))
    assert copied(one) == one
    assert hash(copied(one)) == hash(one)


def test_what_was_asked_for_last_stays():
    recent = Recent(2)
    recent["a"], recent["b"] = 1, 2
    assert recent.get("a") == 1
    recent["c"] = 3
    assert [*recent.values()] == [1, 3]
    assert recent.get("b") is None
    assert "a" in recent
    recent.clear()
    assert len(recent) == 0
