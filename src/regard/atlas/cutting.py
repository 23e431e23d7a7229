"""Cuts edges of a model's attention while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.atlas.anatomy import Anatomy, Callers
from regard.atlas.running import attending
from regard.engine import attention
from regard.masks import Coverage, Mask
from regard.models.call import AttentionCall

__all__ = ["INSTEAD", "Cutter", "LayerCut", "cutting"]

# The replacement for the output of a cut head: zero, the mean of its outputs so far, or its output at a
# random earlier token.
INSTEAD = ("zero", "mean", "resample")


@dataclass(frozen=True)
class LayerCut:
    """The cuts in one layer: whole heads, per text of a batch, and single pairs, by a mask.

    A cut pair has score −inf before softmax, so the rest of its row is renormalised. A row whose pairs are
    all cut gives 0. The output of a cut head is replaced as `instead` says, by default with 0; the
    replacement never depends on later tokens.
    """

    dead: Bool[Tensor, "#batch heads"] | None = None
    mask: Mask | None = None
    instead: str = "zero"

    def attend(self, call: AttentionCall) -> Tensor:
        """The output of a call with the cuts applied."""
        if self.mask is not None:
            call = replace(call, mask=self.mask if call.mask is None else call.mask & self.mask)
        out = attention(call.q, call.k, call.v, **call.options)
        if self.dead is None:
            return out
        dead = self.dead.to(out.device)[:, :, None, None]
        if self.instead == "zero":
            return out.masked_fill(dead, 0.0)
        return torch.where(dead, _running_mean(out) if self.instead == "mean" else _drawn(out), out)


class Cutter:
    """Hooks into a model's attention and applies `cuts` layer by layer."""

    def __init__(self, model: Any, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self.causal = True
        """Whether every mask of the main stack so far was causal."""
        self._callers = Callers(model, anatomy)
        self._cuts: Mapping[tuple[str, int], LayerCut] = {}
        self.attended: Callable[[], None] | None = None
        """Called after every attention call."""

    def begin(self, cuts: Mapping[tuple[str, int], LayerCut]) -> None:
        """Set the cuts of the next run."""
        self._cuts = cuts
        self._callers.begin()

    def attend(self, module: torch.nn.Module, call: AttentionCall) -> tuple[Tensor, None]:
        """Run one attention call with the cuts of its layer."""
        place = self._callers.place(module)
        if place is None:
            cut = LayerCut()
        else:
            cut = self._cuts.get((place.stack, place.layer), LayerCut())
            if place.stack == self.anatomy.main:
                self.causal = self.causal and _causal(call)
        out = cut.attend(call)
        if self.attended is not None:
            self.attended()
        return out, None


@contextmanager
def cutting(model: Any, anatomy: Anatomy) -> Iterator[Cutter]:
    """Within the block, edges of the model can be cut: call `cutter.begin(cuts)`, then run the model."""
    cutter = Cutter(model, anatomy)
    with attending(model, cutter):
        yield cutter


def _running_mean(out: Tensor) -> Tensor:
    """The mean of the outputs at each token and all before it."""
    counts = torch.arange(1, out.shape[2] + 1, device=out.device)[:, None]
    return (out.double().cumsum(2) / counts).to(out.dtype)


def _drawn(out: Tensor) -> Tensor:
    """For each token, the output at a random token up to it; the same draw in every call."""
    share = torch.rand(out.shape[2], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    places = (share * torch.arange(1, out.shape[2] + 1)).long().to(out.device)
    return out[:, :, places]


def _causal(call: AttentionCall) -> bool:
    n = call.k.shape[2]
    if n < 2 or call.q.shape[2] != n:
        return True
    return call.mask is not None and call.mask.coverage((0, 1), (1, n)) is Coverage.EMPTY
