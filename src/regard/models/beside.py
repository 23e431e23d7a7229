"""Finds modules that attend by themselves in models whose other layers use transformers' registry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import torch

from regard.models.outside import attends

__all__ = ["attending_alone"]

# Functions that attention is computed with.
CALLS = {"softmax", "scaled_dot_product_attention"}


def attending_alone(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The attention modules of a model that ask nothing for their attention function.

    >>> from transformers import SiglipVisionConfig, SiglipVisionModel
    >>> sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> [type(module).__name__ for module in attending_alone(SiglipVisionModel(SiglipVisionConfig(**sizes)))]
    ['MultiheadAttention']
    """
    return [module for module in model.modules() if attends(module) and _computes(type(module))]


@cache
def _computes(kind: type[torch.nn.Module]) -> bool:
    """Whether a class computes attention in its own code."""
    if issubclass(kind, torch.nn.MultiheadAttention):
        return True
    names = {name for function in _functions(kind) for name in _names(function.__code__)}
    return bool(names & CALLS) and "ALL_ATTENTION_FUNCTIONS" not in names


def _functions(kind: type[torch.nn.Module]) -> Iterator[FunctionType]:
    """The methods of a class and its bases, up to PyTorch's, without their decorators."""
    for base in kind.__mro__:
        if base.__module__.startswith("torch."):
            return
        for method in vars(base).values():
            method = getattr(method, "__wrapped__", method)
            if isinstance(method, FunctionType):
                yield method


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function calls, also in functions that it defines."""
    yield from code.co_names
    constants: tuple[Any, ...] = code.co_consts
    for part in constants:
        if isinstance(part, CodeType):
            yield from _names(part)
