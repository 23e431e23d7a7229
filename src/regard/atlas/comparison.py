"""Compares two atlases: of one model on two texts, or of two models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.atlas.results import plain, table_of
from regard.cards import Atlas, HeadCard
from regard.errors import RecordingError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Change", "Comparison", "compare"]

STATISTICS = ("entropy", "top_weight", "sink_mass", "mean_distance")
# The statistics that fit beside the kinds in 80 columns; `to_dict` has all.
SHOWN = {"entropy": "entropy", "sink_mass": "sink", "mean_distance": "distance"}
# Below so many tokens most kinds cannot be distinguished from chance.
FEW = 64


@dataclass(frozen=True)
class Change:
    """One head in two atlases: how much it changed, and its kinds in each.

    `distance` is the largest change of any kind's score, from 0 to 1.
    """

    stack: str
    layer: int
    head: int
    distance: float
    kinds: tuple[tuple[str, ...], tuple[str, ...]]
    statistics: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Comparison:
    """How many heads of each kind two atlases have; head by head where they have the same heads.

    >>> from regard.cards import Finding
    >>> def one(score):
    ...     return Atlas("m", 9, (HeadCard("decoder", 0, 0, {"self": Finding("self", score, 0.3, "")}, {}),))
    >>> print(compare(one(0.9), one(0.1)).summary().replace(". ", ".\\n"))
    A and B have the same heads; head 0.0 moved most, by 0.80.
    A and B have 9 tokens each, and below 64 few kinds show.
    """

    names: tuple[str, str]
    tokens: tuple[int, int]
    heads: tuple[int, int]
    kinds: dict[str, tuple[int, int]]
    means: dict[str, tuple[float, float]]
    changes: tuple[Change, ...]

    def kinds_table(self) -> Table:
        """Heads of each kind, and statistics averaged over heads, for Rich."""
        rows = [[kind, str(a), str(b)] for kind, (a, b) in self.kinds.items()]
        means = {f"mean {name.removeprefix('mean_')}": values for name, values in self.means.items()}
        rows += [[name.replace("_", " "), f"{a:.3f}", f"{b:.3f}"] for name, (a, b) in means.items()]
        return table_of("heads of each kind", ["", *self.names], [["heads", *map(str, self.heads)], *rows])

    def heads_table(self, top: int = 10) -> Table:
        """The heads that changed most, for Rich."""
        shown = {
            name: title for name, title in SHOWN.items() if all(name in c.statistics for c in self.changes)
        }
        rows = [
            [self._name_of(change), f"{change.distance:.2f}", _kinds_of(change)]
            + ["{:.2f} → {:.2f}".format(*change.statistics[name]) for name in shown]
            for change in self.changes[:top]
        ]
        table = table_of("heads that moved most", ["head", "moved", "kinds", *shown.values()], rows)
        # In a narrow terminal the kinds wrap; numbers are never cut.
        kinds = table.columns[2]
        kinds.no_wrap, kinds.justify = False, "left"
        return table

    def summary(self) -> str:
        """The heads that changed most, and whether the texts are long enough to tell."""
        a, b = self.names
        if not self.changes:
            counts = " and ".join(map(str, self.heads))
            return f"{a} and {b} have different heads, {counts}, so only their kinds compare.{self._doubt()}"
        most = self.changes[0]
        found = f"head {self._name_of(most)} moved most, by {most.distance:.2f}"
        if f"{most.distance:.2f}" == "0.00":
            found = "no head's score changed by 0.01 or more, in any kind"
        return f"{a} and {b} have the same heads; {found}.{self._doubt()}"

    def _name_of(self, change: Change) -> str:
        """Layer and head, with the stack if there are several."""
        place = f"{change.layer}.{change.head}"
        several = len({other.stack for other in self.changes}) > 1
        return f"{change.stack} {place}" if several else place

    def _doubt(self) -> str:
        """A warning if a text is too short for most kinds, otherwise nothing."""
        few = {name: n for name, n in zip(self.names, self.tokens, strict=True) if n < FEW}
        if not few:
            return ""
        if len(few) == 2 and len(set(few.values())) == 1:
            said = f"{' and '.join(few)} have {self.tokens[0]} tokens each"
        else:
            said = " and ".join(f"{name} has {n} tokens" for name, n in few.items())
        return f" {said}, and below {FEW} few kinds show."

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `json.dumps` takes."""
        return plain(self)


def compare(first: Atlas, second: Atlas, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare two atlases: of one model on two texts, or of two models."""
    for atlas, name in zip((first, second), names, strict=True):
        if not atlas.heads:
            raise RecordingError(f"{name} has no heads to compare; record at least one layer.")
    every = dict.fromkeys([*first.kinds, *second.kinds])
    pairs = [tuple(len(atlas.kinds.get(kind, ())) for atlas in (first, second)) for kind in every]
    places = [[(card.stack, card.layer, card.head) for card in atlas.heads] for atlas in (first, second)]
    changes = []
    if places[0] == places[1]:
        changes = [_change(a, b) for a, b in zip(first.heads, second.heads, strict=True)]
        changes.sort(key=lambda change: -change.distance)
    return Comparison(
        names=names,
        tokens=(first.tokens, second.tokens),
        heads=(len(first.heads), len(second.heads)),
        kinds={kind: (a, b) for kind, (a, b) in zip(every, pairs, strict=True)},
        means={name: pair for name in STATISTICS if (pair := _means(first, second, name)) is not None},
        changes=tuple(changes),
    )


def _kinds_of(change: Change) -> str:
    """The kinds of a head, with an arrow where they changed."""
    before, after = (", ".join(kinds) or "–" for kinds in change.kinds)
    return before if before == after else f"{before} → {after}"


def _change(a: HeadCard, b: HeadCard) -> Change:
    scores = [(a.score(kind), b.score(kind)) for kind in a.findings if kind in b.findings]
    known = [abs(x - y) for x, y in scores if x is not None and y is not None]
    shared = [name for name in STATISTICS if _numbers(a, b, name) is not None]
    return Change(
        a.stack,
        a.layer,
        a.head,
        max(known, default=0.0),
        (a.kinds, b.kinds),
        {name: (a.statistics[name], b.statistics[name]) for name in shared},
    )


def _numbers(a: HeadCard, b: HeadCard, name: str) -> tuple[float, float] | None:
    one, other = a.statistics.get(name), b.statistics.get(name)
    return None if one is None or other is None else (one, other)


def _means(first: Atlas, second: Atlas, name: str) -> tuple[float, float] | None:
    """A statistic averaged over the heads that have it, in each atlas."""
    found = []
    for atlas in (first, second):
        values = [card.statistics[name] for card in atlas.heads if card.statistics.get(name) is not None]
        if not values:
            return None
        found.append(sum(values) / len(values))
    return found[0], found[1]
