"""Extension points: methods that a low module declares and a higher module implements.

`Recording.atlas` is declared in `regard.models`, which may not import `regard.atlas`, where the survey of
heads is written. The declaration has the name, the types and the docstring, and the higher module registers
the code when it is imported. The module to import for each extension point is listed in `regard._loading`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Concatenate, ParamSpec, TypeVar

from regard.errors import RegardError

__all__ = ["extension_point", "implements", "name_of", "set_homes"]

P = ParamSpec("P")
R = TypeVar("R")
First = TypeVar("First")

_homes: dict[str, str] = {}
_implementations: dict[str, Callable[..., Any]] = {}


def extension_point(declared: Callable[P, R]) -> Callable[P, R]:
    """Declare a method whose body another module provides; only the signature and the docstring are used.

    >>> class Greeter:
    ...     @extension_point
    ...     def greet(self, name: str) -> str: ...
    >>> @implements(Greeter.greet)
    ... def greet(self: Greeter, name: str) -> str:
    ...     return f"Hello, {name}"
    >>> Greeter().greet("Ada")
    'Hello, Ada'
    """
    name = name_of(declared)

    @wraps(declared)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if name not in _implementations:
            _import_home(name)
        return _implementations[name](*args, **kwargs)

    return call


def implements(
    point: Callable[Concatenate[First, P], R],
) -> Callable[[Callable[Concatenate[First, P], R]], Callable[Concatenate[First, P], R]]:
    """Register the decorated function, which takes what the method takes, as its implementation."""

    def register(function: Callable[Concatenate[First, P], R]) -> Callable[Concatenate[First, P], R]:
        _implementations[name_of(point)] = function
        return function

    return register


def set_homes(homes: dict[str, str]) -> None:
    """Set the module to import when an extension point is called before its implementation is registered."""
    _homes.update(homes)


def name_of(point: Callable[..., Any]) -> str:
    """The name of an extension point: its module, its class and its method."""
    return f"{point.__module__}.{point.__qualname__}"


def _import_home(name: str) -> None:
    if name in _homes:
        import_module(_homes[name])
    if name not in _implementations:
        raise RegardError(
            f"internal error: {name} is declared and no imported module implements it. Please report it."
        )
