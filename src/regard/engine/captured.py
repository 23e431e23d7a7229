"""What score_mod, a bias or a score reads besides its arguments, noticed by asking about one pair.

Kernels run where autograd does not follow, so a tensor that learns and was not declared would get no
gradient. Reading the variables of a function does not find every such tensor (`functools.partial`, a method,
a list, a helper may hold it); its answer says whether there is one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor

from regard.engine.scoring import Place, Scoring
from regard.errors import ScoreError

__all__ = ["answers", "check_captured", "learns"]


def check_captured(scoring: Scoring, q: Tensor, k: Tensor) -> None:
    """Raise ScoreError if the scores depend on a tensor that learns but gets no gradient."""
    if not torch.is_grad_enabled() or q.is_meta:
        return
    for part, answer in answers(scoring, q, k).items():
        if answer.requires_grad:
            raise ScoreError(_refusal(part, scoring))


def answers(scoring: Scoring, q: Tensor, k: Tensor) -> dict[str, Tensor]:
    """What the user's functions return for the first pair, its query and key detached, by the name of the
    function. What learns and is declared is left out."""
    found: dict[str, Tensor] = {}
    if 0 in q.shape or 0 in k.shape:
        return found
    one = range(1)
    place = Place(one, one, one, one, k.shape[2] - q.shape[2], q.device)
    if not scoring.score.is_dot and not torch._C._are_functorch_transforms_active():
        q, k = (x[0, :1, :1].detach() for x in (q, k))
        declared = tuple(x.detach().to(q.dtype) for x in scoring.score.parameters())
        found["score"] = scoring.score.tile(q, k, *declared)
    bias = None if isinstance(scoring.bias, Tensor) else scoring.bias_tile(place)
    if bias is not None and not any(map(learns, scoring.bias_parameters())):
        found["bias"] = bias
    if scoring.score_mod is not None:
        # At least float32, as in the kernels.
        wide = torch.promote_types(q.dtype, torch.float32)
        modified = scoring.score_mod(torch.zeros(1, 1, 1, 1, dtype=wide, device=q.device), *place.index())
        if isinstance(modified, Tensor):
            found["score_mod"] = modified
    return found


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
        return {}  # one of them has no value yet
    return {**seen.globals, **seen.nonlocals}
