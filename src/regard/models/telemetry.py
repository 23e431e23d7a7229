"""Attention telemetry during training: max score and entropy per head, every k-th step.

Collapsing entropy and growing scores are earlier signals of divergence than the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ModelError
from regard.maps import observe
from regard.models.call import AttentionCall
from regard.models.hook import watchers
from regard.models.switch import switched
from regard.stats import Entropy, MaxScore

__all__ = ["Reading", "Telemetry", "TrainerCallback"]

STATS = (Entropy(), MaxScore())


class Reading(NamedTuple):
    """The measurements of one step, per layer and head."""

    step: int
    max_score: Float[Tensor, "layers heads"]
    entropy: Float[Tensor, "layers heads"]


class Telemetry:
    """Measures a model's attention on every k-th step; on other steps the model runs unchanged.

    A measured step runs on regard's attention, with gradients, and computes two row statistics; other steps
    cost nothing. With `every=100`, even a measured step of double length would cost one per cent.

    >>> import torch
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4
    ... )
    >>> model = LlamaForCausalLM(config)
    >>> telemetry = Telemetry(model, every=2)
    >>> for step in range(4):
    ...     with telemetry.step(step):
    ...         model(torch.arange(9)[None], labels=torch.arange(9)[None]).loss.backward()
    >>> [reading.step for reading in telemetry.history], telemetry.history[0].entropy.shape
    ([0, 2], torch.Size([2, 4]))
    """

    def __init__(self, model: Any, every: int = 100, log: Callable[[Reading], None] | None = None) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ModelError(f"every is {every!r}; wanted a whole number of steps, at least 1.")
        self.model = getattr(model, "module", model)
        self.every, self.log = every, log
        self.history: list[Reading] = []
        self._open: ExitStack | None = None
        self._seen: dict[int, list[tuple[Tensor, Tensor]]] = {}

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """The context of one training step, forward and backward."""
        self.begin(step)
        try:
            yield
        finally:
            self.end(step)

    def begin(self, step: int) -> None:
        """Call before a step; does nothing unless the step is measured."""
        if step % self.every or self._open is not None:
            return
        self._seen = {}
        with ExitStack() as stack:
            stack.enter_context(switched(self.model))
            modules = [id(module) for module in self.model.modules()]
            if any(module in watchers for module in modules):
                raise ModelError(f"{type(self.model).__name__} is being watched; end that before it is read.")
            stack.callback(lambda: [watchers.pop(module, None) for module in modules])
            watchers.update(dict.fromkeys(modules, self))
            self._open = stack.pop_all()

    def end(self, step: int) -> None:
        """Call after a step; appends the reading to `history` and passes it to `log`."""
        if self._open is None:
            return
        self._open.close()
        self._open = None
        if self._seen:
            reading = self._reading(step)
            self.history.append(reading)
            if self.log is not None:
                self.log(reading)

    def attend(self, module: torch.nn.Module, call: AttentionCall) -> tuple[Tensor, None]:
        """Observe one attention call of a measured step."""
        seen = observe(call.q, call.k, call.v, stats=STATS, **call.options)
        with torch.no_grad():
            peaks, entropy = seen.max_score.value.amax((0, 2)), seen.entropy.mean((0, 2))
        # A module may be called several times: by gradient checkpointing, and for accumulated batches.
        self._seen.setdefault(id(module), []).append((peaks, entropy))
        return seen.out, None

    def _reading(self, step: int) -> Reading:
        peaks = [torch.stack([peak for peak, _ in calls]).amax(0) for calls in self._seen.values()]
        entropy = [torch.stack([mean for _, mean in calls]).mean(0) for calls in self._seen.values()]
        return Reading(step, _stacked(peaks), _stacked(entropy))


class TrainerCallback:
    """`Telemetry` for transformers' Trainer: `Trainer(..., callbacks=[TrainerCallback(every=100)])`.

    Readings go to `callback.history` and, as plain lists, into `trainer.state.log_history`.
    """

    def __init__(self, every: int = 100, log: Callable[[Reading], None] | None = None) -> None:
        Telemetry(None, every)
        self.every, self.log = every, log
        self.telemetry: Telemetry | None = None

    @property
    def history(self) -> list[Reading]:
        return [] if self.telemetry is None else self.telemetry.history

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if self.telemetry is None:
            self.telemetry = Telemetry(model, self.every, self.log)
        self.telemetry.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.telemetry is None:
            return
        before = len(self.telemetry.history)
        # The trainer increments its step counter after the step.
        self.telemetry.end(state.global_step - 1)
        for reading in self.telemetry.history[before:]:
            state.log_history.append(
                {
                    "step": reading.step,
                    "attention_max_score": reading.max_score.tolist(),
                    "attention_entropy": reading.entropy.tolist(),
                }
            )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.telemetry is not None:
            self.telemetry.end(state.global_step)

    def __getattr__(self, name: str) -> Any:
        # The trainer calls every event on every callback. Inheriting the events would import transformers,
        # which is slow.
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


def _stacked(rows: list[Tensor]) -> Tensor:
    """Stack rows, one per layer, padded with NaN if layers have different numbers of heads."""
    heads = max(len(row) for row in rows)
    wide = [torch.nn.functional.pad(row.float(), (0, heads - len(row)), value=torch.nan) for row in rows]
    return torch.stack(wide).cpu()
