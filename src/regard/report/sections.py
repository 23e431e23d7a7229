"""The sections of a report; each function renders a template with data of the draft."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas import Atlas, DecayFit, HeadCard, Profile, decay, position_profile
from regard.models import Layer, Recording
from regard.plots import curves
from regard.report.page import render
from regard.report.pictures import block_of, labels_of, png_of, svg_of, thumbnail, zoomed
from regard.report.words import CAVEATS, KIND_SENTENCES
from regard.stats import ColumnMass, Pooled

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

__all__ = ["SECTIONS", "Draft"]

# Blocks along the side of a thumbnail, and of the enlarged part in cells.
THUMB, INSET = 64, 28
# The most heads in the grid, and the number of layers to show if there are more.
GRID_LAYERS = 24
# Kinds whose heavy cells are far from the diagonal and from the first keys.
FAR = ("duplicate token", "induction", "retrieval")
EXCERPT = 280
DECAY = "Decay with distance"


class Overview(NamedTuple):
    """A layer's maps pooled by maximum, and the total weight of each key."""

    pooled: Float[Tensor, "heads rows columns"]
    mass: Float[Tensor, "heads k"]


@dataclass
class Draft:
    """The data that sections share: the recording, its atlas, its main stack, and the folder for figures."""

    recording: Recording
    atlas: Atlas
    figures: Path | None = None
    drawn: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"What {'the bundled model' if self.model == 'bundled' else self.model} attended to"

    @property
    def model(self) -> str:
        """The name of the model: from the atlas, unless that has only the class."""
        identity, named = self.recording.model, self.atlas.model
        return named if named not in ("", identity.kind) else identity.label or identity.kind

    @cached_property
    def stack(self) -> str:
        """The main stack, which is drawn."""
        return self.recording.layers.role

    @cached_property
    def cards(self) -> list[HeadCard]:
        return [card for card in self.atlas.heads if card.stack == self.stack]

    @cached_property
    def tokens(self) -> list[str] | None:
        """The tokens as visible text."""
        return labels_of(self.recording)

    @cached_property
    def fits(self) -> list[DecayFit]:
        return decay(self.recording, stack=self.stack)

    @cached_property
    def profile(self) -> Profile | None:
        keys = min(layer.map.shape[3] for layer in self.recording.layers.values())
        return position_profile(self.recording, min(20, keys), stack=self.stack) if keys >= 4 else None

    @cached_property
    def overviews(self) -> dict[int, Overview]:
        """Statistics of whole layers, from one pass over the maps of each."""
        found = {}
        for index, seen in self.recording.maps.items():
            stats = seen.stats(Pooled(block_of(seen), "max"), ColumnMass())
            found[index] = Overview(stats["pooled"][0].cpu(), stats["column_mass"][0].double().cpu())
        return found

    def layer(self, index: int) -> Layer:
        return self.recording.layers[index]

    def figure(self, name: str, figure: Figure, caption: str, *, raster: bool = False) -> Markup:
        """Add a figure to the page, and to the folder of figures if there is one."""
        self.drawn.append(name)
        if self.figures is not None:
            for ending in ("png", "svg"):
                figure.savefig(self.figures / f"{name}.{ending}")
                # Layout takes as long as drawing, so do it once for all formats.
                figure.set_layout_engine("none")
        given = {"png": png_of(figure), "svg": ""} if raster else {"png": "", "svg": svg_of(figure)}
        return render("figure.html", caption=caption, **given)


def header(draft: Draft) -> Markup:
    """The model and its text."""
    recording, atlas = draft.recording, draft.atlas
    heads = sorted({draft.layer(index).map.shape[1] for index in recording.layers})
    facts = {
        "model": draft.model,
        "architecture": recording.model.kind,
        "layers": str(len(recording.layers)),
        "heads per layer": " or ".join(map(str, heads)),
        "tokens": f"{atlas.tokens:,}",
    }
    text = _excerpt(recording.text or "")
    return render("header.html", title=draft.title, complete=recording.complete, facts=facts, text=text)


