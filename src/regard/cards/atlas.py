"""`Atlas`: the survey of a model's heads, one card per head."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cards.card import Finding, HeadCard
from regard.cards.tables import flat_rows, rich_table, writable, write_csv, write_parquet
from regard.errors import RecordingError
from regard.extension import extension_point

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from rich.table import Table

__all__ = ["Atlas"]

FORMAT = 1


@dataclass(frozen=True, repr=False)
class Atlas:
    """The survey of every head of a model on one text, made by `atlas(recording)` or `recording.atlas()`.

    >>> card = HeadCard("decoder", 0, 0, {"self": Finding("self", 0.9, 0.3, "0.90 of the weight")}, {})
    >>> seen = Atlas("TinyLlama", 128, (card,))
    >>> seen
    Atlas(TinyLlama, 1 head, 128 tokens: 1 self)
    >>> seen.of(0, 0).kinds, seen.kinds
    (('self',), {'self': (HeadCard(decoder 0.0: self 0.90),)})
    """

    model: str
    tokens: int
    heads: tuple[HeadCard, ...]

    @property
    def kinds(self) -> dict[str, tuple[HeadCard, ...]]:
        """The heads of each kind that has any, best first."""
        names = self.heads[0].findings if self.heads else ()
        found = {kind: [card for card in self.heads if kind in card.kinds] for kind in names}
        return {
            kind: tuple(sorted(cards, key=lambda card: -(card.score(kind) or 0)))
            for kind, cards in found.items()
            if cards
        }

    def of(self, layer: int, head: int, stack: str | None = None) -> HeadCard:
        """The card of one head; of the first stack, unless one is named."""
        stacks = list(dict.fromkeys(card.stack for card in self.heads))
        role = stack or stacks[0]
        if role not in stacks:
            raise RecordingError(f"the atlas has no {role}; its stacks are: {', '.join(stacks)}.")
        cards = [card for card in self.heads if card.stack == role]
        layers = sorted({card.layer for card in cards})
        if layer not in layers:
            known = ", ".join(map(str, layers))
            raise RecordingError(f"the {role} has no layer {layer} in this atlas; its layers are: {known}.")
        in_layer = {card.head: card for card in cards if card.layer == layer}
        if head not in in_layer:
            last = max(in_layer)
            raise RecordingError(
                f"layer {layer} of the {role} has no head {head}; its heads are 0 to {last}."
            )
        return in_layer[head]

    def to_dict(self) -> dict[str, Any]:
        """The atlas as plain data, which `json.dumps` takes."""
        return {
            "format": FORMAT,
            "model": self.model,
            "tokens": self.tokens,
            "heads": [card.to_dict() for card in self.heads],
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict per head: its kinds, each kind's score, its statistics."""
        return flat_rows(self.heads)

    def table(self, kind: str | None = None) -> Table:
        """The atlas for the terminal: `rich.print(atlas.table())`; `kind` keeps its heads, best first."""
        heads = self.heads if kind is None else self.kinds.get(kind, ())
        return rich_table(f"{self.model}, {self.tokens} tokens", heads, kind)

    def to_csv(self, path: str | Path) -> None:
        """Write one line per head."""
        write_csv(self.heads, Path(path))

    def to_parquet(self, path: str | Path) -> None:
        """Write one row per head; needs pyarrow."""
        write_parquet(self.heads, Path(path))

    @extension_point
    def to_pandas(self) -> pandas.DataFrame:
        """One row per head, as `rows`."""
        ...

    @extension_point
    def to_arrow(self) -> pyarrow.Table:  # pyright: ignore[reportUnknownParameterType]
        """One row per head, as `rows`."""
        ...

    @extension_point
    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        ...

    def save(self, path: str | Path) -> None:
        """Write it as JSON; `Atlas.load` reads it."""
        with writable(Path(path)) as draft:
            draft.write_text(
                json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False), encoding="utf-8"
            )

    @staticmethod
    def load(path: str | Path) -> Atlas:
        """Read a file that `save` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
            if data["format"] > FORMAT:
                raise RecordingError(
                    f"{path} has format {data['format']} and this regard reads up to {FORMAT}. "
                    "Upgrade regard."
                )
            return Atlas(data["model"], data["tokens"], tuple(_card(card) for card in data["heads"]))
        except OSError as error:
            raise RecordingError(f"{path} cannot be read: {error.strerror}.") from error
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise RecordingError(
                f"{path} is not an atlas that regard saved ({error!r}); make one with atlas.save(path)."
            ) from error

    def __repr__(self) -> str:
        count = Counter(kind for card in self.heads for kind in card.kinds)
        kinds = ", ".join(f"{number} {kind}" for kind, number in count.most_common()) or "no kinds"
        heads = "1 head" if len(self.heads) == 1 else f"{len(self.heads)} heads"
        return f"Atlas({self.model}, {heads}, {self.tokens} tokens: {kinds})"


def _card(data: dict[str, Any]) -> HeadCard:
    findings = {kind: Finding(**finding) for kind, finding in data["findings"].items()}
    return HeadCard(data["stack"], data["layer"], data["head"], findings, data["statistics"])
