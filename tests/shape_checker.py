"""What checks types and shapes in tests: beartype, with the rule that an int is a good float.

Around every call it checks jaxtyping opens a scope for the names of axes, which takes longer than most of our
functions do. One call in sixteen has a shape in its signature; the others need no scope, and get none.

Of the calls of a function in one test the first are checked, and then one of some: a loop over tiles makes
thousands of calls that are alike, and checking them took a third of the tests' time. With --exhaustive all
of them are checked.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError, _decorator

# So many calls of a function in a test are checked, and then each of so many.
FIRST, EACH = 16, 16
check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeCheckError))
in_a_scope = _decorator.jaxtyped


@dataclass
class Now:
    """The test that runs, by its number, and whether all its calls are checked."""

    test: int = 0
    everything: bool = False


now = Now()


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
        return sampled(fn, in_a_scope(fn, typechecker=typechecker))
    # A copy, so that the original's annotations stay as they are written.
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__qualname__, copy.__module__ = fn.__qualname__, fn.__module__
    copy.__kwdefaults__, copy.__annotations__ = fn.__kwdefaults__, hints
    return sampled(fn, typechecker(copy))


def sampled(fn: Callable[..., Any], strict: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of which some calls are checked."""
    test = calls = -1

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:  # as it is for compilers, which would trace what follows
            return fn(*args, **kwargs)
        nonlocal test, calls
        if test != now.test:
            test, calls = now.test, 0
        calls += 1
        look = calls <= FIRST or calls % EACH == 0 or now.everything
        return (strict if look else fn)(*args, **kwargs)

    return wrapper


# jaxtyping's import hook looks both up when it decorates; there is no option for it.
jaxtyping.jaxtyped = _decorator.jaxtyped = checked
