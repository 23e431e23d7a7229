"""Which model a recording is of."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["ModelIdentity"]

# So many numbers of each weight are read: enough to notice training, cheap for any size.
SAMPLES = 64


@dataclass(frozen=True)
class ModelIdentity:
    """A model's name, class and a fingerprint of its config and weights.

    The fingerprint reads a few numbers of every weight, spread over it, so it notices that a model was
    trained, quantised or swapped, and costs milliseconds.
    """

    name: str
    kind: str
    fingerprint: str

    @classmethod
    def of(cls, model: Any) -> ModelIdentity:
        name = getattr(model.config, "_name_or_path", "") or type(model).__name__
        return cls(name, type(model).__name__, _fingerprint(model))


def _fingerprint(model: Any) -> str:
    found = hashlib.sha256(json.dumps(_plain(model.config), sort_keys=True, default=str).encode())
    for name, weight in model.state_dict().items():
        found.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        if weight.numel() and not weight.is_meta:
            flat = weight.detach().reshape(-1)
            sample = flat[:: -(-flat.numel() // SAMPLES)]
            found.update(sample.to("cpu", torch.float64).numpy().tobytes())
    return found.hexdigest()


def _plain(config: Any) -> dict[str, Any]:
    # Where a model was loaded from and how it attends do not change what it computes.
    passing = ("_name_or_path", "transformers_version", "_attn_implementation", "attn_implementation")
    return {key: value for key, value in config.to_dict().items() if key not in passing}
