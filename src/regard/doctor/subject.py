"""The interface between the probes and the subject: a function, a module or a model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.doctor.arguments import Parameters
from regard.doctor.masks import MaskForm
from regard.doctor.recipe import Recipe
from regard.errors import NotCallableError, RegardError, SubjectError

__all__ = [
    "Options",
    "Scenario",
    "Subject",
    "declares_causal",
    "library_of",
    "not_callable",
    "raised_by",
    "tensors_in",
]

BATCH, LENGTH = 2, 6
# Errors that don't depend on the shape of the input.
FAULTS = (
    "NameError",
    "UnboundLocalError",
    "ImportError",
    "ModuleNotFoundError",
    "ZeroDivisionError",
    "RecursionError",
    "EOFError",
    "NotImplementedError",
    "SyntaxError",
)


@dataclass(frozen=True)
class Options:
    """Facts that the caller passes, so that the doctor need not find them."""

    layout: str | None = None
    causal: bool | None = None
    heads: int | None = None
    dim: int | None = None
    mask: str | None = None
    cache: bool | None = None
    linear_memory: bool = False

    def __post_init__(self) -> None:
        if self.mask not in (None, "allowed", "blocked", "additive"):
            raise RegardError(f"mask={self.mask!r} is not known; wanted allowed, blocked or additive.")


@dataclass(frozen=True)
class Scenario:
    """One way to call the subject, and the pairs that may attend then (None: unknown)."""

    label: str
    how: dict[str, Any]
    allowed: Tensor | None = None
    rows: Tensor | None = None
    causal: bool = False


def raised_by(error: Exception) -> SubjectError:
    """Wrap an error of the subject; the message includes its type."""
    return SubjectError(f"{type(error).__name__}: {error}")


def not_callable(message: str, failures: Sequence[str]) -> NotCallableError:
    """The error for a subject that can't be called; says whether the subject itself is at fault."""
    refusal, said = NotCallableError(message), set(failures)
    if len(said) == 1 and next(iter(said)).partition(":")[0] in FAULTS:
        refusal.raised = said.pop()
    return refusal


class Subject:
    """The interface of subjects; the defaults here mean that the question doesn't apply."""

    kind = "function"
    name: str = ""
    length: int = LENGTH
    causal: bool | None = None
    own = False
    # Whether a token's value can be changed apart from its query.
    seeable = True
    # The width of a token, where that of its queries may be another.
    token_width: int | None = None
    mask: MaskForm | None = None
    padding: MaskForm | None = None
    cache_name: str | None = None
    uncertain: Sequence[MaskForm] = ()
    parameters: Parameters = Parameters()

    def reading(self) -> dict[str, Any]:
        """How the subject was understood, in words."""
        return {}

    def names(self) -> dict[str, str]:
        """The user's names for q, k, v, the mask and so on."""
        return {}

    def sample(self, n: int | None = None, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        """Random input of n tokens."""
        raise NotImplementedError

    def change(self, state: Any, j: int, part: str = "all") -> Any:
        """The input with token j replaced; for a function, optionally only its keys ("k") or values ("v")."""
        raise NotImplementedError

    def run(self, state: Any, **how: Any) -> Tensor:
        """The output, as (batch, length, width)."""
        raise NotImplementedError

    def scenarios(self, n: int | None = None) -> Sequence[Scenario]:
        """The ways to call it in which it is compared with the formula."""
        return ()

    def plans(self) -> int:
        """The number of ways to fill in unknown arguments, for `use_plan`."""
        return 1

    def use_plan(self, index: int) -> None:
        """Fill in unknown arguments in another way."""

    def core(self, state: Any, scenario: Scenario) -> tuple[Tensor, Any]:
        """The head outputs in one scenario, and the inputs from which `expected` computes the same."""
        return self.run(state, **scenario.how), state

    def conventions(self) -> Sequence[Any]:
        """The readings of the subject under which it may be healthy."""
        return ()

    def expected(self, inside: Any, convention: Any, allowed: Tensor, recipe: Recipe) -> Tensor | None:
        """The output of a recipe, under one reading of the subject."""
        return None


def library_of(module: nn.Module) -> str:
    """The top-level package that defines a module's class: torch, transformers, or another.

    >>> library_of(nn.Linear(2, 2))
    'torch'
    """
    return type(module).__module__.partition(".")[0]


def tensors_in(found: Any) -> list[Tensor]:
    """All tensors in a call's result, in order; arrays are converted to tensors."""
    if isinstance(found, Tensor):
        return [found]
    if type(found).__module__ == "numpy" and hasattr(found, "dtype"):
        return [torch.as_tensor(found)]
    parts = found.values() if hasattr(found, "values") and hasattr(found, "keys") else found
    if hasattr(found, "__dataclass_fields__") and not isinstance(parts, tuple | list):
        parts = [getattr(found, name) for name in found.__dataclass_fields__]
    if not isinstance(parts, tuple | list) and parts is found:
        return []
    return [x for part in parts for x in tensors_in(part)]


def declares_causal(thing: Any) -> bool:
    """Whether a function or module declares that it is causal: by name, docstring, setting or buffer."""
    kind = thing if inspect.isroutine(thing) else type(thing)
    # Only its first sentence: further down, a docstring may explain how to make it causal.
    doc = (thing.__doc__ if inspect.isroutine(thing) else vars(kind).get("__doc__")) or ""
    if re.match(r"(?i)\W*((a|an|multi-?head(ed)?|masked) )*causal", doc):
        return True
    if re.search(r"(?i)(?<!non)(?<!non_)causal", getattr(kind, "__name__", "")):
        return True
    if not isinstance(thing, torch.nn.Module):
        return False
    return any(_keeps_order(part) for part in thing.modules())


def _keeps_order(module: torch.nn.Module) -> bool:
    if any(getattr(module, flag, False) is True for flag in ("is_causal", "causal")):
        return True
    if re.search(r"(?i)(?<!non)(?<!non_)causal\w*att", type(module).__name__):
        return True
    held = [*module.buffers(recurse=False), *(x for x in vars(module).values() if isinstance(x, Tensor))]
    squares = (b for b in held if b.dim() >= 2 and b.shape[-1] == b.shape[-2] > 2)
    return any(_is_triangle(b.reshape(-1, *b.shape[-2:])[0]) for b in squares)


def _is_triangle(mask: Tensor) -> bool:
    """Whether a buffer is a causal mask, of allowed or of forbidden pairs."""
    marked = mask != 0
    lower = torch.ones_like(marked).tril()
    return bool((marked == lower).all()) or bool((marked == ~lower).all())
