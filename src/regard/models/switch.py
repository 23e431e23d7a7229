"""Switches a model to regard's attention, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from regard.errors import ModelError
from regard.models.hook import NAME, register, was

# Families that look a function up in the registry, and add their mask to scores themselves, read it cell by
# cell to choose keys, attend to keys that it does not describe, or attend by themselves in some layers.
OWN_CODE = frozenset({
    "axk2", "bigbird_pegasus", "deepseek_v32", "deepseek_v4", "doge", "dots3_note_text", "git",
    "glm_moe_dsa", "hy_v4", "mistral_large4_text", "sam", "sam_hq", "sam_hq_vision_model",
    "sam_vision_model",
})  # fmt: skip

__all__ = ["asks_registry", "check_model", "switched", "unwrapped"]


@contextmanager
def switched(model: Any) -> Iterator[None]:
    """Within the block, run a transformers model on regard's attention; afterwards restore its own.

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
    of_layers = list(_configs_of_layers(model))
    configs = {id(config): config for config in (*_configs(model), *(own for own, _ in of_layers))}
    before = [(config, config._attn_implementation_internal) for config in configs.values()]
    generation = getattr(model, "generation_config", None)
    compiles = getattr(generation, "disable_compile", None)
    try:
        if generation is not None:
            # With a static cache `generate` compiles the model, and compiled code would not call the watcher.
            generation.disable_compile = True
        try:
            model.set_attn_implementation(NAME)
        except ValueError as error:
            raise ModelError(f"{type(model).__name__} refuses regard's attention: {error}") from error
        if model.config._attn_implementation != NAME:
            raise ModelError(_outside(model))
        for config, of_part in of_layers:
            if of_part._attn_implementation == NAME:
                config._attn_implementation_internal = NAME
        was.update({id(config): name for config, name in before})
        yield
    finally:
        for config, name in before:
            config._attn_implementation_internal = name
            was.pop(id(config), None)
        if generation is not None:
            generation.disable_compile = compiles


def unwrapped(model: Any) -> Any:
    """The model to watch: a transformers model itself, or the one inside a wrapper.

    PEFT, torch.compile, DistributedDataParallel and your own modules hold it as a submodule; some tracing
    libraries hold it as an attribute that is not a submodule. A module without one is watched itself.
    """
    from transformers import PreTrainedModel

    if isinstance(model, PreTrainedModel):
        return model
    if not isinstance(model, torch.nn.Module):
        beside = (getattr(model, name, None) for name in ("_model", "_module", "original_model", "model"))
        model = next((part for part in beside if isinstance(part, torch.nn.Module)), model)
    parts = model.modules() if isinstance(model, torch.nn.Module) else ()
    models = [part for part in parts if isinstance(part, PreTrainedModel)]
    inner = {id(part) for whole in models for part in whole.modules() if part is not whole}
    outer = [part for part in models if id(part) not in inner]
    if len(outer) == 1:
        return outer[0]
    if outer:
        kinds = ", ".join(type(part).__name__ for part in outer)
        raise ModelError(
            f"watch got a {type(model).__name__} that holds {len(outer)} transformers models ({kinds}); give "
            "the one to watch."
        )
    if isinstance(model, torch.nn.Module):
        return model
    raise ModelError(
        f"watch got a {type(model).__name__}; it needs a transformers model or another torch.nn.Module. "
        "For one call of attention there is regard.observe(q, k, v)."
    )


def check_model(model: Any) -> None:
    """Raise ModelError, with the reason, unless this model's attention can be replaced."""
    inner = unwrapped(model)
    if inner is not model:
        raise ModelError(f"{type(model).__name__} wraps a {type(inner).__name__}; give that one itself.")
    if not asks_registry(model):
        raise ModelError(_outside(model))


def asks_registry(model: Any) -> bool:
    """Whether all of the model's layers get their attention function from transformers' registry."""
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        return False
    if any(config.model_type in OWN_CODE for config in _configs(model)):
        return False
    # Models without a class of attention may be set to any function, also where nothing asks for it.
    files = {sys.modules.get(type(module).__module__) for module in model.modules()}
    asked = any(hasattr(file, "ALL_ATTENTION_FUNCTIONS") for file in files)
    return asked and model._can_set_attn_implementation()


def _outside(model: Any) -> str:
    if not hasattr(model, "set_attn_implementation"):
        return (
            f"{type(model).__name__} is no transformers model: its attention can be watched, but not "
            "replaced, as knock-outs, importance and needles do."
        )
    return (
        f"{type(model).__name__} cannot be watched: its layers compute attention themselves and never ask "
        "transformers' AttentionInterface for a function (ALL_ATTENTION_FUNCTIONS.get_interface is missing "
        f"from {type(model).__module__}). Use model(..., output_attentions=True) with "
        "attn_implementation='eager', or a newer transformers release that ports the model."
    )


def _configs_of_layers(model: Any, part: Any = None) -> Iterator[tuple[Any, Any]]:
    """The configs that layers hold beside that of their part of the model, and that of the part.

    A model that is joined from an encoder and a decoder gives both new configs; their layers keep the old.
    """
    from transformers import PreTrainedConfig, PreTrainedModel

    part = model if isinstance(model, PreTrainedModel) else part
    config = getattr(model, "config", None)
    if isinstance(config, PreTrainedConfig) and config is not part.config:
        yield config, part.config
    for child in model.children():
        yield from _configs_of_layers(child, part)


def _configs(model: Any) -> list[Any]:
    """The distinct configs that select the attention implementation of the model's parts."""
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
