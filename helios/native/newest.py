"""The newest row of each key of a batch, and the bounds of the keys, by which the target's files are pruned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helios.native.program import NotNative

if TYPE_CHECKING:
    import polars as pl

FILE, ROW = "__helios_file", "__helios_row"
"""The columns with a row's position in the source: the index of the file in the batch, the row's index in the file."""


def newest(rows: pl.DataFrame, keys: Sequence[str], order: str | None) -> pl.DataFrame:
    """Keeps the newest row of each key: the row with the largest order, and of equal orders the last row in the source.

    Args:
        rows: The rows of a batch, with `FILE` and `ROW`.
        order: The column that orders the rows of a key; None if each key may occur only once.

    Raises:
        NotNative: A key is null, or occurs twice without an order; Spark's error names the rows.
    """
    import polars as pl

    if any(rows.get_column(key).null_count() for key in keys):
        raise NotNative("a row has a null in its key")
    if not rows.select(keys).is_duplicated().any():
        return rows
    if order is None:
        raise NotNative("two rows of the batch have one key")
    # A null order is older than any value.
    newest_rows = rows.filter(pl.col(order).eq_missing(pl.col(order).max().over(keys)))
    return newest_rows.sort(FILE, ROW, descending=True).unique(keys, keep="first", maintain_order=True)


def bounds(rows: pl.DataFrame, keys: Sequence[str], columns: Sequence[tuple[str, str]]) -> dict[str, list[Any]]:
    """The smallest and the largest value of each key column: decimals as text, dates and times as Arrow's numbers."""
    kinds, limits = dict(columns), {}
    for key in keys:
        values = rows.get_column(key)
        if kinds[key] in ("date", "timestamp", "timestamp_ntz"):
            values = values.to_physical()
        ends = [values.min(), values.max()]
        limits[key] = [str(end) for end in ends] if kinds[key].startswith("decimal") and len(rows) else ends
    return limits
