"""Eviction policies: each scores the keys of a prompt from statistics of the prompt's map.

No policy needs the n × n matrix, so they run at lengths where eager attention can't.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import StatisticError
from regard.stats import ColumnMass, ColumnMax, Statistic

__all__ = [
    "H2O",
    "POLICIES",
    "TOVA",
    "KVzip",
    "KeyMaximum",
    "MeanMass",
    "Policy",
    "RandomKeys",
    "Room",
    "SinkWindow",
    "SnapKV",
    "kept_keys",
    "names_of",
    "policy_named",
]


@dataclass(frozen=True)
class Room:
    """The budget of a policy in one layer: `keep` of the prompt's `keys` for each key head."""

    layer: int
    kv_heads: int
    keys: int
    keep: int


class Policy(ABC):
    """Scores the keys of a prompt for each key head; those with the largest scores stay in the cache."""

    # Set if the scoring queries are those of a second reading of the prompt.
    reads_twice: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Its name in tables and on the command line."""
        return type(self).__name__.lower()

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics that it needs of each layer's map of the prompt."""
        return ()

    @abstractmethod
    def scores(self, seen: Mapping[str, Any], room: Room) -> Float[Tensor, "kv_heads keys"]:
        """A score of each key, infinite for keys that always stay; `seen` has the statistics by name."""


@dataclass(frozen=True)
class H2O(Policy):
    """Heavy hitters: the keys with the largest mass, and the most recent keys (Zhang et al., 2023).

    `recent` is the share of the budget for the most recent keys.
    """

    recent: float = 0.5

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return (ColumnMass(),)

    def scores(self, seen: Mapping[str, Any], room: Room) -> Float[Tensor, "kv_heads keys"]:
        return _protected(_of_key_heads(seen["column_mass"], room, "mean"), last=int(self.recent * room.keep))


@dataclass(frozen=True)
class MeanMass(Policy):
    """The keys of the largest mean weight, over the queries that may see them: kvpress' ObservedAttention."""

    @property
    def name(self) -> str:
        return "mean"

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return (ColumnMass(normalise=True),)

    def scores(self, seen: Mapping[str, Any], room: Room) -> Float[Tensor, "kv_heads keys"]:
        return _of_key_heads(seen["column_mass"], room, "mean")


