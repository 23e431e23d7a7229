"""Masks whose functions can only give the same results again, as values, so that results can be kept.

A `Where` is evaluated in every call, because its function may read anything. Most functions read nothing but
their arguments, a few numbers and tensors, and other such functions; what they read is in their code. Such a
function is made again from its code and copies of all that it reads: what is made is immutable, and equal for
equal code and equal contents.
"""

from __future__ import annotations

import builtins
import dis
import types
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from regard.masks.base import Mask
from regard.masks.joins import And, Not, Or
from regard.masks.where import Where
from regard.memo import Content, is_value

__all__ = ["settled"]

# What may be in the code: it reads arguments, constants and captured variables, and works on them. There are
# no jumps, no writes but to local variables, and no objects made but tuples. The names are those of several
# Python versions; a function with any other is evaluated in every call.
OPERATIONS = {
    *("RESUME", "NOP", "CACHE", "EXTENDED_ARG", "COPY_FREE_VARS", "PUSH_NULL", "PRECALL", "KW_NAMES"),
    *("LOAD_FAST", "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"),
    *("STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "LOAD_CONST", "LOAD_SMALL_INT"),
    *("LOAD_DEREF", "LOAD_GLOBAL", "LOAD_METHOD", "LOAD_ATTR", "CALL", "CALL_KW", "BINARY_SUBSCR"),
    *("BINARY_OP", "COMPARE_OP", "UNARY_INVERT", "UNARY_NEGATIVE", "BUILD_TUPLE", "RETURN_VALUE"),
}
# Of two numbers; not @, whose rounding may be set, nor any that ends with =, which may change a tensor.
BINARY = {"+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "[]"}
# Attributes: methods of tensors that return a new tensor of what the arguments say.
METHODS = {
    *("abs", "eq", "ne", "lt", "le", "gt", "ge", "clamp", "minimum", "maximum", "remainder"),
    *("floor_divide", "logical_and", "logical_or", "logical_not", "logical_xor", "bool", "int", "long"),
}
NUMBERS = (bool, int, float)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# The most numbers of a captured tensor: it is copied and compared in every call.
COPIED = 1 << 16
# Functions that call functions that call functions.
DEPTH = 4


def settled(mask: Mask) -> Mask | None:
    """An equal mask that is a value; None if its answers could change, or nobody can tell.

    >>> window = 8
    >>> settled(Where(lambda b, h, q_idx, kv_idx: q_idx - kv_idx < window)) is None
    False
    >>> settled(Where(lambda b, h, q_idx, kv_idx: print("called") or q_idx >= kv_idx)) is None
    True
    """
    if is_value(mask):
        return mask
    if isinstance(mask, And | Or | Not) and type(mask) in (And, Or, Not):
        parts = [settled(part) for part in mask.parts]
        known = [part for part in parts if part is not None]
        return type(mask)(*known) if len(known) == len(parts) else None
    if not isinstance(mask, Where) or type(mask) is not Where or _is_watched():
        return None
    function = _settled_function(mask.mask_mod, DEPTH)
    return None if function is None else replace(mask, mask_mod=function)


def _is_watched() -> bool:
    """Whether a mode or a transform sees every operation, and may change it."""
    state: Any = torch._C  # pyright: ignore[reportPrivateUsage]
    modes = state._len_torch_function_stack() or state._len_torch_dispatch_stack()
    return bool(modes) or state._are_functorch_transforms_active()


@dataclass(frozen=True)
class _Function:
    """A function of Python, made from its code and all that it reads."""

    code: types.CodeType
    defaults: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    closure: tuple[Any, ...]
    names: tuple[tuple[str, Any], ...]
    # What a quotient of whole numbers is.
    dtype: torch.dtype

    @property
    def __name__(self) -> str:
        return self.code.co_name

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._function(*given, **named)

    @cached_property
    def _function(self) -> types.FunctionType:
        closure = tuple(types.CellType(_usable(x)) for x in self.closure)
        names = {name: _usable(x) for name, x in self.names} | {"__builtins__": builtins}
        defaults = tuple(map(_usable, self.defaults))
        made = types.FunctionType(self.code, names, self.code.co_name, defaults, closure)
        made.__kwdefaults__ = {name: _usable(x) for name, x in self.keywords}
        return made


@dataclass(frozen=True)
class _Abs:
    """Python's own `abs`."""

    def __call__(self, x: Any) -> Any:
        return builtins.abs(x)


def _usable(x: Any) -> Any:
    return x.tensor if isinstance(x, Content) else x


def _settled_function(function: object, depth: int) -> _Function | None:
    if type(function) is not types.FunctionType or not depth:
        return None
    names = _globals_of(function.__code__)
    if names is None:
        return None
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a variable has no value yet
        return None
    read = [_global(function, name) for name in names]
    keywords = function.__kwdefaults__ or {}
    groups = [function.__defaults__ or (), keywords.values(), cells, read]
    kept = [tuple(_kept(x, depth) for x in group) for group in groups]
    if any(x is None for group in kept for x in group):
        return None
    defaults, of_keywords, closure, of_names = kept
    named = tuple(zip(keywords, of_keywords, strict=True)), closure, tuple(zip(names, of_names, strict=True))
    return _Function(function.__code__, defaults, *named, torch.get_default_dtype())


def _global(function: types.FunctionType, name: str) -> object:
    """What a name stands for outside of a function; None if it is not known."""
    if name in function.__globals__:
        return function.__globals__[name]
    return _Abs() if name == "abs" and function.__builtins__.get(name) is builtins.abs else None


def _kept(x: Any, depth: int) -> object:
    """Something that a function reads, as a value; None if it is not known to be one."""
    if type(x) in NUMBERS or isinstance(x, _Abs):
        # -0.0 equals 0.0, and divides otherwise.
        return None if x == 0 and str(x) == "-0.0" else x
    if isinstance(x, Tensor):
        plain = type(x) is Tensor and x.is_cpu and x.dtype in INTEGERS and x.layout == torch.strided
        return Content(x.detach().clone()) if plain and x.numel() <= COPIED else None
    return _settled_function(x, depth - 1)


@lru_cache(64)
def _globals_of(code: types.CodeType) -> tuple[str, ...] | None:
    """The names of globals that code reads; None if it may do more than compute something from what it
    reads."""
    names: dict[str, None] = {}
    for each in dis.get_instructions(code):
        if each.opname not in OPERATIONS:
            return None
        if each.opname in ("LOAD_ATTR", "LOAD_METHOD") and each.argval not in METHODS:
            return None
        if each.opname == "BINARY_OP" and each.argrepr not in BINARY:
            return None
        if each.opname == "LOAD_GLOBAL":
            names[each.argval] = None
    return tuple(names)
