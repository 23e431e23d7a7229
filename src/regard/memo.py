"""Remember what follows from a value.

A **value** cannot change: a number, a string, a tuple of values, or an instance of a frozen dataclass whose
attributes are all values. Only what follows from values may be remembered. An object of any other class can
answer differently the next time, although it is still the same object with the same hash.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, ValuesView
from dataclasses import fields
from functools import cached_property, lru_cache, wraps
from operator import attrgetter
from threading import Lock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

__all__ = [
    "Content",
    "Holder",
    "Keeper",
    "Recent",
    "described",
    "fields_are_values",
    "is_value",
    "remembered",
]

Found = TypeVar("Found")

ATOMS = {
    *(type(None), bool, int, float, complex, str, bytes, range),
    *(torch.device, torch.dtype, torch.Size, torch.layout),
}
# Where an object keeps its own key, a Keeper what was found out about it, and a Holder what its tensors were.
KEY, KNOWN, MADE = "_value_key", "_known", "_made"
NOTHING: dict[str, Any] = {}


class _NoValue(enum.Enum):
    """What is in the place of a key where there is none; None is a value."""

    HERE = 0


NO_VALUE = _NoValue.HERE


class Keeper:
    """An object that does not change. What follows from it is kept with it, and goes when it goes."""

    def once(self, name: Hashable, find: Callable[[], Found]) -> Found:
        """What `find` returns; it is called the first time only."""
        known = self.__dict__.setdefault(KNOWN, {})
        if name not in known:
            known[name] = find()
        return known[name]


class Content:
    """A tensor that does not change, compared by what is in it.

    >>> Content(torch.tensor([1, 2])) == Content(torch.tensor([1, 2]))
    True
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.writes = tensor, _writes(tensor)

    def __reduce__(self) -> tuple[type, tuple[Tensor]]:
        # A copy has a tensor of its own, and PyTorch counts anew what is written to it.
        return Content, (self.tensor,)

    @cached_property
    def _hash(self) -> int:
        # Cheap, and different for most tensors of the same shape; equality decides.
        return hash((tuple(self.tensor.shape), int(self.tensor.sum())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Content):
            return NotImplemented
        mine, theirs = self.tensor, other.tensor
        if (self.writes, other.writes) != (_writes(mine), _writes(theirs)):
            # Something was written to after all. Keys must not become equal to others, so it equals nothing.
            return False
        alike = (mine.shape, mine.dtype, mine.device) == (theirs.shape, theirs.dtype, theirs.device)
        return alike and torch.equal(mine, theirs)


class Holder:
    """A frozen dataclass whose tensors are copies of its own: they are values, compared by their content."""

    def hold(self, name: str, copy: Tensor) -> None:
        """Set a field to a tensor that is not shared with anything."""
        if copy.is_inference():
            # PyTorch does not count what is written to tensors of inference mode.
            with torch.inference_mode(False):
                copy = copy.clone()
        object.__setattr__(self, name, copy)
        self.__dict__.setdefault(MADE, {})[name] = (id(copy), _writes(copy))

    @property
    def was_changed(self) -> bool:
        """Whether one of the tensors was written to after all."""
        for name, (made, writes) in self.__dict__.get(MADE, {}).items():
            tensor = getattr(self, name)
            if made != id(tensor):
                # A copy of the object has a tensor of its own, and PyTorch counts anew what is written to it.
                self.hold(name, tensor)
            elif writes != _writes(tensor):
                return True
        return False

    @cached_property
    def contents(self) -> dict[str, Content]:
        """The tensors that are held, by the name of their field."""
        return {name: Content(getattr(self, name)) for name in self.__dict__.get(MADE, ())}


def _writes(tensor: Tensor) -> int:
    """How often a tensor has been written to; PyTorch does not count this for tensors of inference mode."""
    return 0 if tensor.is_inference() else tensor._version


class Recent(Generic[Found]):
    """What was put in last, by key, at most so many; threads may share it.

    >>> recent = Recent(2)
    >>> for number in (1, 2, 1, 3):
    ...     recent[number] = str(number)
    >>> [*recent]
    [1, 3]
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._found: OrderedDict[Hashable, Found] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Found | None:
        """What was put in under a key, which is then the latest; None if nothing was."""
        with self._lock:
            if key not in self._found:
                return None
            self._found.move_to_end(key)
            return self._found[key]

    def __setitem__(self, key: Hashable, found: Found) -> None:
        with self._lock:
            self._found[key] = found
            self._found.move_to_end(key)
            while len(self._found) > self.most:
                self._found.popitem(last=False)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._found

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def values(self) -> ValuesView[Found]:
        """What was put in, the latest last."""
        return self._found.values()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._found.clear()


def remembered(
    most: int, when: Callable[..., bool] | None = None
) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """Keep the last `most` answers of a function of values.

    The function is called each time for an argument that is no value, and for arguments to which `when`
    says no.

    >>> @remembered(8)
    ... def double(x):
    ...     print("doubling", x)
    ...     return 2 * x
    >>> double(3), double(3)
    doubling 3
    (6, 6)
    """

    def decorate(find: Callable[..., Found]) -> Callable[..., Found]:
        # In a tuple: an answer may be None.
        known: Recent[tuple[Found]] = Recent(most)

        @wraps(find)
        def ask(*given: Any) -> Found:
            if when is not None and not when(*given):
                return find(*given)
            key = _key(given, None)
            if key is NO_VALUE:
                return find(*given)
            found = known.get(key)
            if found is None:
                found = known[key] = (find(*given),)
            return found[0]

        ask.forget = known.clear  # pyright: ignore[reportAttributeAccessIssue]
        return ask

    return decorate


def is_value(x: object) -> bool:
    """Whether x cannot change.

    >>> is_value((1, "two", None)), is_value([1, "two", None])
    (True, False)
    """
    return _key(x, None) is not NO_VALUE


def fields_are_values(x: object) -> bool:
    """Whether x is an instance of a frozen dataclass, and all its attributes are values."""
    return _parts(x, None) is not NO_VALUE


def described(x: object, look: Callable[[Tensor], Hashable]) -> tuple[Hashable, list[Tensor]] | None:
    """All that x is but what is in its tensors, and these tensors; None if x can change otherwise.

    `look` says what matters about a tensor beside what is in it.

    >>> described((1, torch.zeros(2)), lambda tensor: tensor.shape)
    ((<class 'tuple'>, <class 'int'>, <class 'torch.Tensor'>, 1, torch.Size([2])), [tensor([0., 0.])])
    """
    met = _Met(look)
    key = _key(x, met)
    return None if key is NO_VALUE else (key, met.tensors)


class _Met:
    """The tensors that a description has met."""

    def __init__(self, look: Callable[[Tensor], Hashable]) -> None:
        self.look = look
        self.tensors: list[Tensor] = []

    def meet(self, tensor: Tensor) -> Hashable:
        self.tensors.append(tensor)
        return self.look(tensor)


def _key(x: Any, met: _Met | None) -> Hashable:
    """A key that is equal for equal values and for no others; NO_VALUE where x is none.

    Tensors are no values, but where they are met.
    """
    # Called several times for each call of a kernel, so what comes most often is looked for first.
    kind = type(x)
    if kind in ATOMS:
        return x
    if kind is tuple:
        return _joined(kind, x, met)
    own = getattr(x, "__dict__", NOTHING)
    known = own.get(KEY, NO_VALUE)
    if known is not NO_VALUE or (met is None and KEY in own):
        return known
    if isinstance(x, Tensor):
        return NO_VALUE if met is None else met.meet(x)
    if _names(kind) is not None:
        return _new_key(x, met)
    if kind is frozenset:
        parts = frozenset((type(part), _key(part, met)) for part in x)
        return NO_VALUE if any(part is NO_VALUE for _, part in parts) else (kind, parts)
    return x if isinstance(x, enum.Enum | Content) else NO_VALUE


def _new_key(x: Any, met: _Met | None) -> Hashable:
    """The key of an instance of a frozen dataclass, which keeps it unless there are tensors in it."""
    names = _names(type(x))
    before = 0 if met is None else len(met.tensors)
    # A mask may say of itself that its answers do not follow from its fields.
    vetoed = names is not None and names.judges and not x.repeatable
    key = NO_VALUE if vetoed else _parts(x, met)
    own = getattr(x, "__dict__", None)
    if own is not None and (met is None or (key is not NO_VALUE and len(met.tensors) == before)):
        own[KEY] = key
    return key


def _parts(x: Any, met: _Met | None) -> Hashable:
    """The key of an instance of a frozen dataclass, from its fields and whatever else was set."""
    names = _names(type(x))
    if names is None:
        return NO_VALUE
    parts = names.read(x)
    own = getattr(x, "__dict__", NOTHING).keys()
    if not own <= names.known:
        for name in sorted(own - names.known):
            parts += (name, getattr(x, name))
    return _joined(type(x), parts, met)


def _joined(kind: type, parts: tuple[Any, ...], met: _Met | None) -> Hashable:
    """The key of something made of parts. 1, 1.0 and True are equal, so it has their types too."""
    keys = [part if type(part) in ATOMS else _key(part, met) for part in parts]
    for key in keys:
        # By identity: what is in contents is not to be compared.
        if key is NO_VALUE:
            return NO_VALUE
    return (kind, *map(type, parts), *keys)


class _Names:
    """The fields of a frozen dataclass, and all attributes that follow from them."""

    def __init__(self, kind: type) -> None:
        names = tuple(field.name for field in fields(kind))
        self.read = _reader(kind, names)
        self.judges = hasattr(kind, "repeatable")
        derived = {
            name for base in kind.__mro__ for name, x in vars(base).items() if isinstance(x, cached_property)
        }
        self.known = {*names, *derived, KEY, KNOWN, MADE}


def _reader(kind: type, names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """What returns the fields of an object, with contents in the place of tensors that it holds."""
    if issubclass(kind, Holder):
        return lambda x: tuple([x.contents.get(name, getattr(x, name)) for name in names])
    if len(names) > 1:
        return attrgetter(*names)
    return lambda x: tuple([getattr(x, name) for name in names])


@lru_cache(maxsize=1024)
def _names(kind: type) -> _Names | None:
    """None unless the class itself is a frozen dataclass: instances of a plain subclass of one can change."""
    own = vars(kind).get("__dataclass_params__")
    return _Names(kind) if own is not None and own.frozen else None
