"""Identifies the model of a recording: name, class and a fingerprint."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import Any, cast

import torch
from torch import Tensor

from regard.models.weights import samples_of

__all__ = ["ModelIdentity"]

# Config fields that don't change what the model computes: where it was loaded from, its attention
# implementation, training and generation settings. The fingerprint reads dtypes from the weights themselves.
PASSING = frozenset({
    "transformers_version", "attn_implementation", "architectures",
    "quantization_config", "dtype", "torch_dtype", "use_cache", "initializer_range", "attention_dropout",
    "bos_token_id", "eos_token_id", "pad_token_id",
})  # fmt: skip
# The end of the bundled model's path, in every installation.
BUNDLED = ("regard", "models", "data")


@dataclass(frozen=True)
class ModelIdentity:
    """A model's name, class and a fingerprint of its config and weights.

    The fingerprint reads a few numbers spread over every weight. It takes milliseconds, and differs after
    training, quantisation or a change of model.
    """

    name: str
    kind: str
    fingerprint: str

    @property
    def label(self) -> str:
        """The name to display: "bundled" for the bundled model, the last part of the path for a folder.

        >>> ModelIdentity("/data/models/tiny-llama", "LlamaForCausalLM", "").label
        'tiny-llama'
        """
        parts = PurePath(self.name).parts
        if parts[-3:] == BUNDLED:
            return "bundled"
        return parts[-1] if PurePath(self.name).is_absolute() else self.name

    @classmethod
    def of(cls, model: Any, within: Any = None) -> ModelIdentity:
        """The identity of a model; `within` is its wrapper, if any, where FSDP keeps the weights."""
        kind = _kind(model)
        name = getattr(getattr(model, "config", None), "_name_or_path", "") or kind
        return cls(name, kind, _fingerprint(model, within))


def _kind(model: Any) -> str:
    """The name of the model's own class; `fully_shard` replaces the class by a subclass."""
    kinds = (kind for kind in type(model).__mro__ if not kind.__module__.startswith("torch.distributed"))
    return next(kinds).__name__


def _fingerprint(model: Any, within: Any) -> str:
    found = hashlib.sha256(
        json.dumps(_plain(getattr(model, "config", None)), sort_keys=True, default=str).encode()
    )
    read = [
        (f"{name} {tuple(weight.shape)} {weight.dtype}", sample)
        for name, weight, sample in samples_of(model, within)
    ]
    # Join the samples before copying them: one copy each would take longer than the rest of this function.
    numbers = torch.cat([x.to("cpu", torch.float64) for x in _joined([sample for _, sample in read])]).numpy()
    start = 0
    for said, sample in read:
        found.update(said.encode())
        stop = start + len(sample)
        found.update(numbers[start:stop].tobytes())
        start = stop
    return found.hexdigest()


def _joined(samples: list[Tensor]) -> list[Tensor]:
    """Concatenate adjacent samples of one dtype and device."""
    alike = groupby(samples, key=lambda x: (x.dtype, x.device))
    return [torch.cat(list(group)) for _, group in alike] or [torch.empty(0)]


def _plain(config: Any) -> dict[str, Any]:
    if not hasattr(config, "to_dict"):
        return {}
    said = config.to_dict()
    return {key: _rounded(said[key]) for key in said if key not in PASSING and not key.startswith("_")}


def _rounded(value: Any) -> Any:
    """Round numbers to six digits, because GGUF files store them in single precision."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in cast("dict[Any, Any]", value).items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
