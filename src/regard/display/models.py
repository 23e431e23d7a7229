"""How a notebook shows recordings, atlases and knock-outs."""

from __future__ import annotations

from html import escape

from regard.atlas import Knockout
from regard.cards import Atlas
from regard.display.page import page, table
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
    said = text if len(text) <= EXCERPT else text[:EXCERPT].rsplit(" ", 1)[0] + " …"
    quote = f'<blockquote style="margin:.5em 1em;opacity:.8">{escape(said)}</blockquote>' if said else ""
    hint = "<p>Look at it with <code>.show()</code>; what each head does: <code>.atlas()</code>.</p>"
    return page(
        f"Recording of {self.model.label}",
        facts,
        quote,
        table(["stack", "layers", "heads", "statistics"], rows),
        hint,
    )


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
    listed = table(["head", "kinds", "evidence"], heads)
    details = f"<details><summary>{len(found)} heads of a kind</summary>{listed}</details>"
    facts = f"{self.model}, {len(self.heads)} heads, {self.tokens:,} tokens"
    return page("Atlas", facts, table(["kind", "heads", "clearest", "its evidence"], counts), details)


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
    note = "" if self.target is None else "<p>← the token that comes next in the text</p>"
    return page("Knockout", str(self), table(["next token", "before", "after", "Δ logit"], rows), note)
