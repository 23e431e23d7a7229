"""Converts columns of equal length to pandas, Arrow and Parquet."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from regard.errors import RegardError

__all__ = [
    "Columns",
    "array_of",
    "arrays_of",
    "arrow_table",
    "data_frame",
    "needed",
    "new_place",
    "row_columns",
    "write_parquet",
    "write_safetensors",
]

Columns = dict[str, Any]


def needed(module: str, extra: str, what: str) -> Any:
    """Import an optional library; RegardError with the install command if it is missing."""
    try:
        return import_module(module)
    except ImportError as error:
        raise RegardError(
            f"{what} needs {module.split('.')[0]}, which cannot be imported here ({error}). Install it with: "
            f'pip install "regard[{extra}]"'
        ) from error


def data_frame(columns: Columns) -> Any:
    """A pandas DataFrame."""
    return needed("pandas", "pandas", "a data frame").DataFrame(columns)


def arrow_table(columns: Columns) -> Any:
    """An Arrow table."""
    return needed("pyarrow", "parquet", "an Arrow table").table(columns)


def write_parquet(columns: Columns, path: str | Path) -> None:
    """Write a Parquet file; a crash leaves the old file or the new one."""
    table, write = arrow_table(columns), needed("pyarrow.parquet", "parquet", "a Parquet file").write_table
    _replace(Path(path), lambda draft: write(table, draft))


def write_safetensors(arrays: dict[str, np.ndarray], path: str | Path, about: dict[str, str]) -> None:
    """Write arrays as a safetensors file; a crash leaves the old file or the new one."""
    from safetensors.numpy import save

    # safetensors writes the memory of an array as it lies, whatever its strides.
    data = save({name: np.ascontiguousarray(x) for name, x in arrays.items()}, about)
    _replace(Path(path), lambda draft: draft.write_bytes(data))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside the path, then move it there; RegardError if that fails."""
    draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        write(draft)
        draft.replace(path)
    except OSError as error:
        raise RegardError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        draft.unlink(missing_ok=True)


def new_place(path: str | Path) -> str:
    """The path, if nothing exists there; RegardError otherwise."""
    if Path(path).exists():
        raise RegardError(f"{path} exists already, and it is not overwritten. Choose another name.")
    return str(path)


def array_of(x: Tensor) -> np.ndarray:
    """A tensor as an array; bfloat16, which NumPy lacks, as float32."""
    x = x.detach().cpu()
    return (x.float() if x.is_floating_point() and x.element_size() < 4 else x).numpy()


def arrays_of(name: str, value: Any) -> dict[str, np.ndarray]:
    """A statistic as arrays by name: the parts of a named tuple are `name.part`."""
    if isinstance(value, Tensor):
        return {name: array_of(value)}
    if hasattr(value, "_fields"):
        parts = zip(value._fields, value, strict=True)
        return {key: x for part, inner in parts for key, x in arrays_of(f"{name}.{part}", inner).items()}
    return {}


def row_columns(shape: tuple[int, int, int], stats: dict[str, Any]) -> Columns:
    """One row per batch row, head and query, with every statistic that has one value for each."""
    batch, head, query = (axis.reshape(-1) for axis in np.indices(shape))
    arrays = {key: x for name, value in stats.items() for key, x in arrays_of(name, value).items()}
    found = {key: x.reshape(-1) for key, x in arrays.items() if x.shape == shape}
    return {"batch": batch, "head": head, "query": query, **found}
