"""Follows the forward passes of a watched model: their tokens, and which pass continues which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.models.deferred import only_appends

if TYPE_CHECKING:
    from regard.models.recording import Recording

__all__ = ["Passes"]


class Passes:
    """Follows the passes of a model through hooks on the model and its parts: `generate()` may call a
    part."""

    def __init__(
        self, model: Any, recording: Recording, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.model, self.recording, self.progress = model, recording, progress
        self.past = 0
        """The number of tokens of the text that earlier passes have read."""
        self.ran = False
        """Whether a pass has begun."""
        self.only_appends = False
        """Whether the cache of this pass leaves the tensors of earlier passes alone."""
        self.moved = False
        """Whether the texts of the batch are others than in the pass before: beam search exchanges them."""
        self._cache: Any = None
        self._keys: Tensor | None = None
        """The first layer's keys in the cache after the last pass."""
        self._inside = 0
        self._turns: Counter[int] = Counter()
        self._attended = 0

    @property
    def running(self) -> bool:
        """Whether a pass is running. Only then attention is recorded: gradient checkpointing runs the forward
        again during the backward."""
        return self._inside > 0

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within the block, hook into the model and its parts."""
        from transformers import PreTrainedModel

        hooks = []
        for module in self.model.modules():
            if module is self.model or isinstance(module, PreTrainedModel):
                hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                hooks.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def _translates(self) -> bool:
        """Whether the model has an encoder and a decoder, each with tokens of its own."""
        return bool(getattr(getattr(self.model, "config", None), "is_encoder_decoder", False))

    def turn(self, module: int) -> int:
        """The number of times that a module has attended in this pass; some models reuse layers."""
        self._turns[module] += 1
        return self._turns[module] - 1

    def attended(self) -> None:
        """Count one layer of the pass as done, and report progress."""
        self._attended += 1
        self._tell()

    def depth(self, role: str) -> int:
        """The number of layers of a stack, from the config; 1 if the config doesn't have it."""
        if not hasattr(getattr(self.model, "config", None), "get_text_config"):
            return 1
        config = self.model.config.get_text_config(decoder=role != "encoder")
        names = {"encoder": ("encoder_layers",), "decoder": ("decoder_layers",), "cross": ("decoder_layers",)}
        counts = (getattr(config, name, None) for name in (*names.get(role, ()), "num_hidden_layers"))
        return next((count for count in counts if isinstance(count, int)), 1) if role in names else 1

    def _enter(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Ctrl-C may end a pass without its exit hook; a call of the model itself always starts a new pass.
        self.ran = True
        self._inside = 1 if module is self.model else self._inside + 1
        if self._inside > 1:
            return
        self._turns.clear()
        self._attended = 0
        cache = kwargs.get("past_key_values")
        self.past, self.only_appends = _length(cache), only_appends(cache)
        self.moved, self._cache = self.past > 0 and self._has_moved(cache), cache
        if self.past == 0 and kwargs.get("encoder_outputs") is None:
            self.recording.clear()
        given = kwargs.get("input_ids", args[0] if args else None)
        if self._translates:
            self.recording.note_tokens("encoder", given, 0)
            self.recording.note_tokens("decoder", kwargs.get("decoder_input_ids"), self.past)
        else:
            self.recording.note_tokens("decoder", given, self.past)
        self._tell()

    def _tell(self) -> None:
        if self.progress is not None:
            # A config may have fewer layers than attend; then raise the total, so that `done` never exceeds
            # it.
            self.progress(self._attended, max(self._expected(), self._attended))

    def _expected(self) -> int:
        if self._translates:
            return self.depth("encoder") + 2 * self.depth("decoder")
        return self.depth("decoder")

    def _leave(self, *unused: Any) -> None:
        self._inside = max(0, self._inside - 1)
        if self._inside == 0:
            self._keys, self._cache = _keys_of(self._cache), None

    def _has_moved(self, cache: Any) -> bool:
        """Whether a cache holds other keys than after the last pass; True if that cannot be told."""
        before, now = self._keys, _keys_of(cache)
        if before is not None and before.shape[0] == 1:
            return False
        if before is None or now is None or before.shape[0] != now.shape[0]:
            return True
        known = min(before.shape[2], now.shape[2], self.past)
        return not torch.equal(before[:, :, :known], now[:, :, :known])


def _keys_of(cache: Any) -> Tensor | None:
    """The keys of a cache's first layer that has any, (batch, heads, n, dim)."""
    layers = getattr(getattr(cache, "self_attention_cache", cache), "layers", None) or ()
    found = (getattr(layer, "keys", None) for layer in layers)
    return next((keys for keys in found if isinstance(keys, Tensor) and keys.ndim == 4), None)


def _length(past: Any) -> int:
    length = past.get_seq_length() if hasattr(past, "get_seq_length") else 0
    return int(length) if isinstance(length, int | Tensor) and torch.as_tensor(length).numel() == 1 else 0
