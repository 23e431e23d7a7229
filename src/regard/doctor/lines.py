"""Finds the line of the user's code that contains a mistake, from the operations that each line runs."""

from __future__ import annotations

import inspect
import linecache
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regard.doctor.adapter import FunctionSubject
from regard.doctor.modules import ModuleSubject
from regard.doctor.subject import Scenario, Subject
from regard.doctor.watch import light

__all__ = ["line_of"]

SOFTMAX = ("softmax", "scaled_dot_product", "exp")
PRODUCT = ("bmm", "mm", "scaled_dot_product")
MASK = ("masked_fill", "where", "tril", "triu")
# By code: the operations to search for; the first that occurs counts.
PLACES: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("missing-scale", "scale-twice", "scale-d-model", "wrong-scale"), (SOFTMAX,)),
    **dict.fromkeys(("softmax-axis", "softmax-twice", "scale-after-softmax", "softmax-dtype"), (SOFTMAX,)),
    **dict.fromkeys(("mask-inverted", "mask-weak", "finite-mask", "mask-after-softmax"), (MASK, SOFTMAX)),
    **dict.fromkeys(("cannot-see-itself", "sees-one-ahead", "causal-leak"), (MASK, SOFTMAX)),
    **dict.fromkeys(("no-softmax", "parts-swapped", "transposed-product"), (PRODUCT,)),
}


class _Lines(TorchDispatchMode):
    """Records which line of one file runs each operation."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file, self.seen = file, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        if frame is not None:
            self.seen.append((str(func), frame.f_lineno))
        return func(*args, **(kwargs or {}))


light(_Lines)


def line_of(subject: Subject, code: str, scenario: Scenario | None) -> str:
    """The file, number and text of the line; empty if unknown."""
    kinds, file = PLACES.get(code, ()), _file_of(subject)
    if not kinds or file is None:
        return ""
    try:
        state = subject.sample()
        with torch.no_grad(), _Lines(file) as lines:
            subject.run(state, **(scenario.how if scenario else {}))
    except Exception:
        return ""
    for kind in kinds:
        found = [number for name, number in lines.seen if any(word in name for word in kind)]
        # The line may be missing if the file was edited meanwhile, or in an interactive session.
        text = linecache.getline(file, found[0]).strip() if found else ""
        if text:
            return f"{Path(file).name}:{found[0]}: {text}"
    return ""


def _file_of(subject: Subject) -> str | None:
    if isinstance(subject, FunctionSubject):
        thing: Any = subject.fn if inspect.isfunction(subject.fn) else type(subject.fn)
    elif isinstance(subject, ModuleSubject):
        thing = type(subject.original)
    else:
        return None
    try:
        return inspect.getsourcefile(thing)
    except TypeError:
        return None
