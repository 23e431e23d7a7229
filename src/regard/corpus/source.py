"""`ModelSource`: a model by name, so that every worker can load it for itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from regard.errors import CorpusError

__all__ = ["ModelSource", "tokenizer_digest"]

BUNDLED = "bundled"


@dataclass(frozen=True)
class ModelSource:
    """A folder, a .gguf file, a name on the hub or `bundled`, with the dtype and device it is to have."""

    name: str
    dtype: str | None = None
    device: str | None = None

    def load(self) -> tuple[Any, Any]:
        """The model, in evaluation mode, and its tokenizer."""
        import torch

        from regard.models import bundled, load_model

        if self.name != BUNDLED:
            return load_model(self.name, dtype=self.dtype, device=self.device)
        model, tokenizer = bundled()
        if self.dtype is not None:
            torch.nn.Module.to(model, self._dtype())
        if self.device is not None:
            torch.nn.Module.to(model, self.device)
        return model, tokenizer

    def _dtype(self) -> Any:
        import torch

        found = getattr(torch, str(self.dtype), None)
        if not isinstance(found, torch.dtype):
            raise CorpusError(f"dtype is {self.dtype!r}; wanted a float type such as 'bfloat16'.")
        return found


def tokenizer_digest(tokenizer: Any) -> str:
    """A short name of a tokenizer: what it makes of texts, whatever folder it came from."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        said = backend.to_str()
    else:
        said = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False)
    return hashlib.sha256(f"{type(tokenizer).__name__} {said}".encode()).hexdigest()
