"""Caching of results that depend on immutable arguments.

A **value** is immutable: a number, a string, a tuple of values, or an instance of a frozen dataclass whose
attributes are all values. Only results that depend on values alone are cached. An object of any other class
can change between two calls although its identity and hash stay the same.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, ValuesView
from dataclasses import fields
from functools import cached_property, lru_cache, wraps
from operator import attrgetter
from threading import Lock
from types import CodeType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

__all__ = [
    "Content",
    "Holder",
    "Keeper",
    "Recent",
    "by_fields",
    "described",
    "fields_are_values",
    "holds_tensors",
    "is_value",
    "key_of",
    "remembered",
]

Found = TypeVar("Found")

ATOMS = {
    *(type(None), bool, int, float, complex, str, bytes, range),
    *(torch.device, torch.dtype, torch.Size, torch.layout, CodeType),
}
# Names of attributes: the key of an object, the results of a Keeper, the state of a Holder's tensors.
KEY, KNOWN, MADE = "_value_key", "_known", "_made"
BY_FIELDS = "_by_fields"
# The approximate count of numbers of a tensor that go into its hash.
SAMPLE = 1 << 12
NOTHING: dict[str, Any] = {}


class _NoValue(enum.Enum):
    """The marker for "no key"; None can't be used, because None is a value."""

    HERE = 0


NO_VALUE = _NoValue.HERE


class Keeper:
    """An immutable object that stores results derived from it, for as long as it lives."""

    def once(self, name: Hashable, find: Callable[[], Found]) -> Found:
        """The result of `find`, which is called only the first time."""
        known = self.__dict__.setdefault(KNOWN, {})
        if name not in known:
            known[name] = find()
        return known[name]


class Content:
    """A tensor that must not change, compared by its content.

    >>> Content(torch.tensor([1, 2])) == Content(torch.tensor([1, 2]))
    True
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.writes = tensor, _writes(tensor)

    def __reduce__(self) -> tuple[type, tuple[Tensor]]:
        # A copy has its own tensor, with a write counter of its own.
        return Content, (self.tensor,)

    @cached_property
    def _hash(self) -> int:
        # Cheap, and different for most tensors of the same shape; equality decides.
        some = self.tensor.flatten()
        some = some[:: max(1, some.numel() // SAMPLE)]
        return hash((tuple(self.tensor.shape), int(some.sum())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Content):
            return NotImplemented
        mine, theirs = self.tensor, other.tensor
        if (self.writes, other.writes) != (_writes(mine), _writes(theirs)):
            # One of the tensors was written to. A changed key must never match, so it equals nothing.
            return False
        alike = (mine.shape, mine.dtype, mine.device) == (theirs.shape, theirs.dtype, theirs.device)
        return alike and torch.equal(mine, theirs)


class Holder:
    """A frozen dataclass that owns copies of its tensors, so that they count as values."""

    def hold(self, name: str, copy: Tensor) -> None:
        """Set a field to a tensor that is not shared with anything."""
        if torch.compiler.is_compiling():
            # A mask of a traced program is packed immediately, before any result depends on it.
            object.__setattr__(self, name, copy)
            return
        if copy.is_inference():
            # PyTorch keeps no write counter for tensors made in inference mode.
            with torch.inference_mode(False):
                copy = copy.clone()
        object.__setattr__(self, name, copy)
        self.__dict__.setdefault(MADE, {})[name] = (id(copy), _writes(copy))

    @property
    def was_changed(self) -> bool:
        """Whether one of the tensors was written to."""
        for name, (made, writes) in self.__dict__.get(MADE, {}).items():
            tensor = getattr(self, name)
            if made != id(tensor):
                # This is a copy of the object: its tensor has a write counter of its own.
                self.hold(name, tensor)
            elif writes != _writes(tensor):
                return True
        return False

    @cached_property
    def contents(self) -> dict[str, Content]:
        """The tensors, by the name of their field."""
        return {name: Content(getattr(self, name)) for name in self.__dict__.get(MADE, ())}


def _writes(tensor: Tensor) -> int:
    """How often a tensor was written to; always 0 for tensors of inference mode, which have no counter."""
    return 0 if tensor.is_inference() else tensor._version


class Recent(Generic[Found]):
    """A thread-safe cache of the `most` entries used last.

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
        """The entry of a key, which becomes the most recently used; None if there is none."""
        with self._lock:
            found = self._found.get(key)
            # Hashing a key takes most of the time, so it is hashed once while there is room for many more.
            if found is not None and 2 * len(self._found) > self.most:
                self._found.move_to_end(key)
            return found

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
        """The entries, the most recently used last."""
        return self._found.values()

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._found.clear()


def remembered(
    most: int, when: Callable[..., bool] | None = None
) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """Cache the last `most` results of a function of values.

    Nothing is cached for arguments that are not values, or for which `when` returns False.

    >>> @remembered(8)
    ... def double(x):
    ...     print("doubling", x)
    ...     return 2 * x
    >>> double(3), double(3)
    doubling 3
    (6, 6)
    """

    def decorate(find: Callable[..., Found]) -> Callable[..., Found]:
        # In a tuple, because a result may be None.
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
    """Whether x is immutable.

    >>> is_value((1, "two", None)), is_value([1, "two", None])
    (True, False)
    """
    return _key(x, None) is not NO_VALUE


def key_of(x: object) -> Hashable:
    """A key that is equal for equal values only; None if x is not a value.

    >>> key_of((1, 2)) == key_of((1, 2)), key_of(1.0) == key_of(True), key_of([])
    (True, False, None)
    """
    key = _key((x,), None)
    return None if key is NO_VALUE else key


