"""Tables of an atlas for the terminal, spreadsheets and data frames."""

from __future__ import annotations

import csv
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cards.card import HeadCard
from regard.errors import RecordingError, RegardError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["flat_rows", "rich_table", "writable", "write_csv", "write_parquet"]


def flat_rows(heads: Sequence[HeadCard]) -> list[dict[str, Any]]:
    """One flat dict per head; keys are identifiers, and missing values are None."""
    return [
        {
            "stack": card.stack,
            "layer": card.layer,
            "head": card.head,
            "kinds": "; ".join(card.kinds),
            **{_column(kind): finding.score for kind, finding in card.findings.items()},
            **card.statistics,
        }
        for card in heads
    ]


def rich_table(title: str, heads: Sequence[HeadCard], kind: str | None = None) -> Table:
    """One row per head: its kinds, the evidence for the best of them or for `kind`, and a few numbers."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in ("layer", "head"):
        table.add_column(name, justify="right")
    table.add_column("kinds")
    table.add_column("evidence", overflow="fold")
    for name in ("entropy", "distance", "sink", "γ"):
        table.add_column(name, justify="right")
    several = len({card.stack for card in heads}) > 1
    for card in heads:
        numbers = (card.statistics.get(n) for n in ("entropy", "mean_distance", "sink_mass", "gamma"))
        kinds = ", ".join(f"{name} {card.score(name):.2f}" for name in card.kinds)
        evidence = card.evidence
        table.add_row(
            f"{card.stack} {card.layer}" if several else str(card.layer),
            str(card.head),
            kinds or "–",
            evidence.get(kind or "", next(iter(evidence.values()), "")),
            *("–" if number is None else f"{number:.2f}" for number in numbers),
        )
    return table


def write_csv(heads: Sequence[HeadCard], path: Path) -> None:
    """One line per head, with a header; missing values are empty cells."""
    rows = flat_rows(heads)
    with writable(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["stack", "layer", "head", "kinds"])
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(heads: Sequence[HeadCard], path: Path) -> None:
    """The same columns as `write_csv`, typed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise RegardError(
            f"writing {path} needs pyarrow, which cannot be imported here ({error}). "
            'Install it with: pip install "regard[parquet]", or write CSV.'
        ) from error
    table = pyarrow.Table.from_pylist(flat_rows(heads))
    with writable(path) as draft, draft.open("wb") as file:
        pyarrow.parquet.write_table(table, file)


@contextmanager
def writable(path: Path) -> Generator[Path]:
    """Yield a temporary path that is renamed to the file afterwards; a crash leaves the old file or the new
    one."""
    draft = path.with_name(path.name + ".part")
    try:
        yield draft
        draft.replace(path)
    except OSError as error:
        raise RecordingError(
            f"{path} cannot be written: {error.strerror}. Name a file in a folder that exists."
        ) from error
    finally:
        draft.unlink(missing_ok=True)


def _column(kind: str) -> str:
    return kind.replace(" ", "_").replace("-", "_")
