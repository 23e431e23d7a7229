"""Runs a model with a watcher on its attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from regard.errors import ModelError
from regard.models.hook import Watcher, watchers
from regard.models.switch import check_model, switched

__all__ = ["attending"]


@contextmanager
def attending(model: Any, watcher: Watcher) -> Iterator[None]:
    """Within the block, pass a model's attention calls to the watcher; afterwards restore the model.

    The model runs in evaluation mode and without gradients, because dropout would look like an effect.
    """
    check_model(model)
    modules = list(model.modules())
    if any(id(module) in watchers for module in modules):
        raise ModelError(f"{type(model).__name__} is being watched already; leave that block first.")
    training = [module.training for module in modules]

    def leave() -> None:
        for module, was in zip(modules, training, strict=True):
            watchers.pop(id(module), None)
            module.training = was

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(switched(model))
        stack.callback(leave)
        model.eval()
        watchers.update({id(module): watcher for module in modules})
        yield
