"""Assigns each module of a model to a part: attention or feed-forward of a layer, head, or other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.errors import NotCountedError

__all__ = ["Anatomy", "Part", "anatomy", "depth_of"]

NORM = re.compile(r"norm|(^|_)ln(_|\d|$)|layer_?norm", re.IGNORECASE)
MIXER = re.compile(r"att(n|ention)|mamba|mixer|ssm|conv|temporal|retention|recurrent", re.IGNORECASE)
EXPERTS = re.compile(r"^experts?$")
# Attributes that hold a layer's number and don't affect its computation.
NUMBERING = re.compile(r"(^|_)(layer_)?(idx|index|id|number)$|layer_depth$")


@dataclass(frozen=True)
class Part:
    """The part that a module belongs to; `layer` is None outside the layers."""

    layer: int | None
    kind: str


@dataclass
class Anatomy:
    """A model's modules by part, its layers, and for each layer the first layer with the same structure."""

    labels: dict[nn.Module, Part]
    stack: nn.ModuleList
    layers: list[nn.Module]
    alike: list[int]


def depth_of(config: Any) -> int:
    """The number of layers in a config."""
    for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers"):
        found = getattr(config, name, None)
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    raise NotCountedError(
        f"the config of {config.model_type} lacks num_hidden_layers (or n_layer, num_layers, n_layers)."
    )


def anatomy(model: nn.Module, config: Any) -> Anatomy:
    """Assign the modules of a transformers model to parts.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=9, n_positions=4))
    >>> found = anatomy(gpt2, gpt2.config)
    >>> found.alike, found.labels[gpt2.transformer.h[1].mlp.c_fc]
    ([0, 0], Part(layer=1, kind='feed_forward'))
    """
    depth = depth_of(config)
    stacks = [
        (sum(p.numel() for p in module.parameters()), name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == depth
    ]
    if not stacks:
        raise NotCountedError(
            f"the layers of {config.model_type} were not found: none of its lists of modules has {depth}. "
            "It is not counted."
        )
    _, prefix, stack = max(stacks, key=lambda found: found[0])
    layers = list(stack)
    labels = {
        module: _part(name, module, prefix, model) for name, module in model.named_modules() if name != prefix
    }
    first: dict[str, int] = {}
    alike = [first.setdefault(_signature(layer), index) for index, layer in enumerate(layers)]
    return Anatomy(labels, stack, layers, alike)


def _part(name: str, module: nn.Module, prefix: str, model: nn.Module) -> Part:
    inside = name.startswith(f"{prefix}.")
    if not inside:
        head = getattr(model, "get_output_embeddings", lambda: None)()
        if module is head:
            return Part(None, "head")
        return Part(None, "embeddings" if isinstance(module, nn.Embedding) else "other")
    index, *path = name.removeprefix(f"{prefix}.").split(".")
    for step in path:
        if EXPERTS.match(step):
            return Part(int(index), "experts")
        if NORM.search(step):
            return Part(int(index), "norms")
        if MIXER.search(step):
            return Part(int(index), "attention")
    return Part(int(index), "feed_forward")


def _signature(layer: nn.Module) -> str:
    """The signature of a layer's structure: its modules, the shapes of its parameters, its settings."""
    shapes = [(name, tuple(p.shape)) for name, p in layer.named_parameters()]
    settings = [
        (name, key, repr(value))
        for name, module in layer.named_modules()
        for key, value in sorted(vars(module).items())
        if isinstance(value, bool | int | float | str | type(None)) and not NUMBERING.search(key)
    ]
    return repr((type(layer).__name__, shapes, settings))
