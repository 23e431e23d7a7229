"""Runs a model on texts: its logits at some positions, and its loss at all others."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import MapError, ModelError
from regard.models.switch import check_model
from regard.models.text import encode

__all__ = ["Reading", "Tokens", "ids_of", "place_of", "read"]

Tokens = str | Tensor | Sequence[int] | Mapping[str, Any]

# Logits are computed in pieces of at most this many: those of 100k tokens would take more memory than the
# model.
CELLS = 1 << 24


@dataclass(frozen=True)
class Reading:
    """The logits at the requested positions, and the loss of every token but the first."""

    logits: Float[Tensor, "batch places vocabulary"]
    losses: Float[Tensor, "batch n_minus_1"] | None


def ids_of(model: Any, tokens: Tokens, tokenizer: Any = None) -> Int[Tensor, "1 n"]:
    """One text as token ids on the model's device: from a string, ids, or what a tokenizer returns."""
    check_model(model)
    if isinstance(tokens, str):
        if tokenizer is None:
            raise ModelError("a text was given and no tokenizer; give tokenizer=, or token ids.")
        return encode(model, tokenizer, tokens)[0]
    given = tokens["input_ids"] if isinstance(tokens, Mapping) else tokens
    ids = torch.as_tensor(given)
    if ids.numel() == 0:
        raise ModelError("the text has no tokens; give at least one.")
    if ids.ndim == 1:
        ids = ids[None]
    if ids.is_floating_point() or ids.dtype == torch.bool or ids.ndim != 2 or len(ids) != 1:
        raise ModelError(
            f"tokens are {str(ids.dtype).removeprefix('torch.')} of shape {tuple(ids.shape)}; wanted the ids "
            "of one text, whole numbers of shape (n,) or (1, n)."
        )
    known = getattr(model.get_input_embeddings(), "num_embeddings", None)
    if known is not None and not 0 <= int(ids.min()) <= int(ids.max()) < known:
        raise ModelError(f"token ids go from {ids.min()} to {ids.max()}; the model knows 0 to {known - 1}.")
    return ids.to(model.device, torch.int64)


def place_of(at: int, n: int) -> int:
    """A position in a text of n tokens, counted from its beginning; negative numbers count from its end."""
    if not -n <= at < n:
        raise MapError(f"position {at} is outside the text; it has {n} tokens, so wanted {-n} to {n - 1}.")
    return at % n


def read(
    model: Any,
    ids: Int[Tensor, "batch n"],
    places: Sequence[int],
    *,
    loss: bool = True,
    beside: Mapping[str, Any] | None = None,
) -> Reading:
    """Run a model on texts; logits are computed for one piece of the text at a time.

    `beside` are further arguments of the model, such as the pixels of an image.
    """
    hidden, head = _states(model, ids, beside or {})
    logits = head(hidden[:, list(places)])
    if not loss or ids.shape[1] < 2:
        return Reading(logits, None)
    losses = torch.empty(ids.shape[0], ids.shape[1] - 1, device=ids.device)
    step = max(1, CELLS // (len(ids) * logits.shape[-1]))
    for start in range(0, losses.shape[1], step):
        piece = head(hidden[:, start : min(start + step, losses.shape[1])])
        targets = ids[:, start + 1 : start + 1 + piece.shape[1]]
        losses[:, start : start + piece.shape[1]] = torch.nn.functional.cross_entropy(
            piece.flatten(0, 1), targets.flatten(), reduction="none"
        ).view(targets.shape)
    return Reading(logits, losses)


def _states(model: Any, ids: Int[Tensor, "batch n"], beside: Mapping[str, Any]) -> tuple[Tensor, Any]:
    """The input of the model's head for every token, and the head as a function."""
    base, seen = model.base_model, []
    wanted = inspect.signature(model.forward).parameters
    options = {k: v for k, v in {"use_cache": False, "logits_to_keep": 1}.items() if k in wanted}
    hook = base.register_forward_hook(lambda module, args, output: seen.append(output))
    try:
        output = model(input_ids=ids, **beside, **options)
    finally:
        hook.remove()
    if base is model or getattr(output, "logits", None) is None:
        raise ModelError(
            f"{type(model).__name__} gives no logits over a vocabulary; load the model with its language "
            "head, for example with AutoModelForCausalLM."
        )
    if output.logits.ndim != 3 or output.logits.shape[-1] < 2:
        raise ModelError(
            f"{type(model).__name__} gives logits of shape {tuple(output.logits.shape)}; wanted one row over "
            "the vocabulary for every token. Load the model with its language head."
        )
    options.pop("logits_to_keep", None)

    def head(states: Tensor) -> Tensor:
        with _answering(base, type(seen[0])(**{**seen[0], "last_hidden_state": states})):
            return model(input_ids=ids[:, : states.shape[1]], **options).logits.float()

    return seen[0].last_hidden_state, head


@contextmanager
def _answering(module: Any, answer: Any) -> Iterator[None]:
    """Make a module return this value instead of computing one.

    This lets the model's own code compute logits from given states, with its scaling and caps.
    """
    module.forward = lambda *args, **kwargs: answer
    try:
        yield
    finally:
        del module.forward
