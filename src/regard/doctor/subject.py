"""What the probes ask of whatever is examined, be it a function, a module or a model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.doctor.recipe import Recipe

__all__ = ["Options", "Scenario", "Subject", "declares_causal", "first_tensor", "parameter_of"]

BATCH, LENGTH = 2, 6
MASKS = (
    "attn_mask",
    "attention_mask",
    "mask",
    "key_padding_mask",
    "padding_mask",
    "pad_mask",
    "attn_bias",
    "bias",
)
FLAGS = ("is_causal", "causal")
HEADS = ("num_heads", "n_heads", "n_head", "heads", "nhead", "h", "num_attention_heads", "nheads")
CACHES = ("cache", "kv_cache", "past", "past_kv", "past_key_value", "past_key_values", "layer_past")


@dataclass(frozen=True)
class Options:
    """What the caller knows and the doctor need not find out."""

    layout: str | None = None
    causal: bool | None = None
    heads: int | None = None
    dim: int | None = None
    mask: str | None = None
    cache: bool | None = None
    linear_memory: bool = False


@dataclass(frozen=True)
class Scenario:
    """One way to call the subject, and which pairs may attend then (None: to be found out)."""

    label: str
    run: Callable[[Any], Tensor]
    allowed: Tensor | None = None
    rows: Tensor | None = None
    causal: bool = False


class Subject:
    """The interface; a subject that cannot answer a question leaves the answer as it is here."""

    kind = "function"
    name: str = ""
    causal: bool | None = None
    own = False
    seeable = True

    def reading(self) -> dict[str, Any]:
        """How the subject was understood, in words."""
        return {}

    def sample(self, n: int = LENGTH, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        """Random input of n tokens."""
        raise NotImplementedError

    def change(self, state: Any, j: int, part: str = "all") -> Any:
        """The input with token j replaced; of a function, only its keys ("k") or values ("v")."""
        raise NotImplementedError

    def run(self, state: Any, **how: Any) -> Tensor:
        """The output, as (batch, length, width)."""
        raise NotImplementedError

    def scenarios(self, n: int = LENGTH) -> Sequence[Scenario]:
        """The ways to call it that the formula is compared in."""
        return ()

    def conventions(self) -> Sequence[Any]:
        """The readings of the subject under which it may be healthy."""
        return ()

    def expected(self, state: Any, convention: Any, allowed: Tensor, recipe: Recipe) -> Tensor | None:
        """What a recipe would give, under one reading of the subject."""
        return None


def parameter_of(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    """The first of the wanted names that is there."""
    return next((name for name in wanted if name in names), None)


def first_tensor(found: Any) -> Tensor | None:
    """What a call returned, if a tensor, or the first tensor in it."""
    if isinstance(found, Tensor):
        return found
    if type(found).__module__ == "numpy" and hasattr(found, "dtype"):
        return torch.as_tensor(found)
    parts = found.values() if isinstance(found, dict) else found if isinstance(found, tuple | list) else ()
    return next((x for x in map(first_tensor, parts) if x is not None), None)


def declares_causal(thing: Any) -> bool:
    """Whether a function or module says that it is causal: by name, docstring, setting or buffer."""
    kind = thing if inspect.isroutine(thing) else type(thing)
    # Only what it says first: further down, a docstring may tell how to make it causal.
    doc = (thing.__doc__ if inspect.isroutine(thing) else vars(kind).get("__doc__")) or ""
    if re.match(r"(?i)\W*((a|an|multi-?head(ed)?|masked) )*causal", doc):
        return True
    if re.search(r"(?i)(?<!non)(?<!non_)causal", getattr(kind, "__name__", "")):
        return True
    if not isinstance(thing, torch.nn.Module):
        return False
    if any(getattr(thing, flag, False) is True for flag in FLAGS):
        return True
    squares = (b for b in thing.buffers(recurse=False) if b.dim() >= 2 and b.shape[-1] == b.shape[-2] > 2)
    return any(_is_triangle(b.reshape(-1, *b.shape[-2:])[0]) for b in squares)


def _is_triangle(mask: Tensor) -> bool:
    """Whether a buffer is a causal mask, by what it allows or by what it forbids."""
    marked = mask != 0
    lower = torch.ones_like(marked).tril()
    return bool((marked == lower).all()) or bool((marked == ~lower).all())
