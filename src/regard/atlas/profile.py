"""The position profile: attention weight by relative position in the context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas.choice import chosen_text
from regard.atlas.flat import Flat
from regard.atlas.tally import last_queries
from regard.errors import StatisticError
from regard.maps import AttentionMap
from regard.models import Recording
from regard.stats import SegmentMass

__all__ = ["Profile", "position_profile"]


@dataclass(frozen=True, eq=False)
class Profile:
    """The weight of the last queries on each part of the context.

    `mass` is (heads of all layers, bins) and sums to 1 over the bins (less if a sink logit takes some);
    `even` is an even spread over the visible keys. `heads` names the rows: (stack, layer, head).
    """

    heads: tuple[tuple[str, int, int], ...]
    edges: tuple[float, ...]
    mass: Float[Tensor, "heads bins"]
    even: Float[Tensor, "heads bins"]
    queries: int

    @property
    def model(self) -> Float[Tensor, " bins"]:
        """The mean over all heads."""
        return self.mass.mean(0)

    @property
    def lift(self) -> Float[Tensor, "heads bins"]:
        """Mass relative to an even spread: 1 is neither preferred nor neglected; 0 if no key is visible."""
        return torch.where(self.even > 0, self.mass / self.even.clamp(min=1e-12), 0.0)

    def of(self, layer: int, head: int, stack: str | None = None) -> Float[Tensor, " bins"]:
        """The curve of one head; by default of the first stack that has it."""
        for place, (role, index, number) in enumerate(self.heads):
            if (index, number) == (layer, head) and stack in (None, role):
                return self.mass[place]
        layers = sorted({index for _, index, _ in self.heads})
        heads = 1 + max(number for _, _, number in self.heads)
        raise StatisticError(
            f"the profile has no layer {layer}, head {head}; it has layers "
            f"{', '.join(map(str, layers))} with heads 0 to {heads - 1}."
        )

    def to_dict(self) -> dict[str, Any]:
        """The profile as plain data."""
        return {
            "queries": self.queries,
            "edges": list(self.edges),
            "model": self.model.tolist(),
            "heads": [
                {"stack": stack, "layer": layer, "head": head, "mass": mass, "even": even}
                for (stack, layer, head), mass, even in zip(
                    self.heads, self.mass.tolist(), self.even.tolist(), strict=True
                )
            ],
        }

    def __repr__(self) -> str:
        ends = f"first bin {float(self.model[0]):.2f}, last bin {float(self.model[-1]):.2f}"
        bins = self.mass.shape[1]
        return f"Profile({len(self.heads)} heads, {bins} bins, last {self.queries} queries, {ends})"


def position_profile(
    recording: Recording,
    bins: int = 20,
    *,
    stack: str | None = None,
    row: int = 0,
    queries: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """The weight of the last queries on their context, in bins of equal length, for every head.

    `queries` is the number of last queries, which have nearly the whole context before them (by default a
    sixteenth of the text, at least one). A stack whose text is shorter than `bins` is refused.

    >>> from regard.models import bundled, watch
    >>> model, tokenizer = bundled()
    >>> with watch(model, layers=[0, 5]) as recording:
    ...     out = model(torch.arange(3, 260)[None])
    >>> profile = position_profile(recording, bins=4)
    >>> profile.mass.shape, profile.queries, float(profile.model.sum())
    (torch.Size([12, 4]), 16, 1.0)
    """
    _, layers = chosen_text(recording, stack, row)
    names: list[tuple[str, int, int]] = []
    mass, even = [], []
    asked = 1
    for done, layer in enumerate(layers):
        seen = layer.map
        _, heads, q, k = seen.shape
        if not 1 <= bins <= k:
            raise StatisticError(f"bins is {bins}, and the {layer.role} has {k} keys; wanted 1 to {k}.")
        asked = max(1, q // 16) if queries is None else queries
        if not 1 <= asked <= q:
            raise StatisticError(f"queries is {asked}, and the {layer.role} has {q}; wanted 1 to {q}.")
        names += [(layer.role, layer.index, head) for head in range(heads)]
        mass.append(_mass(last_queries(seen, asked), bins))
        even.append(_mass(last_queries(Flat.beside(seen).map, asked), bins).expand(heads, -1))
        if progress is not None:
            progress(done + 1, len(layers))
    edges = tuple(i / bins for i in range(bins + 1))
    return Profile(tuple(names), edges, torch.cat(mass), torch.cat(even), asked)


def _mass(seen: AttentionMap, bins: int) -> Float[Tensor, "heads bins"]:
    """The mean over the queries that see anything."""
    segments = SegmentMass.bins(bins, seen.shape[3])
    live = (seen.lse[0] > -torch.inf).sum(-1, keepdim=True).clamp(min=1)
    return (seen.stats(segments)["segment_mass"][0].double().sum(1) / live).cpu()
