"""Logs telemetry readings to experiment trackers, and raises alarms.

Each function returns a function of a reading, for the `log` argument of `Telemetry` and `TrainerCallback`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.models.telemetry import Reading, Telemetry

__all__ = [
    "Alarm",
    "Alarms",
    "lightning_callback",
    "scalars",
    "to_all",
    "to_tensorboard",
    "to_trackio",
    "to_wandb",
]

Log = Callable[[Reading], None]


def scalars(reading: Reading, prefix: str = "attention") -> dict[str, float]:
    """A reading as named numbers: over all heads, and for each layer its most extreme head.

    >>> reading = Reading(0, torch.tensor([[3.0, 5.0]]), torch.tensor([[0.5, 2.0]]))
    >>> scalars(reading)["attention/entropy/min"], scalars(reading)["attention/max_score/layer_00"]
    (0.5, 5.0)
    """
    peaks, entropy = reading.max_score, reading.entropy
    # Layers with fewer heads than others are padded with NaN.
    found = {
        "max_score/max": peaks.nan_to_num(-torch.inf).max(),
        "entropy/min": entropy.nan_to_num(torch.inf).min(),
        "entropy/mean": entropy.nanmean(),
    }
    for layer in range(len(peaks)):
        found[f"max_score/layer_{layer:02d}"] = peaks[layer].nan_to_num(-torch.inf).max()
        found[f"entropy/layer_{layer:02d}"] = entropy[layer].nan_to_num(torch.inf).min()
    return {f"{prefix}/{name}": float(value) for name, value in found.items()}


def to_all(*logs: Log) -> Log:
    """Combine several logs, called in order."""

    def log(reading: Reading) -> None:
        for one in logs:
            one(reading)

    return log


def to_tensorboard(writer: Any, prefix: str = "attention") -> Log:
    """Log to TensorBoard, with histograms over heads; `writer` is a SummaryWriter or its folder."""
    if not hasattr(writer, "add_scalar"):
        writer = _needed("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(writer))

    def log(reading: Reading) -> None:
        for name, value in scalars(reading, prefix).items():
            writer.add_scalar(name, value, reading.step)
        for name, values in (("max_score", reading.max_score), ("entropy", reading.entropy)):
            writer.add_histogram(f"{prefix}/{name}", values[~values.isnan()], reading.step)

    return log


def to_wandb(run: Any = None, prefix: str = "attention") -> Log:
    """Log to Weights & Biases: to `run`, or to the run that `wandb.init` started."""
    wandb = None if run is not None else _needed("wandb", "wandb")

    def log(reading: Reading) -> None:
        current = run if wandb is None else wandb.run
        if current is None:
            raise ModelError("there is no run of Weights & Biases; call wandb.init() first, or give the run.")
        current.log({**scalars(reading, prefix), f"{prefix}/step": reading.step})

    return log


def to_trackio(run: Any = None, prefix: str = "attention") -> Log:
    """Log to trackio: to `run`, or to the run that `trackio.init` started."""
    target = _needed("trackio", "trackio") if run is None else run

    def log(reading: Reading) -> None:
        target.log({**scalars(reading, prefix), f"{prefix}/step": reading.step})

    return log


class Alarm(NamedTuple):
    """One head that left the range of the measured run: the quantity, its value and the limit."""

    step: int
    layer: int
    head: int
    what: str
    value: float
    limit: float

    def __str__(self) -> str:
        change = "fell below" if self.what == "entropy" else "rose above"
        return (
            f"step {self.step}: {self.what} of head {self.layer}.{self.head} is {self.value:.3g} and "
            f"{change} {self.limit:.3g}"
        )


class Alarms:
    """Reports heads whose entropy collapses or whose scores grow beyond limits from a healthy run.

    `measured` are readings of a healthy run, or of the first steps of this one. A head's entropy may fall to
    `entropy` times its minimum there, and its max score may rise to `growth` times its maximum. Each head
    raises one alarm per quantity, and another one only after it was back in range.

    >>> healthy = [Reading(0, torch.tensor([[4.0, 4.0]]), torch.tensor([[2.0, 2.0]]))]
    >>> alarms = Alarms(healthy, act=print)
    >>> alarms(Reading(100, torch.tensor([[9.0, 5.0]]), torch.tensor([[2.0, 0.1]])))
    step 100: max score of head 0.0 is 9 and rose above 8
    step 100: entropy of head 0.1 is 0.1 and fell below 0.5
    """

    def __init__(
        self,
        measured: Sequence[Reading],
        *,
        entropy: float = 0.25,
        growth: float = 2.0,
        act: Callable[[Alarm], object] | None = None,
    ) -> None:
        if not measured:
            raise ModelError(
                "Alarms got no readings; give those of a healthy run, such as telemetry.history."
            )
        if not 0 < entropy <= 1 <= growth:
            raise ModelError(
                f"Alarms got entropy={entropy} and growth={growth}; wanted 0 < entropy <= 1 and growth >= 1."
            )
        self.floor = torch.stack([reading.entropy for reading in measured]).amin(0) * entropy
        peaks = torch.stack([reading.max_score for reading in measured]).amax(0)
        # If the largest score of a head is negative or near 0, the limit must still be above it.
        self.ceiling = peaks + (growth - 1) * peaks.abs().clamp_min(1.0)
        self.act = act
        self.alarms: list[Alarm] = []
        self._ringing: set[tuple[str, int, int]] = set()

    def __call__(self, reading: Reading) -> None:
        low, high = reading.entropy < self.floor, reading.max_score > self.ceiling
        self._ring(reading.step, "max score", high, reading.max_score, self.ceiling)
        self._ring(reading.step, "entropy", low, reading.entropy, self.floor)

    def _ring(self, step: int, what: str, out: Tensor, values: Tensor, limits: Tensor) -> None:
        now = {(what, layer, head) for layer, head in out.nonzero().tolist()}
        for _, layer, head in sorted(now - self._ringing):
            value, limit = float(values[layer, head]), float(limits[layer, head])
            alarm = Alarm(step, layer, head, what, value, limit)
            self.alarms.append(alarm)
            if self.act is not None:
                self.act(alarm)
        self._ringing = {one for one in self._ringing if one[0] != what} | now


def lightning_callback(every: int = 100, log: Log | None = None) -> Any:
    """`Telemetry` for Lightning: `Trainer(callbacks=[lightning_callback(log=to_wandb())])`.

    Readings are in its `history`, and are logged by Lightning's `self.log`.
    """
    try:
        lightning = import_module("lightning.pytorch")
    except ImportError:
        lightning = _needed("pytorch_lightning", "lightning")

    class AttentionTelemetry(lightning.Callback):
        def __init__(self) -> None:
            Telemetry(None, every)
            self.telemetry: Telemetry | None = None

        @property
        def history(self) -> list[Reading]:
            return [] if self.telemetry is None else self.telemetry.history

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if self.telemetry is None:
                self.telemetry = Telemetry(_transformer(pl_module), every, log)
            self.telemetry.begin(batch_idx)

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            if self.telemetry is None:
                return
            before = len(self.telemetry.history)
            self.telemetry.end(batch_idx)
            for reading in self.telemetry.history[before:]:
                pl_module.log_dict(scalars(reading), on_step=True, on_epoch=False)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self.telemetry is not None:
                self.telemetry.end(0)

    return AttentionTelemetry()


def _transformer(module: Any) -> Any:
    """The transformers model in a LightningModule: the outermost submodule with a transformers config."""
    for part in module.modules():
        if hasattr(getattr(part, "config", None), "_attn_implementation"):
            return part
    raise ModelError(f"{type(module).__name__} holds no model of transformers, so there is nothing to read.")


def _needed(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ModelError(
            f"{extra} cannot be imported here ({error}). Install it with: pip install {extra}"
        ) from error
