"""`advise`: find the sparsest mask that keeps nearly all of each head's attention.

Shares are exact: they are sums over the weights of the whole map, not estimates from a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas.results import table_of
from regard.engine.second_pass import summarise
from regard.errors import StatisticError
from regard.maps import AttentionMap
from regard.masks import Mask, Padding, Prefix, Where, Window
from regard.stats import ColumnMass, Decay, Pooled

if TYPE_CHECKING:
    from rich.table import Table

    from regard.models import Recording

__all__ = ["Advice", "Pattern", "advise"]

SINKS = 4
# Widths of the window that is combined with the heaviest keys.
BESIDE = (32, 128, 512, 2048)
BLOCK = 64


@dataclass(frozen=True)
class Pattern:
    """A mask for one head, or for all heads of a layer (`head` None), and the attention that it keeps.

    `mass` is the share of the attention kept, in the head that loses most. `pairs` is the share of the
    visible pairs that are computed; 1.0 means that nothing is saved.
    """

    layer: int
    head: int | None
    kind: str
    mask: Mask | None
    mass: float
    pairs: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `mask` is None if the mask is a Python function, as for block patterns."""
        written = None if self.mask is None or self.kind.startswith("blocks") else self.mask.to_json()
        named = {name: getattr(self, name) for name in ("layer", "head", "kind", "mass", "pairs")}
        return {**named, "mask": written}


