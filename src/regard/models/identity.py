"""Which model a recording is of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter

__all__ = ["ModelIdentity"]

# So many numbers of each weight are read: enough to notice training, cheap for any size.
SAMPLES = 64
# What a config says beside what the model computes: where it was loaded from and in which form, how it
# attends, how it was trained and how it generates. The form of the weights is seen in the weights.
PASSING = frozenset({
    "transformers_version", "attn_implementation", "architectures",
    "quantization_config", "dtype", "torch_dtype", "use_cache", "initializer_range", "attention_dropout",
    "bos_token_id", "eos_token_id", "pad_token_id",
})  # fmt: skip
# Where the bundled model lies, wherever regard is installed.
BUNDLED = ("regard", "models", "data")


@dataclass(frozen=True)
class ModelIdentity:
    """A model's name, class and a fingerprint of its config and weights.

    The fingerprint reads a few numbers of every weight, spread over it, so it notices that a model was
    trained, quantised or swapped, and costs milliseconds.
    """

    name: str
    kind: str
    fingerprint: str

    @property
    def label(self) -> str:
        """What readers call it: the bundled model by that name, a folder by its last part.

        >>> ModelIdentity("/data/models/tiny-llama", "LlamaForCausalLM", "").label
        'tiny-llama'
        """
        parts = PurePath(self.name).parts
        if parts[-3:] == BUNDLED:
            return "bundled"
        return parts[-1] if PurePath(self.name).is_absolute() else self.name

    @classmethod
    def of(cls, model: Any) -> ModelIdentity:
        name = getattr(model.config, "_name_or_path", "") or type(model).__name__
        return cls(name, type(model).__name__, _fingerprint(model))


def _fingerprint(model: Any) -> str:
    found = hashlib.sha256(json.dumps(_plain(model.config), sort_keys=True, default=str).encode())
    weights = dict(_tensors(model.state_dict()))
    samples = {name: _sample(weight) for name, weight in weights.items()}
    # All in one go: a copy each would take longer than everything else here.
    numbers = torch.cat([x.to("cpu", torch.float64) for x in _joined(list(samples.values()))]).numpy()
    start = 0
    for name, weight in weights.items():
        found.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        stop = start + len(samples[name])
        found.update(numbers[start:stop].tobytes())
        start = stop
    return found.hexdigest()


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """The weights of a model; quantised layers hold some in tuples, beside what are no weights."""
    for name, value in state.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            yield from _tensors({f"{name}.{place}": part for place, part in enumerate(cast("Any", value))})


def _sample(weight: Tensor) -> Tensor:
    """A few numbers of a weight, spread over it; a weight that is not there has none."""
    if weight.is_meta or not weight.numel():
        return torch.empty(0)
    whole = getattr(weight, "full_tensor", None)
    if whole is not None:
        # A DTensor: the model is the same however its weights are spread, and all processes ask at once.
        weight = whole()
    if weight.is_quantized or type(weight) not in (Tensor, Parameter):
        # Quantised weights of libraries slice in ways of their own, or not at all.
        weight = getattr(weight, "dequantize", lambda: weight)()
    flat = weight.detach().reshape(-1)
    return flat[:: -(-flat.numel() // SAMPLES)]


def _joined(samples: list[Tensor]) -> list[Tensor]:
    """Neighbours of one dtype and device as one tensor."""
    alike = groupby(samples, key=lambda x: (x.dtype, x.device))
    return [torch.cat(list(group)) for _, group in alike] or [torch.empty(0)]


def _plain(config: Any) -> dict[str, Any]:
    said = config.to_dict()
    return {key: _rounded(said[key]) for key in said if key not in PASSING and not key.startswith("_")}


def _rounded(value: Any) -> Any:
    """Numbers to six digits: GGUF files hold them in single precision."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in cast("dict[Any, Any]", value).items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
