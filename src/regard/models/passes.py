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
        names = {"encoder": ("encoder_layers",), "vision": (), "audio": ()}.get(role, ("decoder_layers",))
        counts = (getattr(config, name, None) for name in (*names, "num_hidden_layers"))
        return next((count for count in counts if isinstance(count, int)), 1) if names else 1

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


def _length(past: Any) -> int:
    length = past.get_seq_length() if hasattr(past, "get_seq_length") else 0
    return int(length) if isinstance(length, int | Tensor) and torch.as_tensor(length).numel() == 1 else 0