@dataclass(frozen=True)
class SnapKV(Policy):
    """The keys that the last `window` queries attend to, smoothed over neighbours (Li et al., 2024)."""

    window: int = 32
    smooth: int = 5

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return (ColumnMass(last=self.window),)

    def scores(self, seen: Mapping[str, Any], room: Room) -> Float[Tensor, "kv_heads keys"]:
        mass = _of_key_heads(seen["column_mass"], room, "mean")
        window = min(self.window, room.keys)
        before = mass[:, : room.keys - window]
        if before.shape[1]:
            # At the edges, torch's average counts padding zeros, because keys there have fewer neighbours.
            before = torch.nn.functional.avg_pool1d(before[None], self.smooth, 1, self.smooth // 2)[0]
            mass = torch.cat([before[:, : room.keys - window], mass[:, room.keys - window :]], 1)
        return _protected(mass, last=min(window, room.keep))


@dataclass(frozen=True)
class TOVA(Policy):
    """The keys that the last query attends to, averaged over the heads of a layer (Oren et al., 2024)."""

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return (ColumnMass(last=1),)

    def scores(self, seen: Mapping[str, Any], room: Room) -> Float[Tensor, "kv_heads keys"]:
        mean = seen["column_mass"][0, :, : room.keys].mean(0, keepdim=True)
        return _protected(mean.expand(room.kv_heads, -1), last=1)


@dataclass(frozen=True)
class KeyMaximum(Policy):
    """The keys that some query of the prompt, in some head that shares them, gave the largest weight."""

    @property
    def name(self) -> str:
        return "max"

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return (ColumnMax(),)

    def scores(self, seen: Mapping[str, Any], room: Room) -> Float[Tensor, "kv_heads keys"]:
        return _of_key_heads(seen["column_max"], room, "max")


@dataclass(frozen=True)
class KVzip(KeyMaximum):
    """`KeyMaximum` over a second reading of the prompt: keeps the keys needed to repeat the prompt.

    The idea of Kim et al. (2025), with the whole prompt repeated at once. It needs a context of twice the
    prompt's length.
    """

    reads_twice: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "kvzip"


@dataclass(frozen=True)
class SinkWindow(Policy):
    """The first `sinks` keys and the most recent ones: StreamingLLM (Xiao et al., 2024)."""

    sinks: int = 4

    @property
    def name(self) -> str:
        return "sinks"

    def scores(self, seen: Mapping[str, Any], room: Room) -> Float[Tensor, "kv_heads keys"]:
        scores = torch.arange(room.keys, dtype=torch.float32)
        scores[: self.sinks] = torch.inf
        return scores.expand(room.kv_heads, -1)


@dataclass(frozen=True)
class RandomKeys(Policy):
    """Random keys: the baseline for every policy."""

    seed: int = 0

    @property
    def name(self) -> str:
        return "random"

    def scores(self, seen: Mapping[str, Any], room: Room) -> Float[Tensor, "kv_heads keys"]:
        generator = torch.Generator().manual_seed(self.seed + room.layer)
        return torch.rand(room.kv_heads, room.keys, generator=generator)


POLICIES: tuple[Policy, ...] = (SnapKV(), H2O(), TOVA(), KeyMaximum(), SinkWindow(), RandomKeys())
"""The policies compared by default; others, such as `mean` and `kvzip`, must be named."""


def policy_named(name: str) -> Policy:
    """The policy of a name, with its default settings.

    >>> policy_named("snapkv")
    SnapKV(window=32, smooth=5)
    """
    known = {policy.name: policy for policy in (*POLICIES, MeanMass(), KVzip())}
    if name.lower() not in known:
        raise StatisticError(f"there is no policy {name!r}; there are {', '.join(known)}.")
    return known[name.lower()]


def names_of(policies: Sequence[Policy]) -> list[str]:
    """The name of each policy in tables; where several have the same name, with their settings.

    >>> names_of([TOVA(), SnapKV(window=16), SnapKV(window=64)])
    ['tova', 'SnapKV(window=16, smooth=5)', 'SnapKV(window=64, smooth=5)']
    """
    names = [policy.name for policy in policies]
    return [
        name if names.count(name) == 1 else repr(policy) for name, policy in zip(names, policies, strict=True)
    ]


def kept_keys(policy: Policy, seen: Mapping[str, Any], room: Room) -> Bool[Tensor, "kv_heads keys"]:
    """The keys to keep: the `room.keep` keys with the largest scores in each key head, on ties the later
    ones."""
    if not 1 <= room.keep <= room.keys:
        raise StatisticError(f"{room.keep} of {room.keys} keys cannot be kept; wanted 1 to {room.keys}.")
    scores = policy.scores(seen, room).float()
    if scores.shape != (room.kv_heads, room.keys):
        raise StatisticError(
            f"{policy!r} gives scores of shape {tuple(scores.shape)}; wanted one for each key of each key "
            f"head, ({room.kv_heads}, {room.keys})."
        )
    order = scores.flip(-1).sort(dim=-1, descending=True, stable=True).indices[:, : room.keep]
    kept = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    return kept.scatter_(1, room.keys - 1 - order, True)


def _of_key_heads(x: Float[Tensor, "1 heads k"], room: Room, how: str) -> Float[Tensor, "kv_heads keys"]:
    """A statistic of the query heads that share a key head, combined."""
    grouped = x[0, :, : room.keys].unflatten(0, (room.kv_heads, -1))
    return grouped.mean(1) if how == "mean" else grouped.amax(1)


def _protected(scores: Float[Tensor, "kv_heads keys"], last: int) -> Float[Tensor, "kv_heads keys"]:
    """The scores with infinity for the `last` keys."""
    scores = scores.clone()
    scores[:, scores.shape[1] - last :] = torch.inf
    return scores
