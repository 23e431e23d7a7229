"""Calls that compilers must not trace. This imports the compiler, so only traced code imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["OBSERVING", "TRANSFORMED"]


def _call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return function(*args, **options)


OBSERVING: Any = torch.compiler.disable(
    _call,
    reason="regard.observe returns a map that Python reads later, so it is no part of a graph; call it "
    "outside of the compiled function, or compile without fullgraph=True.",
)
TRANSFORMED: Any = torch.compiler.disable(
    _call,
    reason="regard.attention inside torch.func transforms (grad, jacrev, vmap, jvp) runs in Python; leave "
    "the function that transforms uncompiled.",
)
