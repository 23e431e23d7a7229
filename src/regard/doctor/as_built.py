"""Finds settings of a library's model or module that differ from those its config builds."""

from __future__ import annotations

import inspect

import torch
from torch import nn

__all__ = ["changed_settings"]

Setting = bool | int | float | str | None


def changed_settings(module: nn.Module) -> dict[str, str]:
    """The settings of modules, by path, that differ from those of a new module of the same config.

    The new module is built on the meta device. If it can't be built, the result is empty.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> sizes = {"vocab_size": 8, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    >>> model = LlamaModel(LlamaConfig(**sizes, num_attention_heads=4))
    >>> model.layers[0].self_attn.scaling = 1.0
    >>> changed_settings(model)
    {'layers.0.self_attn': 'scaling is 1.0, and 0.5 by its config'}
    >>> changed_settings(model.layers[0])
    {'self_attn': 'scaling is 1.0, and 0.5 by its config'}
    """
    new = dict(built.named_modules()) if (built := _built_again(module)) else {}
    found = {}
    for path, part in module.named_modules():
        before = _settings(new[path]) if path in new else {}
        now = _settings(part)
        changes = [
            f"{name} is {now[name]!r}, and {value!r} by its config"
            for name, value in before.items()
            if name in now and now[name] != value
        ]
        if changes:
            found[path] = "; ".join(changes)
    return found


def _built_again(module: nn.Module) -> nn.Module | None:
    """A new module of the same class, from the config that it or a part of it holds.

    Other constructor arguments are taken from the module, so changes of these are not found.
    """
    parts = list(module.modules())
    config = next((part.config for part in parts if hasattr(part, "config")), None)
    layer = next((part.layer_idx for part in parts if hasattr(part, "layer_idx")), 0)
    known = {"config": config, "layer_idx": layer, "layer_id": layer} | _settings(module)
    wanted = inspect.signature(type(module)).parameters
    try:
        with torch.device("meta"):
            return type(module)(**{name: known[name] for name in wanted if name in known})
    except Exception:  # a constructor may raise any exception
        return None


def _settings(module: nn.Module) -> dict[str, Setting]:
    """The numbers, strings and flags of a module, except its training flag."""
    return {
        name: value
        for name, value in vars(module).items()
        if name != "training" and not name.startswith("_") and isinstance(value, Setting)
    }
