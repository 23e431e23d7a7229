"""`ModelSource`: a model by name, so that every worker can load it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["ModelSource", "tokenizer_digest"]

BUNDLED = "bundled"


@dataclass(frozen=True)
class ModelSource:
    """A folder, a .gguf file, a name on the hub or `bundled`, with its dtype and device."""

    name: str
    dtype: str | None = None
    device: str | None = None

    def load(self) -> tuple[Any, Any]:
        """The model, in evaluation mode, and its tokenizer."""
        from regard.models import load_model

        return load_model(self.name, dtype=self.dtype, device=self.device)


def tokenizer_digest(tokenizer: Any) -> str:
    """A hash of a tokenizer's behaviour, independent of its folder."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        said = backend.to_str()
    else:
        said = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False)
    return hashlib.sha256(f"{type(tokenizer).__name__} {said}".encode()).hexdigest()
