"""Tables of a corpus atlas for the terminal, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.corpus.heads import CorpusHead
from regard.corpus.intervals import Mean, Share
from regard.errors import CorpusError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


__all__ = ["failed_table", "firing", "heads_table"]

# The columns of means, with their measures.
MEANS = {"entropy": "entropy", "distance": "mean_distance", "sink": "sink_share", "delim.": "delimiter_share"}


def heads_table(title: str, heads: Sequence[CorpusHead], kind: str | None = None) -> Table:
    """One row per head; with `kind`, only heads of that kind, largest share first.

    A kind's share of the documents has its 95 % interval; the other numbers are means over documents.
    """
    from rich.table import Table

    if kind is not None:
        heads[0].share(kind)
        heads = sorted(
            (head for head in heads if head.share(kind).found), key=lambda h: -(h.share(kind).value or 0)
        )
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("head", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    cut = any(head.measures["importance"].value is not None for head in heads)
    means = MEANS | ({"cut costs": "importance"} if cut else {})
    for name in ("documents", *means):
        table.add_column(name, justify="right", no_wrap=True)
    for head in heads:
        name = kind or _leading(head)
        share = None if name is None else head.kinds[name]
        values = [_mean(head.measures[measure]) for measure in means.values()]
        table.add_row(f"{head.layer}.{head.head}", name or "–", _share(share), *values)
    return table


def firing(head: CorpusHead) -> Group:
    """The texts with a head's strongest cells: the text, the two tokens, and the words before them."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text(f"Layer {head.layer}, head {head.head}: the texts where it moves most", style="bold")]
    if not head.top:
        raise CorpusError(f"layer {head.layer}, head {head.head} moves nothing in any document.")
    for rank, entry in enumerate(head.top):
        cell = entry["cells"][0]
        line = Text(f"{rank:>2}  {entry['name']}, token {entry['start'] + cell['query']}: ", overflow="fold")
        line.append(_shown(entry["query_text"]), style="bold")
        line.append(" → ")
        line.append(_shown(entry["key_text"]), style="bold")
        line.append(f", weight {cell['weight']:.2f}\n    ")
        line.append(_shown(entry["excerpt"]), style="dim")
        lines.append(line)
    return Group(*lines)


def failed_table(failed: Sequence[dict[str, Any]]) -> Table:
    """The documents that could not be read, with the reason."""
    from rich.table import Table

    table = Table(title=f"{len(failed)} not read", title_justify="left", box=None, pad_edge=False)
    table.add_column("document", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for entry in failed:
        table.add_row(entry["name"], entry["reason"])
    return table


def _leading(head: CorpusHead) -> str | None:
    """The kind with the largest share, even if below a half; None if all shares are 0."""
    found = [(share.value or 0, name) for name, share in head.kinds.items() if share.found]
    return max(found)[1] if found else None


def _share(share: Share | None) -> str:
    if share is None or share.value is None:
        return "–"
    return f"{share.value:.0%} ({100 * share.low:.0f}–{100 * share.high:.0f})"


def _mean(mean: Mean) -> str:
    if mean.value is None:
        return "–"
    return f"{mean.value:.{2 if abs(mean.value) < 10 else 0}f}"


def _shown(text: str) -> str:
    return text.replace("\n", "⏎").strip(" ") or "␣"