def holds_tensors(key: Hashable) -> bool:
    """Whether a key is that of a value that holds tensors.

    Such a key does not change if a tensor is written to; ask the value whether it was.

    >>> holds_tensors(key_of((1, Content(torch.ones(2))))), holds_tensors(key_of((1, 2)))
    (True, False)
    """
    if isinstance(key, tuple | frozenset):
        return any(map(holds_tensors, key))
    return isinstance(key, Content)


def fields_are_values(x: object) -> bool:
    """Whether x is an instance of a frozen dataclass, and all its attributes are values."""
    return _parts(x, None) is not NO_VALUE


def by_fields(question: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Mark a `repeatable` that only asks whether the fields are values, as making a key does anyway."""
    setattr(question, BY_FIELDS, True)
    return question


def described(x: object, look: Callable[[Tensor], Hashable]) -> tuple[Hashable, list[Tensor]] | None:
    """A key of x without the content of its tensors, and these tensors; None if x is not a value otherwise.

    `look` returns what the key holds for a tensor, such as its shape.

    >>> described((1, torch.zeros(2)), lambda tensor: tensor.shape)
    ((<class 'tuple'>, <class 'int'>, <class 'torch.Tensor'>, 1, torch.Size([2])), [tensor([0., 0.])])
    """
    met = _Met(look)
    key = _key(x, met)
    return None if key is NO_VALUE else (key, met.tensors)


class _Met:
    """Collects the tensors found while a key is built."""

    def __init__(self, look: Callable[[Tensor], Hashable]) -> None:
        self.look = look
        self.tensors: list[Tensor] = []

    def meet(self, tensor: Tensor) -> Hashable:
        self.tensors.append(tensor)
        return self.look(tensor)


def _key(x: Any, met: _Met | None) -> Hashable:
    """A key that is equal for equal values only; NO_VALUE if x is not a value.

    Tensors are values only if `met` collects them.
    """
    # Called several times per kernel launch, so the most frequent cases come first.
    kind = type(x)
    if kind in ATOMS:
        return x
    if kind is tuple:
        return _joined(kind, x, met)
    own = getattr(x, "__dict__", NOTHING)
    known = own.get(KEY, NO_VALUE)
    if known is not NO_VALUE or (met is None and KEY in own):
        return known
    names = _names(kind)
    if names is not None:
        return _key_of_fields(x, names, met) or _new_key(x, met)
    if isinstance(x, Tensor):
        return NO_VALUE if met is None else met.meet(x)
    if kind is frozenset:
        parts = frozenset((type(part), _key(part, met)) for part in x)
        return NO_VALUE if any(part is NO_VALUE for _, part in parts) else (kind, parts)
    return x if isinstance(x, enum.Enum | Content) else NO_VALUE


def _key_of_fields(x: Any, names: _Names, met: _Met | None) -> Hashable:
    """The same as `_new_key` for an object that has nothing but its fields, if they hold no tensors; else
    None.

    Most masks and statistics are like that, and one that is made in the call has no key yet.
    """
    own = getattr(x, "__dict__", NOTHING)
    if tuple(own) != names.fields or names.judges:
        return None
    parts = names.read(x)
    kinds = tuple(map(type, parts))
    keys = parts
    if not ATOMS.issuperset(kinds):
        if met is not None:
            return None
        keys = tuple([_key(part, None) for part in parts])
        if any(key is NO_VALUE for key in keys):
            return None
    key = own[KEY] = (type(x), *kinds, *keys)
    return key


def _new_key(x: Any, met: _Met | None) -> Hashable:
    """The key of an instance of a frozen dataclass, stored on it unless it has tensors."""
    names = _names(type(x))
    before = 0 if met is None else len(met.tensors)
    # A mask may declare that its answers depend on more than its fields.
    vetoed = names is not None and names.judges and not x.repeatable
    key = NO_VALUE if vetoed else _parts(x, met)
    own = getattr(x, "__dict__", None)
    if own is not None and (met is None or (key is not NO_VALUE and len(met.tensors) == before)):
        own[KEY] = key
    return key


def _parts(x: Any, met: _Met | None) -> Hashable:
    """The key of an instance of a frozen dataclass, from its fields and its other attributes."""
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
    """The key of a compound value. It includes the types of the parts, because 1 == 1.0 == True."""
    keys = [part if type(part) in ATOMS else _key(part, met) for part in parts]
    for key in keys:
        # By identity, so that no tensors are compared.
        if key is NO_VALUE:
            return NO_VALUE
    return (kind, *map(type, parts), *keys)


class _Names:
    """The fields of a frozen dataclass, and the attributes derived from them."""

    def __init__(self, kind: type) -> None:
        names = tuple(field.name for field in fields(kind))
        self.fields, self.read = names, _reader(kind, names)
        judge = getattr(kind, "repeatable", None)
        self.judges = judge is not None and not getattr(getattr(judge, "fget", None), BY_FIELDS, False)
        derived = {
            name for base in kind.__mro__ for name, x in vars(base).items() if isinstance(x, cached_property)
        }
        self.known = {*names, *derived, KEY, KNOWN, MADE}


def _reader(kind: type, names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads the fields of an object, each held tensor as its `Content`."""
    if issubclass(kind, Holder):
        return lambda x: tuple([x.contents.get(name, getattr(x, name)) for name in names])
    if len(names) > 1:
        return attrgetter(*names)
    return lambda x: tuple([getattr(x, name) for name in names])


@lru_cache(maxsize=1024)
def _names(kind: type) -> _Names | None:
    """None unless the class itself is a frozen dataclass: instances of a plain subclass of one can change."""
    own = vars(kind).get("__dataclass_params__")
    frozen = own is not None and own.frozen and not issubclass(kind, Tensor)
    return _Names(kind) if frozen else None
