"""Find tensors that score_mod, a bias or a score reads besides its arguments, by calling it for a few pairs.

Autograd does not see what happens in a kernel, so an undeclared tensor that requires grad would get no
gradient. Inspecting the variables of a function does not find every such tensor: a `functools.partial`, a
method, a list or a helper may hold it. The function's result does: it requires grad if there is one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from regard.engine.scoring import Place, Scoring
from regard.errors import MaskError, ScoreError
from regard.masks import Mask

__all__ = ["Captured", "answers", "check_captured", "learns"]


def check_captured(scoring: Scoring, q: Tensor, k: Tensor) -> None:
    """Raise ScoreError if the scores depend on a tensor that requires grad but would get no gradient."""
    if not torch.is_grad_enabled() or q.is_meta:
        return
    for part, answer in answers(scoring, q, k).items():
        if answer.requires_grad:
            raise ScoreError(_refusal(part, scoring))


def answers(scoring: Scoring, q: Tensor, k: Tensor) -> dict[str, Tensor]:
    """The results of the user's functions for a few pairs, by the name of the function.

    Queries and keys are detached. A bias with declared parameters that require grad is left out.
    """
    declared = any(map(learns, scoring.bias_parameters()))
    asked = {
        part: ask() for part, ask in _questions(scoring, None, q, k).items() if part != "bias" or not declared
    }
    return {part: answer for part, answer in asked.items() if isinstance(answer, Tensor)}


class Captured:
    """The tensors that the user's functions read, and their results, at the time of a call.

    The functions are called again for gradients and for the cells of a map, and must then return the same.
    PyTorch detects writes to tensors saved for a backward pass. It detects neither writes to other tensors
    that the functions read nor a changed Python number.
    """

    def __init__(self, scoring: Scoring, mask: Mask | None, q: Tensor, k: Tensor) -> None:
        self._questions, self._device = _questions(scoring, mask, q, k), q.device.type
        self._answers: dict[str, object] = {}
        self._read: list[tuple[str, Tensor, int]] = []
        for part, ask in self._questions.items():
            with _Noting() as noting, torch.no_grad():
                self._answers[part] = ask()
            self._read += [(part, x, x._version) for x in noting.seen.values() if not x.is_inference()]

    def changed(self, answers: bool = True) -> tuple[str, str] | None:
        """The name of a function that has changed since the call, and how; None if none has.

        Without `answers`, only writes to tensors are checked: comparing results waits for the device.
        """
        for part, x, version in self._read:
            if x._version != version:
                return part, "reads a tensor that was changed in place"
        with torch.no_grad():
            for part, ask in self._questions.items() if answers else ():
                if not _same(self._answers[part], ask()):
                    return part, "gives other answers than before"
        return None

    def check(self) -> None:
        """Raise an error if anything has changed before a backward pass."""
        found = self.changed(answers=self._device == "cpu")
        if found is not None:
            part, what = found
            raise (MaskError if part == "mask" else ScoreError)(
                f"{part} {what}, and gradients would be wrong: the backward pass calls it again. Change what "
                "it reads after the backward pass, or let it read a copy."
            )


class _Noting(TorchFunctionMode):
    """Records every tensor that is an argument of an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, Tensor):
                self.seen[id(x)] = x
        return func(*args, **(kwargs or {}))


def _questions(scoring: Scoring, mask: Mask | None, q: Tensor, k: Tensor) -> dict[str, Callable[[], object]]:
    """For each of the user's functions, by name, a function that calls it for a few pairs."""
    asked: dict[str, Callable[[], object]] = {}
    if 0 in q.shape or 0 in k.shape:
        return asked
    sizes = (*q.shape[:3], k.shape[2])
    batch, heads, rows, cols = ends = [torch.tensor(sorted({0, n - 1}), device=q.device) for n in sizes]
    place = Place(batch, heads, rows, cols, k.shape[2] - q.shape[2], q.device)
    if not scoring.score.is_dot and not torch._C._are_functorch_transforms_active():
        pair = (x[0, :1].detach()[:, at] for x, at in ((q, rows), (k, cols)))
        own = tuple(x.detach().to(q.dtype) for x in scoring.score.parameters())
        asked["score"] = partial(scoring.score.tile, *pair, *own)
    if scoring.bias is not None and not isinstance(scoring.bias, Tensor):
        asked["bias"] = partial(scoring.bias_tile, place)
    score_mod = scoring.score_mod
    if score_mod is not None:
        # The kernels compute scores in at least float32.
        wide = torch.promote_types(q.dtype, torch.float32)
        shape = [len(each) for each in ends]
        scores = torch.linspace(-1, 1.5, math.prod(shape), dtype=wide, device=q.device).view(shape)
        asked["score_mod"] = lambda: score_mod(scores.clone(), *place.index())
    if mask is not None and not mask.repeatable:
        asked["mask"] = partial(place.allowed, mask)
    return asked


def _same(one: object, other: object) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other)
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def learns(x: object) -> bool:
    """Whether gradients are recorded for a tensor, or for a parameter of a module."""
    if not torch.is_grad_enabled():
        return False
    if isinstance(x, torch.nn.Module):
        return any(p.requires_grad for p in x.parameters())
    return isinstance(x, Tensor) and x.requires_grad


def _refusal(part: str, scoring: Scoring) -> str:
    if part == "score_mod" and scoring.score_mod is not None:
        name = next((name for name, x in _variables(scoring.score_mod).items() if learns(x)), None)
        what = "reads a tensor that" if name is None else f"captures {name}, which"
        return (
            f"score_mod {what} requires grad; gradients do not flow into captured tensors. "
            "Pass it as bias=, or detach it."
        )
    kind = type(scoring.score if part == "score" else scoring.bias).__name__
    return (
        f"{kind}.tile reads a tensor that requires grad and is not among its parameters(), so it would get "
        "no gradient. Return it from parameters(), or detach it."
    )


def _variables(function: Callable[..., Tensor]) -> dict[str, object]:
    """The variables a function reads besides its arguments, by name; in a notebook these are globals."""
    if not inspect.isfunction(function):
        return {"self": function}
    try:
        seen = inspect.getclosurevars(function)
    except ValueError:
        return {}  # a closure variable has no value yet
    return {**seen.globals, **seen.nonlocals}