def at_a_glance(draft: Draft) -> Markup:
    """The kinds of heads that were found, as sentences with counts."""
    kinds = {kind: [c for c in cards if c.stack == draft.stack] for kind, cards in draft.atlas.kinds.items()}
    kinds = {kind: cards for kind, cards in kinds.items() if cards}
    rows = [
        [kind, str(len(cards)), f"{cards[0].layer}.{cards[0].head}", cards[0].evidence[kind]]
        for kind, cards in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]
    of_a_kind = sum(bool(card.kinds) for card in draft.cards)
    return render("at_a_glance.html", rows=rows, heads=len(draft.cards), of_a_kind=of_a_kind)


def grid(draft: Draft) -> Markup:
    """The atlas: every head as a thumbnail."""
    layers = list(draft.recording.layers)
    rows = []
    for index in layers[:GRID_LAYERS]:
        pooled = _thumbs(draft.overviews[index].pooled)
        cards = [draft.atlas.of(index, head, draft.stack) for head in range(len(pooled))]
        rows.append((index, [(c, _title(c), thumbnail(x)) for c, x in zip(cards, pooled, strict=True)]))
    return render("grid.html", rows=rows, layers=len(layers))


def telling_heads(draft: Draft) -> Markup:
    """The clearest head of each kind, large."""
    parts = []
    for kind, cards in draft.atlas.kinds.items():
        best = next((card for card in cards if card.stack == draft.stack), None)
        if best is None:
            continue
        name = f"{kind.replace(' ', '-')}-{best.layer}.{best.head}"
        caption = (
            f"Layer {best.layer}, head {best.head}: {kind} {best.score(kind):.2f}. {best.evidence[kind]}."
        )
        sentence = KIND_SENTENCES.get(kind, "")
        picture = draft.figure(name, _large(draft, best, kind), caption, raster=True)
        parts.append((kind.capitalize(), sentence, picture))
    return render("telling_heads.html", heads=parts)


