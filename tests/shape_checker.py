"""What checks types and shapes in tests: beartype, with the rule that an int is a good float.

Around every call it checks jaxtyping opens a scope for the names of axes, which takes longer than most of our
functions do. One call in sixteen has a shape in its signature; the others need no scope, and get none.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError, _decorator

check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeCheckError))
in_a_scope = _decorator.jaxtyped


def has_shape(hint: Any) -> bool:
    """Whether a type names axes somewhere inside."""
    shape = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return shape or any(map(has_shape, get_args(hint)))


def checked(fn: Any = _decorator._sentinel, *, typechecker: Any = _decorator._sentinel) -> Any:
    """`jaxtyping.jaxtyped` for what has shapes, and for all that is no plain function."""
    if not inspect.isfunction(fn) or inspect.isgeneratorfunction(fn):
        return in_a_scope(fn, typechecker=typechecker)
    hints = {
        name: _decorator._destring_annotation(hint, fn.__globals__)
        for name, hint in fn.__annotations__.items()
    }
    if any(map(has_shape, hints.values())):
        return in_a_scope(fn, typechecker=typechecker)
    # A copy, so that the original's annotations stay as they are written.
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__qualname__, copy.__module__ = fn.__qualname__, fn.__module__
    copy.__kwdefaults__, copy.__annotations__ = fn.__kwdefaults__, hints
    strict: Callable[..., Any] = typechecker(copy)

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return (fn if jaxtyping.config.jaxtyping_disable else strict)(*args, **kwargs)

    return wrapper


# jaxtyping's import hook looks both up when it decorates; there is no option for it.
jaxtyping.jaxtyped = _decorator.jaxtyped = checked
