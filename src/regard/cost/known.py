"""Looks up a model type in the installed transformers: config class, defaults, model class."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from regard.errors import ModelError, NotCountedError

__all__ = ["config_of", "model_class_of", "translated", "whole_class_of"]

# Sizes that a config must give, and their names in families.
SIZES = {
    "hidden_size": ("n_embd", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers", "decoder_layers"),
    "num_attention_heads": ("n_head", "num_heads", "n_heads", "decoder_attention_heads"),
    "intermediate_size": ("ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "decoder_ffn_dim"),
    "vocab_size": (),
}


def translated(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of a model with its own code, converted to the equivalent family of transformers.

    Either the two families are known to be equal, or the config names a class of transformers.

    >>> translated({"model_type": "minimax_m1", "attn_type_list": [0, 1]})["layer_types"]
    ['linear_attention', 'full_attention']
    """
    if values.get("model_type") in ("minimax_m1", "minimax_text_01", "MiniMaxM1", "MiniMaxText01"):
        listed = values.get("attn_type_list")
        kinds = ("linear_attention", "full_attention")
        types = {"layer_types": [kinds[each] for each in listed]} if listed else {}
        return {**values, "model_type": "minimax", **types}
    family = _family_of_class(values)
    return {**values, "model_type": family} if family else values


def _family_of_class(values: Mapping[str, Any]) -> str | None:
    """The model type of the transformers class that a config of unknown type names."""
    import transformers

    if not values.get("model_type") or values["model_type"] in transformers.CONFIG_MAPPING:
        return None
    for named in values.get("architectures") or ():
        config_class = getattr(getattr(transformers, str(named), None), "config_class", None)
        if config_class is not None:
            return config_class.model_type
    return None


def config_of(values: Mapping[str, Any], name: str, *, nested: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The config object of a model type, with its class's defaults, and the sizes that come from the
    defaults.

    A part of a larger config is stored as its difference from the defaults, so sizes may be missing there
    (`nested`) and nowhere else.
    """
    import transformers

    kind = values.get("model_type")
    if not kind:
        raise ModelError(
            f"the config of {name} lacks model_type, and a model's family decides what its sizes mean; add "
            "it, or describe the model with --layers, --d-model, --heads, --ffn and --vocab."
        )
    if kind not in transformers.CONFIG_MAPPING:
        raise ModelError(
            f"model type {kind!r} is known neither to regard nor to transformers {transformers.__version__}, "
            "so its layers are not counted; describe it with --layers, --d-model, --heads, --ffn and --vocab."
        )
    family = transformers.CONFIG_MAPPING[kind]
    defaulted = _missing(values, family)
    if defaulted and not nested:
        raise ModelError(
            f"the config of {name} lacks {', '.join(defaulted)}; add what is missing, "
            "or give transformers' own config object, which knows its family's defaults."
        )
    try:
        return family.from_dict(dict(values)), tuple(defaulted)
    except Exception as error:
        reason = str(error).strip().splitlines()[-1].strip() if str(error).strip() else type(error).__name__
        raise NotCountedError(f"transformers refuses the config of {name}: {reason}") from error


def _missing(values: Mapping[str, Any], family: Any) -> list[str]:
    """The family's sizes that are not given, by their names in its configs."""
    try:
        usual = family()
    except Exception:
        return []  # a family whose defaults do not fit together refuses what is missing itself
    if _is_whole(family):
        return [] if "text_config" in values else ["text_config"]
    found = []
    for size, others in SIZES.items():
        own = getattr(family, "attribute_map", {}).get(size, size)
        names = (own, size, *others)
        if isinstance(getattr(usual, own, None), int) and not any(
            values.get(each) is not None for each in names
        ):
            found.append(own)
    found = [size for size in found if not _said_otherwise(size, values, family)]
    if _keeps_key_heads(family) and values.get("num_key_value_heads") is None:
        found.append("num_key_value_heads")
    return found


def _is_whole(family: Any) -> bool:
    """Whether a config of this family contains another config for its text part."""
    return "text_config" in getattr(family, "sub_configs", {})


def _said_otherwise(size: str, values: Mapping[str, Any], family: Any) -> bool:
    """Whether a family reads this size from a given field of another name: tested by changing that field."""

    def read(more: Mapping[str, Any]) -> Any:
        try:
            return getattr(family.from_dict({**values, **more}), size, None)
        except Exception:
            return None

    found = read({})
    same = [name for name, value in values.items() if type(value) is int and value == found]
    return any(read({name: found + 1}) == found + 1 for name in same)


def _keeps_key_heads(family: Any) -> bool:
    """Whether a family's default number of key heads is fixed, instead of equal to the query heads."""
    if "num_key_value_heads" not in inspect.signature(family).parameters:
        return False
    try:
        return getattr(family(num_attention_heads=3), "num_key_value_heads", 3) not in (3, None)
    except Exception:
        return False


def model_class_of(config: Any, architectures: list[str] | None = None) -> Any:
    """The transformers class to count: the one named in the config, else the family's class with a head.

    An encoder that names no class is counted without a head. None if the family has no class with a head,
    because it is part of a larger model.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    kind = config.model_type
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise NotCountedError(
            f"{kind} has no vocab_size: it does not read tokens of text, and is not counted."
        )
    for named in architectures or ():
        found = getattr(transformers, named, None)
        if found is not None and getattr(found, "config_class", None) is type(config):
            return _checked(found, config)
    encoder = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)
    mappings = (
        (auto.MODEL_MAPPING,)
        if encoder
        else (auto.MODEL_FOR_CAUSAL_LM_MAPPING, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING)
    )
    for mapping in mappings:
        if type(config) in mapping:
            return _checked(mapping[type(config)], config)
    return None


def whole_class_of(config: Any) -> Any:
    """The class of a multimodal model; None if there is none."""
    from transformers.models.auto import modeling_auto as auto

    for mapping in (auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING, auto.MODEL_FOR_MULTIMODAL_LM_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    return None


def _checked(found: Any, config: Any) -> Any:
    found = found[0] if isinstance(found, tuple) else found
    if getattr(config, "is_encoder_decoder", False):
        raise NotCountedError(
            f"{config.model_type} has an encoder and a decoder; of such models only T5 is counted."
        )
    return found
