"""Notebook displays of recordings, atlases and knock-outs."""

from __future__ import annotations

from regard.atlas import Knockout
from regard.cards import Atlas
from regard.display.page import cell
from regard.extension import implements
from regard.models import Recording

__all__: list[str] = []

EXCERPT = 160


@implements(Recording._repr_html_)
def _show_recording(self: Recording) -> str:
    tokens = next((f"{ids.shape[1]:,} tokens" for ids in self.token_ids.values()), "no tokens")
    facts = f"{self.model.kind}, {tokens}" + ("" if self.complete else ", partial: the run was cut short")
    rows = []
    for role, stack in self.stacks.items():
        layers = list(stack.values())
        heads = " or ".join(map(str, sorted({layer.lse.shape[1] for layer in layers})))
        rows.append([role, len(layers), heads, ", ".join(layers[0].stats)])
    text = (self.text or "").strip()
    excerpt = text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(" ", 1)[0] + " …"
    title = f"Recording of {self.model.label}"
    return cell("recording.html", title, facts, excerpt=excerpt, rows=rows)


@implements(Atlas._repr_html_)
def _show_atlas(self: Atlas) -> str:
    counts = [
        [kind, len(cards), f"{cards[0].layer}.{cards[0].head}", cards[0].evidence[kind]]
        for kind, cards in self.kinds.items()
    ]
    found = [card for card in self.heads if card.kinds]
    several = len({card.stack for card in self.heads}) > 1
    heads = [
        [
            f"{card.stack + ' ' if several else ''}{card.layer}.{card.head}",
            ", ".join(f"{kind} {card.score(kind):.2f}" for kind in card.kinds),
            next(iter(card.evidence.values())),
        ]
        for card in found
    ]
    facts = f"{self.model}, {len(self.heads)} heads, {self.tokens:,} tokens"
    return cell("atlas.html", "Atlas", facts, kinds=counts, heads=heads)


@implements(Knockout._repr_html_)
def _show_knockout(self: Knockout) -> str:
    rows = [
        [
            (repr(row["text"]) if row["text"] is not None else f"#{row['id']}")
            + (" ←" if row["target"] else ""),
            f"{row['before']:.2%}",
            f"{row['after']:.2%}",
            f"{row['logit_change']:+.2f}",
        ]
        for row in self.rows()
    ]
    return cell("knockout.html", "Knockout", str(self), rows=rows, target=self.target is not None)
