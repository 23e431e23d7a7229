"""Documents in columns: Parquet files, and the Arrow files of a `datasets` folder. Both need pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.corpus.texts.source import Record, file_mark
from regard.errors import CorpusError

__all__ = ["ArrowFile", "ParquetFile", "arrow_files"]


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise CorpusError(
            f"reading {path} needs pyarrow, which cannot be imported here ({error}). "
            'Install it with: pip install "regard[parquet]", or give JSON lines.'
        ) from error
    return pyarrow


class ParquetFile:
    """A Parquet file with one column that holds the text."""

    def __init__(self, path: Path, field: str) -> None:
        self.path, self.field = path, field

    @cached_property
    def _file(self) -> Any:
        pyarrow = _pyarrow(self.path)
        try:
            opened = pyarrow.parquet.ParquetFile(self.path)
        except (OSError, pyarrow.ArrowException) as error:
            raise CorpusError(f"{self.path} cannot be read: {str(error).splitlines()[0]}") from error
        _check_column(self.path, self.field, opened.schema_arrow.names)
        return opened

    @property
    def count(self) -> int:
        return self._file.metadata.num_rows

    @property
    def mark(self) -> dict[str, Any]:
        return {**file_mark(self.path), "documents": self.count}

    def records(self, start: int, stop: int) -> Iterator[Record]:
        first = 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if first < stop and start < first + rows:
                column = self._file.read_row_group(group, columns=[self.field]).column(0)
                low, high = max(0, start - first), min(rows, stop - first)
                yield from _records(column.slice(low, high - low), self.path, self.field, first + low)
            first += rows


class ArrowFile:
    """An Arrow file as `Dataset.save_to_disk` writes them, with one column that holds the text."""

    def __init__(self, path: Path, field: str) -> None:
        self.path, self.field = path, field

    @cached_property
    def _table(self) -> Any:
        pyarrow = _pyarrow(self.path)
        try:
            # Memory-mapped: pages are read on access.
            table = pyarrow.ipc.open_stream(pyarrow.memory_map(str(self.path))).read_all()
        except (OSError, pyarrow.ArrowException) as error:
            raise CorpusError(f"{self.path} cannot be read: {str(error).splitlines()[0]}") from error
        _check_column(self.path, self.field, table.column_names)
        return table

    @property
    def count(self) -> int:
        return self._table.num_rows

    @property
    def mark(self) -> dict[str, Any]:
        return {**file_mark(self.path), "documents": self.count}

    def records(self, start: int, stop: int) -> Iterator[Record]:
        column = self._table.column(self.field).slice(start, stop - start)
        yield from _records(column, self.path, self.field, start)


def arrow_files(folder: Path) -> list[Path] | None:
    """The Arrow files of a `datasets` folder, in order; None for other folders."""
    if (folder / "dataset_dict.json").is_file():
        splits = json.loads((folder / "dataset_dict.json").read_text(encoding="utf-8")).get("splits", [])
        raise CorpusError(
            f"{folder} holds several splits ({', '.join(splits)}); give one of them, such as "
            f"{folder / splits[0] if splits else folder}."
        )
    if not (folder / "state.json").is_file():
        return None
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return [folder / entry["filename"] for entry in state.get("_data_files", [])]


def _check_column(path: Path, field: str, names: list[str]) -> None:
    if field not in names:
        raise CorpusError(
            f"{path} has no column {field!r}; its columns are: {', '.join(names)}. Name one with "
            "field= (--field)."
        )


def _records(column: Any, path: Path, field: str, first: int) -> Iterator[Record]:
    for row, value in enumerate(column, first):
        text = value.as_py()
        name = f"{path.name}:{row}"
        if isinstance(text, str):
            yield Record(name, text)
        else:
            yield Record(name, None, f"column {field!r} holds {type(text).__name__}, not a text")