def distances(draft: Draft) -> Markup:
    """The decay of weight with distance."""
    fits = [fit for fit in draft.fits if fit.gamma is not None]
    if not fits:
        why = draft.fits[0].refused if draft.fits else None
        sentence = f"No decay was fitted: {why or 'there are no heads'}."
        return render("sentence.html", title=DECAY, sentence=sentence, picture="")
    lines = {_name(fit): _thinned(fit) for fit in fits}
    ordered = sorted(fits, key=lambda fit: fit.gamma or 0.0)
    telling = [_name(ordered[place]) for place in dict.fromkeys((0, len(ordered) // 2, len(ordered) - 1))]
    figure = curves(
        lines, x_title="distance", y_title="mean weight", logarithmic=True, emphasis=telling, title="decay"
    )
    power = sum(fit.better == "power law" for fit in fits)
    exponential = sum(fit.better == "exponential" for fit in fits)
    gammas = [fit.gamma or 0.0 for fit in ordered]
    sentence = (
        f"A power law A(d) ∝ d^−γ describes {power} of {len(fits)} heads better than an exponential does, an "
        f"exponential {exponential}, and neither stands out in the rest. γ runs from {gammas[0]:.2f} to "
        f"{gammas[-1]:.2f}, with {gammas[len(gammas) // 2]:.2f} in the middle."
    )
    caption = f"Mean weight by distance, over the last {fits[0].queries} queries; one line per head."
    picture = draft.figure("decay", figure, caption)
    return render("sentence.html", title=DECAY, sentence=sentence, picture=picture)


def positions(draft: Draft) -> Markup | None:
    """The position profile of the last queries; empty for fewer than four keys."""
    profile = draft.profile
    if profile is None:
        return None
    middle = [100 * (a + b) / 2 for a, b in zip(profile.edges, profile.edges[1:], strict=False)]
    lines = {
        f"{layer}.{head}": (middle, row)
        for (_, layer, head), row in zip(profile.heads, profile.mass.tolist(), strict=True)
    }
    lines["mean of all heads"] = (middle, profile.model.tolist())
    lines["an even spread"] = (middle, profile.even.mean(0).tolist())
    figure = curves(
        lines,
        x_title="position in the context, %",
        y_title="share of the weight",
        emphasis=["mean of all heads", "an even spread"],
    )
    bins = profile.model
    third = max(1, len(bins) // 3)
    parts = [float(part.sum()) for part in (bins[:third], bins[third:-third], bins[-third:])]
    sentence = (
        f"The last {profile.queries} queries give {parts[0]:.0%} of their weight to the first third of the "
        f"context, {parts[1]:.0%} to the middle and {parts[2]:.0%} to the last, on average over heads."
    )
    caption = "Share of weight by position, one pale line per head."
    picture = draft.figure("positions", figure, caption)
    return render("sentence.html", title="Position in the context", sentence=sentence, picture=picture)


def heavy_tokens(draft: Draft) -> Markup:
    """Sinks and heavy hitters: the keys with the most weight."""
    seen = [draft.layer(index).map for index in draft.overviews]
    masses = [
        each.mass.mean(0) / max(1, whole.shape[2])
        for each, whole in zip(draft.overviews.values(), seen, strict=True)
    ]
    mean = torch.stack(masses).mean(0)
    top = mean.topk(min(10, len(mean)))
    tokens = draft.tokens
    rows = [
        [
            "" if tokens is None or key >= len(tokens) else tokens[key],
            str(key),
            f"{mass:.2%}",
            f"{mass * len(mean):.1f} ×",
        ]
        for mass, key in zip(top.values.tolist(), top.indices.tolist(), strict=True)
    ]
    sink = max(draft.cards, key=lambda card: card.statistics["sink_mass"], default=None)
    return render("heavy_tokens.html", rows=rows, sink=sink)


def caveats(draft: Draft) -> Markup:
    """The caveats: what the report doesn't show."""
    return render("caveats.html", caveats=CAVEATS)


SECTIONS: tuple[Callable[[Draft], Markup | None], ...] = (
    header,
    at_a_glance,
    grid,
    telling_heads,
    distances,
    positions,
    heavy_tokens,
    caveats,
)


def _title(card: HeadCard) -> str:
    return f"layer {card.layer}, head {card.head}: {', '.join(card.kinds) or 'no kind'}"


def place_of(kind: str, pooled: Float[Tensor, "rows columns"], size: int, shift: int) -> tuple[int, int]:
    """The centre of the part to enlarge: for a sink at the first keys, for long-distance kinds not near the
    diagonal.

    Late rows are searched, because they have the whole context before them.
    """
    rows, columns = (torch.arange(n) for n in pooled.shape)
    late = (rows >= len(pooled) // 2)[:, None].expand_as(pooled)
    distance = rows[:, None] * size + shift - columns * size
    if kind == "first-token sink":
        allowed = late & (columns == 0)
    elif kind in FAR:
        allowed = late & (distance > INSET) & (columns * size > INSET)
    else:
        allowed = late & (columns >= pooled.shape[1] // 4)
    index = int((pooled.masked_fill(~allowed, -1.0) if bool(allowed.any()) else pooled).argmax())
    return index // pooled.shape[1] * size + size // 2, index % pooled.shape[1] * size + size // 2


def _large(draft: Draft, card: HeadCard, kind: str) -> Figure:
    """The whole map of a head, with an enlargement of the heaviest part that is typical of its kind."""
    seen = draft.layer(card.layer).map
    size, pooled = block_of(seen), draft.overviews[card.layer].pooled[card.head]
    row, column = place_of(kind, pooled, size, seen.shape[3] - seen.shape[2])
    title = f"layer {card.layer}, head {card.head}"
    return zoomed(seen, card.head, pooled, (row, column), INSET, labels=draft.tokens, title=title)


def _thumbs(pooled: Float[Tensor, "heads rows columns"]) -> Float[Tensor, "heads rows columns"]:
    """Reduce pooled maps to thumbnails, again by maximum."""
    step = -(-max(pooled.shape[1:]) // THUMB)
    return torch.nn.functional.max_pool2d(pooled[None], step, ceil_mode=True)[0]


def _thinned(fit: DecayFit) -> tuple[list[float], list[float]]:
    """A curve reduced to distances that are evenly spaced on a logarithmic axis."""
    last = len(fit.distance) - 1
    places = sorted({round(last ** (step / 80)) for step in range(81)})
    kept = [
        (int(fit.distance[p]), float(fit.weight[p])) for p in places if 0 < p <= last and fit.weight[p] > 0
    ]
    return [d for d, _ in kept], [w for _, w in kept]


def _name(fit: DecayFit) -> str:
    return f"{fit.layer}.{fit.head}, γ = {fit.gamma:.2f}"


def _excerpt(text: str) -> str:
    text = text.strip()
    return text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(None, 1)[0] + " …"