@dataclass(frozen=True, repr=False)
class Advice:
    """The sparsest pattern found for each head, and for each layer as a whole."""

    share: float
    tokens: int
    heads: tuple[Pattern, ...]
    layers: tuple[Pattern, ...]

    @property
    def pairs(self) -> float:
        """The share of pairs left if every head has its own mask; the mean over heads."""
        return sum(one.pairs for one in self.heads) / len(self.heads)

    @property
    def layer_pairs(self) -> float:
        """The same if the heads of a layer share a mask."""
        return sum(one.pairs for one in self.layers) / len(self.layers)

    def mask(self, layer: int, head: int | None = None) -> Mask | None:
        """The mask for a head, or for all heads of a layer; None if no mask saves more than the model's
        own."""
        among = self.layers if head is None else self.heads
        found = next((one for one in among if (one.layer, one.head) == (layer, head)), None)
        if found is None:
            raise StatisticError(f"there is no advice on layer {layer}, head {head}.")
        return found.mask

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `json.dumps` takes."""
        lists = {"heads": self.heads, "layers": self.layers}
        totals = {"share": self.share, "tokens": self.tokens, "pairs": self.pairs}
        parts = {name: [one.to_dict() for one in some] for name, some in lists.items()}
        return {**totals, "layer_pairs": self.layer_pairs, **parts}

    def table(self, heads: bool = False) -> Table:
        """Layer by layer, or head by head, for Rich."""
        rows = [
            [
                str(one.layer) if one.head is None else f"{one.layer}.{one.head}",
                one.kind,
                f"{one.mass:.2%}",
                f"{one.pairs:.1%}",
            ]
            for one in (self.heads if heads else self.layers)
        ]
        caption = (
            f"mass kept: by the head that loses most; pairs left, each head with its own mask: "
            f"{self.pairs:.1%}; one mask a layer: {self.layer_pairs:.1%}"
        )
        return table_of(
            str(self), ["head" if heads else "layer", "pattern", "mass kept", "pairs"], rows, caption
        )

    def __repr__(self) -> str:
        return f"Advice({self})"

    def __str__(self) -> str:
        return f"masks that keep {self.share:.1%} of each head's attention, over {self.tokens:,} tokens"


def advise(
    recording: Recording,
    share: float = 0.99,
    *,
    layers: Sequence[int] | None = None,
    row: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Advice:
    """Find the sparsest mask for each head that keeps a given share of its attention.

    Of a batch the text of one row counts, without its padding.

    The candidates are a window, a window and the first keys (sinks), a window and the heaviest keys (a
    vertical-slash pattern), and blocks of 64 × 64 cells. If none of them saves anything, the model's own mask
    is kept. The masks are for the recorded text: windows and sinks carry over to other texts, keys and blocks
    may not.

    >>> from regard.models import bundled, record, sample_text
    >>> from regard.models import LoadedModel
    >>> found = advise(record(LoadedModel(*bundled()), sample_text()[:150]), layers=[0])
    >>> all(pattern.mass >= 0.99 for pattern in found.heads)
    True
    """
    if not 0.0 < share <= 1.0:
        raise StatisticError(f"share is {share}; wanted a share of the attention, above 0 and at most 1.")
    recording = recording.alone(row)
    known = [layer.index for layer in recording.layers.values()]
    wanted = known if layers is None else list(layers)
    for layer in wanted:
        if layer not in known:
            raise StatisticError(f"layer {layer} was not recorded; recorded were {known}.")
    of_heads: list[Pattern] = []
    of_layers: list[Pattern] = []
    tokens = 0
    for done, layer in enumerate(wanted):
        seen = recording.maps[layer]
        tokens = max(tokens, seen.shape[3])
        survey = _Survey(seen, layer, share)
        of_heads += [survey.best([head], head) for head in range(seen.shape[1])]
        of_layers.append(survey.best(list(range(seen.shape[1]))))
        if progress is not None:
            progress(done + 1, len(wanted))
    return Advice(share, tokens, tuple(of_heads), tuple(of_layers))


class _Survey:
    """The sums of one layer's map from which the share of every pattern is computed."""

    def __init__(self, seen: AttentionMap, layer: int, share: float) -> None:
        self.seen, self.layer, self.share = seen, layer, share
        _, _, self.q, self.k = seen.shape
        asked = (
            ColumnMass(),
            Decay(signed=True).named("near"),
            Decay(signed=True, skip_keys=min(SINKS, self.k)).named("beyond"),
            Pooled(BLOCK),
        )
        found = seen.stats(*asked)
        self.columns = found["column_mass"][0].double()
        self.total = self.columns.sum(-1)
        self.near, self.beyond = (_by_distance(found[name]) for name in ("near", "beyond"))
        self.sinks = self.columns[:, :SINKS].sum(-1)
        self.blocks = found["pooled"][0].double() * self._block_cells()
        self.outside = {width: self._columns_outside(width) for width in BESIDE if width < self.k}
        self.visible = seen.mask.pairs(self.q, self.k) if seen.mask is not None else self.q * self.k
        if seen.mask is not None:
            self.visible //= (seen.mask.batch or 1) * (seen.mask.heads or 1)

    def best(self, heads: list[int], head: int | None = None) -> Pattern:
        """The pattern with the fewest pairs that is good enough for all of `heads`; `head` is the number of a
        single head."""
        whole = Pattern(self.layer, head, "all pairs", self.seen.mask, 1.0, 1.0)
        found = [
            replace(whole, kind=kind, mask=mask, mass=mass, pairs=pairs)
            for kind, mask, mass, pairs in self._tried(heads)
        ]
        return min([whole, *found], key=lambda one: one.pairs)

    def _tried(self, heads: list[int]) -> Iterator[tuple[str, Mask, float, float]]:
        total = self.total[heads]
        wanted = self.share * total
        for kind, near, given in (
            ("window", self.near, torch.zeros_like(self.sinks)),
            ("sinks + window", self.beyond, self.sinks),
        ):
            held = given[heads, None] + near[heads].cumsum(-1)
            width = int((held < wanted[:, None]).sum(-1).max()) + 1
            if width > near.shape[1]:
                continue
            mask: Mask = Window(width) if kind == "window" else Window(width) | Prefix(SINKS)
            yield self._pattern(f"{kind} {width}", mask, held[:, width - 1] / total)
        for width, outside in self.outside.items():
            inside = self.near[heads, :width].sum(-1)
            # All heads use the same keys: they choose one key each in turn until every head keeps enough.
            keys = _heaviest(outside[heads], wanted - inside)
            if keys is not None and len(keys) < self.k // 2:
                flags = torch.zeros(self.k, dtype=torch.bool)
                flags[keys] = True
                held = inside + outside[heads][:, keys].sum(-1)
                kind, mask = f"{len(keys)} keys + window {width}", Window(width) | Padding(flags)
                yield self._pattern(kind, mask, held / total)
        cells = self.blocks[heads].flatten(1)
        chosen = _heaviest(cells, wanted)
        if chosen is not None:
            table = torch.zeros(cells.shape[1], dtype=torch.bool)
            table[chosen] = True
            mask = _blocks(table.view(self.blocks.shape[1:]), self.k - self.q)
            held = cells[:, chosen].sum(-1)
            yield self._pattern(f"blocks: {len(chosen)} of {BLOCK} x {BLOCK}", mask, held / total)

    def _pattern(self, kind: str, mask: Mask, held: Tensor) -> tuple[str, Mask, float, float]:
        own = self.seen.mask
        joined = mask if own is None else own & mask
        alike = (joined.batch or 1) * (joined.heads or 1)
        pairs = joined.pairs(self.q, self.k) / alike / max(1, self.visible)
        return kind, joined, min(1.0, float(held.min())), pairs

    def _columns_outside(self, width: int) -> Float[Tensor, "heads k"]:
        """The weight that each key receives from queries farther away than a window."""
        p = self.seen.problem
        far = ~Window(width) if p.mask is None else p.mask & ~Window(width)
        with torch.no_grad():
            found = summarise(replace(p, mask=far), self.seen.lse, {"mass": ColumnMass()})
        return found["mass"][0].double()

    def _block_cells(self) -> Tensor:
        rows, cols = (
            torch.tensor([min(BLOCK, n - start) for start in range(0, n, BLOCK)], dtype=torch.float64)
            for n in (self.q, self.k)
        )
        return rows[:, None] * cols


def _by_distance(curve: Any) -> Float[Tensor, "heads distances"]:
    """The weight at each distance, on either side of the query."""
    mass = (curve.mean * curve.count)[0].double()
    distance = curve.distance.abs().long()
    return mass.new_zeros(mass.shape[0], int(distance.max()) + 1).index_add_(1, distance, mass)


def _heaviest(mass: Float[Tensor, "heads some"], wanted: Float[Tensor, " heads"]) -> list[int] | None:
    """The union over heads of the fewest heaviest entries that hold the wanted share; None if all entries
    together don't."""
    if bool((mass.sum(-1) < wanted).any()):
        return None
    order = mass.sort(dim=-1, descending=True)
    held = order.values.cumsum(-1)
    counts = (held < wanted[:, None]).sum(-1) + (wanted > 0)
    chosen = {
        key for row, count in zip(order.indices, counts.tolist(), strict=True) for key in row[:count].tolist()
    }
    return sorted(chosen)


def _blocks(table: Tensor, offset: int) -> Mask:
    """Blocks of BLOCK × BLOCK cells that may attend; query row i is at position i + offset."""

    def allowed(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return table.to(q_idx.device)[q_idx // BLOCK, kv_idx // BLOCK]

    return Where(allowed, offset)
