"""Writes a corpus atlas as Parquet, and as a folder of JSON for web pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.cards.tables import writable
from regard.corpus.heads import CorpusHead
from regard.corpus.state import plain
from regard.errors import CorpusError

__all__ = ["flat_rows", "write_folder", "write_parquet"]

FORMAT = 1


def flat_rows(heads: Sequence[CorpusHead]) -> list[dict[str, Any]]:
    """One flat dict per head; keys are identifiers, and missing values are None."""
    rows = []
    for head in heads:
        row: dict[str, Any] = {"stack": head.stack, "layer": head.layer, "head": head.head, "kind": head.kind}
        for name, share in head.kinds.items():
            column = name.replace(" ", "_").replace("-", "_")
            row |= {f"{column}_share": share.value, f"{column}_low": share.low, f"{column}_high": share.high}
            row |= {f"{column}_documents": share.documents, f"{column}_score": head.scores[name]}
        for name, mean in head.measures.items():
            row |= {
                name: mean.value,
                f"{name}_half_width": mean.half_width,
                f"{name}_documents": mean.documents,
            }
        rows.append(row)
    return rows


def write_parquet(heads: Sequence[CorpusHead], path: Path) -> None:
    """The columns of `flat_rows`, typed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise CorpusError(
            f"writing {path} needs pyarrow, which cannot be imported here ({error}). "
            'Install it with: pip install "regard[parquet]".'
        ) from error
    table = pyarrow.Table.from_pylist(flat_rows(heads))
    with writable(path) as draft, draft.open("wb") as file:
        pyarrow.parquet.write_table(table, file)


def write_folder(about: dict[str, Any], heads: Sequence[CorpusHead], folder: Path) -> None:
    """`corpus.json` about all heads, `scatter.json` with a point per head, `heads/L5H2.json` for each."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CorpusError(f"{folder} exists and is not an empty folder; nothing is overwritten.")
    (folder / "heads").mkdir(parents=True, exist_ok=True)
    names = {f"L{head.layer}H{head.head}": head for head in heads}
    points = [
        {"name": name, "layer": head.layer, "head": head.head, "kind": head.kind}
        | {measure: mean.to_dict() for measure, mean in head.measures.items()}
        for name, head in names.items()
    ]
    files = {f"heads/{name}.json": head.to_dict() for name, head in names.items()}
    files |= {"scatter.json": points, "corpus.json": {**about, "format": FORMAT, "heads": list(names)}}
    for name, value in files.items():
        with writable(folder / name) as draft:
            draft.write_bytes(plain(value))
