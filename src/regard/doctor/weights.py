"""The random weights with which a module is examined."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

__all__ = ["randomised", "sizeless"]


def sizeless(module: nn.Module) -> bool:
    """Whether some weights get their shape from the first input, as in nn.LazyLinear."""
    return any(map(is_lazy, module.parameters()))


def randomised(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode with random weights, so that zero initialisation hides nothing."""
    try:
        module = copy.deepcopy(module).eval()
    except Exception:
        return module.eval()
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        gains = {
            id(x)
            for part in module.modules()
            if "norm" in type(part).__name__.lower()
            for x in part.parameters()
        }
        convolutions = (part for part in module.modules() if isinstance(part, nn.Conv1d | nn.Conv2d))
        convolved = {id(part.weight) for part in convolutions}
        for name, parameter in module.named_parameters():
            # Don't change the gains of norms: the recipes have none.
            # A lazy layer that was never called has no weights yet.
            if is_lazy(parameter):
                continue
            if not parameter.is_floating_point() or parameter.device.type != "cpu" or id(parameter) in gains:
                continue
            if parameter.dim() >= 2:
                inputs = parameter[0].numel() if id(parameter) in convolved else parameter.shape[0]
                size = max(parameter.shape[-1] if parameter.dim() == 2 else inputs, 1) ** -0.5
                parameter.copy_(torch.randn(parameter.shape, generator=draw) * size)
            elif not name.endswith("bias") and not bool(parameter.any()):
                # A gate that starts at zero, as in ReZero, would hide the whole attention.
                parameter.fill_(0.5)
        for part in module.modules():
            for name in ("bias", "in_proj_bias"):
                bias: Any = getattr(part, name, None)
                lazy = is_lazy(bias)
                if isinstance(bias, nn.Parameter) and not lazy and "Norm" not in type(part).__name__:
                    bias.copy_(0.1 * torch.randn(bias.shape, generator=draw))
    return module
