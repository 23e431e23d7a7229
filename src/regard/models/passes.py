"""The forward passes of a watched model: when one begins, what it continues, which tokens it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from regard.models.recording import Recording

__all__ = ["Passes"]


class Passes:
    """Follows the passes of a model through hooks on it and on its parts: `generate()` may call a part."""

    def __init__(
        self, model: Any, recording: Recording, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.model, self.recording, self.progress = model, recording, progress
        self.past = 0
        """How many tokens of the text earlier passes have read."""
        self.ran = False
        """Whether a pass has begun."""
        self._inside = 0
        self._turns: Counter[int] = Counter()
        self._attended = 0

    @property
    def running(self) -> bool:
        """Outside a pass nothing is recorded: gradient checkpointing attends again while it goes back."""
        return self._inside > 0

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Hook into the model and its parts for the time of a block."""
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
        """How often a module has attended in this pass; some models use one layer several times."""
        self._turns[module] += 1
        return self._turns[module] - 1

    def attended(self) -> None:
        """Count one layer of the pass as done, and say so."""
        self._attended += 1
        self._tell()

    def depth(self, role: str) -> int:
        """How many layers a stack has according to the config; 1 if it does not say."""
        if not hasattr(getattr(self.model, "config", None), "get_text_config"):
            return 1
        config = self.model.config.get_text_config(decoder=role != "encoder")
        names = {"encoder": ("encoder_layers",), "vision": (), "audio": ()}.get(role, ("decoder_layers",))
        counts = (getattr(config, name, None) for name in (*names, "num_hidden_layers"))
        return next((count for count in counts if isinstance(count, int)), 1) if names else 1

    def _enter(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Ctrl-C leaves a pass without a word; the model itself is never part of another pass.
        self.ran = True
        self._inside = 1 if module is self.model else self._inside + 1
        if self._inside > 1:
            return
        self._turns.clear()
        self._attended = 0
        self.past = _length(kwargs.get("past_key_values"))
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
            # A config may count fewer layers than attend: then the end moves, and is never passed.
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
