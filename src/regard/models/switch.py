"""Putting regard's attention into a model, and taking it out again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regard.errors import ModelError
from regard.models.hook import NAME, register

__all__ = ["check_model", "switched"]


@contextmanager
def switched(model: Any) -> Iterator[None]:
    """Run a transformers model on regard's attention within a block; afterwards it is as it was.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> config = LlamaConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> model = LlamaModel(config)
    >>> with switched(model):
    ...     model.config._attn_implementation
    'regard'
    >>> model.config._attn_implementation
    'sdpa'
    """
    check_model(model)
    register()
    before = [(config, config._attn_implementation_internal) for config in _configs(model)]
    generation = getattr(model, "generation_config", None)
    compiles = getattr(generation, "disable_compile", None)
    try:
        if generation is not None:
            # With a static cache `generate` compiles the model, and a compiled model calls no Python.
            generation.disable_compile = True
        try:
            model.set_attn_implementation(NAME)
        except ValueError as error:
            raise ModelError(f"{type(model).__name__} refuses regard's attention: {error}") from error
        if model.config._attn_implementation != NAME:
            raise ModelError(_outside(model))
        yield
    finally:
        for config, name in before:
            config._attn_implementation_internal = name
        if generation is not None:
            generation.disable_compile = compiles


def check_watchable(model: Any) -> None:
    """Raise ModelError unless this is a transformers model."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise ModelError(
            f"watch got a {type(model).__name__}; it needs a transformers model (a PreTrainedModel). For "
            "layers of your own call regard.observe(q, k, v) where they attend."
        )


def check_model(model: Any) -> None:
    """Raise ModelError, and say what is missing, unless this model's attention can be replaced."""
    check_watchable(model)
    if not asks_registry(model):
        raise ModelError(_outside(model))


def asks_registry(model: Any) -> bool:
    """Whether the model's layers ask transformers' registry for the function they attend with."""
    return model._can_set_attn_implementation()


def _outside(model: Any) -> str:
    return (
        f"{type(model).__name__} cannot be watched: its layers compute attention themselves and never ask "
        "transformers' AttentionInterface for a function (ALL_ATTENTION_FUNCTIONS.get_interface is missing "
        f"from {type(model).__module__}). Use model(..., output_attentions=True) with "
        "attn_implementation='eager', or a newer transformers release that ports the model."
    )


def _configs(model: Any) -> list[Any]:
    """Every config that says which attention some part of the model uses, each once."""
    from transformers import PreTrainedModel

    waiting = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    found: dict[int, Any] = {}
    while waiting:
        config = waiting.pop()
        if id(config) not in found:
            found[id(config)] = config
            parts = (getattr(config, name, None) for name in config.sub_configs)
            waiting += [part for part in parts if part is not None]
    return list(found.values())
