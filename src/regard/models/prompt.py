"""What a model is given to read: token ids, and where they stand in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.errors import ModelError
from regard.models.text import fit

__all__ = ["Prompt", "prompt_of"]


@dataclass(frozen=True)
class Prompt:
    """Token ids on the model's device; `window` where they are read in pieces of that length."""

    ids: Int[Tensor, "batch n"]
    text: str | None = None
    spans: list[tuple[int, int]] | None = None
    window: int | None = None

    @property
    def positions(self) -> Int[Tensor, "batch n"]:
        """The place of each token, counted from the beginning of its window."""
        places = torch.arange(self.ids.shape[1], device=self.ids.device)
        return (places if self.window is None else places % self.window).expand_as(self.ids)


def prompt_of(model: Any, tokenizer: Any, given: str | Tensor | Sequence[int], too_long: str) -> Prompt:
    """A text or token ids, cut to what the model can read as `too_long` says."""
    text, spans = None, None
    if isinstance(given, str):
        ids, text, spans = _tokenized(tokenizer, given)
    else:
        ids = _checked(model, given)
    pieces = fit(model, ids, too_long)
    if too_long == "truncate" and len(pieces) > 1:
        ids, pieces = pieces[0], pieces[:1]
        if text is not None and spans is not None:
            spans = spans[: ids.shape[1]]
            text = text[: max(stop for _, stop in spans)]
    window = pieces[0].shape[1] if len(pieces) > 1 else None
    return Prompt(ids.to(model.device), text, spans, window)


def _tokenized(
    tokenizer: Any, text: str
) -> tuple[Int[Tensor, "1 n"], str | None, list[tuple[int, int]] | None]:
    if tokenizer is None:
        raise ModelError(
            "record got a text and a model without its tokenizer. "
            "Give both, record((model, tokenizer), text), or give token ids."
        )
    fast = bool(getattr(tokenizer, "is_fast", False))
    found = tokenizer(text, return_offsets_mapping=fast, verbose=False)
    ids = torch.tensor([found["input_ids"]], dtype=torch.long)
    # A tokenizer that cannot say where its tokens stand gives tokens with a text of their own.
    return ids, text if fast else None, [tuple(span) for span in found["offset_mapping"]] if fast else None


def _checked(model: Any, given: Tensor | Sequence[int]) -> Int[Tensor, "batch n"]:
    ids = torch.as_tensor(given)
    if ids.is_floating_point() or ids.ndim not in (1, 2):
        raise ModelError(
            f"record got tokens of type {ids.dtype} and shape {tuple(ids.shape)}; wanted whole numbers, "
            "(n,) or (batch, n)."
        )
    ids = ids.view(-1, ids.shape[-1]).long()
    size = model.get_input_embeddings().num_embeddings
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise ModelError(
            f"record got token ids from {int(ids.min())} to {int(ids.max())}; the model knows 0 to "
            f"{size - 1}. Use the tokenizer that belongs to the model."
        )
    return ids
