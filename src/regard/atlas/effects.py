"""The results of a sweep of cuts: the effect of each cut, and measures from attention weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas.ranks import Correlation, spearman
from regard.atlas.results import plain, table_of

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Effect", "Importance"]


@dataclass(frozen=True)
class Effect:
    """The effect of cutting one head, or one key in all layers, and measures from attention weights."""

    layer: int | None
    head: int | None
    key: int | None
    text: str | None
    measures: dict[str, float]
    kl: float
    loss_change: float | None

    @property
    def name(self) -> str:
        """The name for display: layer 6 head 3, or key 12 and its text."""
        if self.key is None:
            return f"layer {self.layer} head {self.head}"
        return f"key {self.key}" + ("" if self.text is None else f" {self.text!r}")


@dataclass(frozen=True, repr=False)
class Importance:
    """The effect of every cut of a sweep, in order, and how well weights predict it.

    KL is in nats, at position `at`; losses are nats per token over the whole text. The measures "weight",
    "norm" and others are defined in `regard.atlas.measures`.
    """

    over: str
    tokens: int
    at: int
    loss_before: float | None
    effects: tuple[Effect, ...]

    @property
    def weights(self) -> Float[Tensor, "effects"]:
        """The plain weight of each head or key."""
        return self.measure("weight")

    @property
    def kl(self) -> Float[Tensor, "effects"]:
        return torch.tensor([effect.kl for effect in self.effects], dtype=torch.float64)

    @property
    def loss_change(self) -> Float[Tensor, "effects"] | None:
        """The loss that each cut adds, in nats per token; None if no loss was measured."""
        if self.loss_before is None:
            return None
        return torch.tensor([effect.loss_change for effect in self.effects], dtype=torch.float64)

    def measure(self, name: str) -> Float[Tensor, "effects"]:
        """One measure of every head or key, in the order of `effects`."""
        return torch.tensor([float(effect.measures[name]) for effect in self.effects], dtype=torch.float64)

    @cached_property
    def correlations(self) -> dict[str, dict[str, Correlation]]:
        """Spearman's rank correlation of every measure with every effect: `correlations["norm"]["kl"]`."""
        effects = {"kl": self.kl}
        if self.loss_change is not None:
            effects["loss_change"] = self.loss_change
        return {
            name: {effect: spearman(self.measure(name), values) for effect, values in effects.items()}
            for name in self.effects[0].measures
        }

    @property
    def rank_correlation(self) -> Correlation:
        """The correlation of weight with KL: how well weights predict which cut changes the prediction."""
        return self.correlations["weight"]["kl"]

    def strongest(self, count: int = 10, by: str = "kl") -> tuple[Effect, ...]:
        """The cuts with the largest effect, by "kl" or "loss_change"."""
        return tuple(sorted(self.effects, key=lambda effect: -(getattr(effect, by) or 0.0))[:count])

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `json.dumps` takes."""
        return {**plain(self), "correlations": plain(self.correlations)}

    def table(self, count: int = 10) -> Table:
        """The strongest effects, for Rich, with the correlations below."""
        names = list(self.effects[0].measures)
        rows = [
            [
                effect.name,
                f"{effect.kl:.4f}",
                "" if effect.loss_change is None else f"{effect.loss_change:+.4f}",
                *(f"{effect.measures[name]:.4f}" for name in names),
            ]
            for effect in self.strongest(count)
        ]
        lines = [
            f"{name} with {effect.replace('_', ' ')}: {found}"
            for name, by in self.correlations.items()
            for effect, found in by.items()
        ]
        title = f"{len(self.effects)} {self.over} cut, one at a time; the prediction at token {self.at}"
        return table_of(title, ["cut", "KL", "Δ loss", *names], rows, "\n".join(lines))

    def __repr__(self) -> str:
        return f"Importance(over={self.over!r}, effects={len(self.effects)}, {self.rank_correlation})"
