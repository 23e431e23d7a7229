"""Exports of results as NumPy arrays, data frames, Arrow tables, Parquet files and Zarr groups."""

from regard.exports.columns import Columns, arrow_table, data_frame, write_parquet

__all__ = ["Columns", "arrow_table", "data_frame", "write_parquet"]
