"""Reads a model's config by common names for fields that families name differently."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.cost.known import config_of, translated
from regard.errors import ModelError

__all__ = ["Fields", "read_fields"]

NAMES = {
    "d_model": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "vocab": ("vocab_size",),
    "ffn": ("intermediate_size", "ffn_dim", "d_ff", "n_inner"),
    "context": ("max_position_embeddings", "n_positions", "n_ctx"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
}


class Fields:
    """A config that can be read by regard's names or its own, and records missing fields.

    `whole` is the config that contains it, if it is the text part of one. `complete` says that the values
    come from a config object, which includes the defaults of its family.

    >>> fields = Fields({"n_embd": 768, "vocab_size": 50257}, "gpt2")
    >>> fields.need("d_model"), fields.get("experts", 0)
    (768, 0)
    >>> fields.need("heads"), fields.missing
    (1, ['num_attention_heads (or n_head, num_heads)'])
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        name: str,
        whole: Mapping[str, Any] | None = None,
        *,
        complete: bool = False,
    ) -> None:
        self.values, self.name, self.whole, self.complete = values, name, whole, complete
        self.missing: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        """The value under any of its names; the default if it is absent or null."""
        for field in NAMES.get(name, (name,)):
            if self.values.get(field) is not None:
                return self.values[field]
        return default

    def need(self, name: str) -> int:
        """A required whole number; if it is missing, returns 1 and records it for `check`."""
        found = self.get(name)
        first, *others = NAMES.get(name, (name,))
        if found is None:
            self.missing.append(f"{first} (or {', '.join(others)})" if others else first)
            return 1
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            given = next(field for field in NAMES.get(name, (name,)) if self.values.get(field) is not None)
            raise ModelError(
                f"the config of {self.name} says {given}={found!r}; wanted a whole number, 1 or more."
            )
        return found

    def given(self, name: str) -> int | None:
        """A whole number, or None if it is absent."""
        return None if self.get(name) is None else self.need(name)

    def check(self) -> None:
        """Raise ModelError with all missing fields."""
        if self.missing:
            lacks = ", ".join(dict.fromkeys(self.missing))
            raise ModelError(
                f"the config of {self.name} lacks {lacks}; add what is missing, "
                "or give transformers' own config object, which knows its family's defaults."
            )


def read_fields(
    source: Any, *, name: str | None = None, remote: bool = False
) -> tuple[Fields, tuple[str, ...]]:
    """The fields of a dict, a config.json or its folder, or a transformers config; and notes on them."""
    values, called = _values(source, remote)
    name = name or called
    inner = values.get("text_config")
    if not isinstance(inner, Mapping):
        family = translated(values)
        kinds = values.get("model_type"), family.get("model_type")
        renamed = () if kinds[0] == kinds[1] else (f"{kinds[0]} is counted as {kinds[1]} of transformers",)
        return Fields(family, name, complete=hasattr(source, "to_dict")), renamed
    notes = ("only the text part of this model is counted",)
    # In older files, some fields of the text part are only in the containing config.
    kind = inner.get("model_type") or f"{values.get('model_type')}_text"
    config, defaulted = config_of(translated({**inner, "model_type": kind}), name, nested=True)
    if defaulted:
        known = ", ".join(f"{size} {getattr(config, size)}" for size in defaulted)
        notes += (f"the config leaves these to transformers' defaults for {kind}: {known}",)
    outer = {key: values[key] for key in ("tie_word_embeddings",) if key in values}
    return Fields({**_plain(config), **outer}, name, whole=values), notes


def _plain(config: Any) -> Mapping[str, Any]:
    """A transformers config as a dict, including tied embeddings, which not every version writes."""
    tied = getattr(config, "tie_word_embeddings", None)
    return {**({} if tied is None else {"tie_word_embeddings": tied}), **config.to_dict()}


def _values(source: Any, remote: bool) -> tuple[Mapping[str, Any], str]:
    if isinstance(source, Mapping):
        return source, str(source.get("_name_or_path") or source.get("model_type") or "the model")
    if hasattr(source, "to_dict"):
        values = _plain(source)
        return values, values.get("_name_or_path") or values["model_type"]
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if path.is_file():
        return _from_file(path), path.parent.name if path.name == "config.json" else path.stem
    if remote:
        return _from_hub(str(source)), str(source)
    raise ModelError(
        f"there is no config at {source}; wanted a config.json, a folder with one, or a preset. "
        "To ask the Hugging Face hub for it, say so: remote=True, or --remote."
    )


def _from_file(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}. Wanted a model's config.json.") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds a {type(found).__name__}; wanted a model's config.json, an object.")
    return found


def _from_hub(name: str) -> Mapping[str, Any]:
    from transformers import AutoConfig

    from regard.models.hub import only_cached

    local = only_cached(name)
    try:
        return AutoConfig.from_pretrained(name, local_files_only=local).to_dict()
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"no config of {name!r} came from the hub: {reason}") from error
